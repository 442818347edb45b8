"""The catalogue: a text by its key, in the language of the person who reads it.

A language is a file ``<code>.toml`` beside this module, flattened to dotted keys. A text that counts
something has two keys, ``<key>.one`` and ``<key>.other``. Help lines of commands stand in
``agents.commands``, and for other languages than English in the table ``[command]`` of their file.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from string import Formatter
from types import MappingProxyType
from typing import Any

__all__ = [
    "ENGLISH",
    "Catalogue",
    "Words",
    "flatten",
    "load",
    "page_words",
    "placeholders",
    "words",
]

ENGLISH = "en"
_COMMAND = "command."

Texts = Mapping[str, str]


class Catalogue:
    """Texts of every language; a language is read when it is first spoken."""

    def __init__(self, texts: Mapping[str, Texts | Callable[[], Texts]]) -> None:
        """``texts`` maps a language code to its keys, or to what reads them; ``en`` must be there."""
        self._texts = dict(texts)
        assert ENGLISH in self._texts, "English is what all else falls back to"

    @property
    def languages(self) -> tuple[str, ...]:
        """The codes there are texts for, English first."""
        return (ENGLISH, *sorted(code for code in self._texts if code != ENGLISH))

    def texts(self, code: str) -> Texts:
        """All keys of one language, as its file has them. A few ms the first time."""
        found = self._texts[code]
        if callable(found):
            found = self._texts[code] = MappingProxyType(dict(found()))
        return found

    def best(self, language: str) -> str:
        """The language to use for a person whose platform says ``language`` (``de-AT``)."""
        wanted = language.replace("_", "-").casefold()
        while wanted:
            if wanted in self._texts:
                return wanted
            wanted = wanted.rpartition("-")[0]
        return ENGLISH

    def text(self, key: str, language: str = "", **facts: object) -> str:
        """The text ``key`` with its places filled from ``facts``.

        Raises ``KeyError`` for a key that English lacks, or for a missing fact.
        """
        found = self.texts(self.best(language)).get(key) or self.texts(ENGLISH)[key]
        return found.format(**facts) if facts else found

    def words(self, language: str = "") -> Words:
        """The catalogue as one person reads it."""
        return Words(self, language)

    def command(self, name: str, language: str = "") -> str | None:
        """The help line of a command, or None where only the command's own English one exists."""
        return self.texts(self.best(language)).get(_COMMAND + name)


class Words:
    """The catalogue in one language."""

    def __init__(self, catalogue: Catalogue, language: str) -> None:
        """``language`` as the person's platform names it, or empty for English."""
        self._catalogue = catalogue
        self.language = language

    def __call__(self, key: str, **facts: object) -> str:
        """The text ``key``. Raises ``KeyError`` for an unknown key or a missing fact."""
        return self._catalogue.text(key, self.language, **facts)

    def count(self, key: str, number: float, **facts: object) -> str:
        """The text ``key`` for so many; ``n`` is the number."""
        which = "one" if number == 1 else "other"
        return self(
            f"{key}.{which}", n=f"{number:g}" if isinstance(number, float) else str(number), **facts
        )


@cache
def load() -> Catalogue:
    """The catalogue of this version, always the same value."""
    found: dict[str, Callable[[], Texts]] = {}
    for file in resources.files(__package__).iterdir():
        code, dot, ending = file.name.partition(".")
        if dot and ending == "toml":
            found[code] = _reader(file)
    return Catalogue(found)


@cache
def page_words(language: str) -> tuple[str, Texts]:
    """What the web page says in a language: its code, and the texts by their English wording.

    They stand in ``page.<code>.toml``; English is in the page itself, so it has none. Blocks.
    """
    code = load().best(language)
    file = resources.files(__package__) / f"page.{code}.toml"
    found = tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return code, MappingProxyType(found)


def words(language: str = "") -> Words:
    """What to say to a person of that language; empty: English."""
    return load().words(language)


def _reader(file: Traversable) -> Callable[[], Texts]:
    return lambda: flatten(tomllib.loads(file.read_text(encoding="utf-8")))


def flatten(tables: Mapping[str, Any], above: str = "") -> dict[str, str]:
    """Nested tables as dotted keys. Raises ``TypeError`` for a value that is no text."""
    flat: dict[str, str] = {}
    for key, value in tables.items():
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{above}{key}."))
        elif isinstance(value, str):
            flat[above + key] = value
        else:
            raise TypeError(f"{above}{key} is no text")
    return flat


def placeholders(text: str) -> frozenset[str]:
    """The names of the places in a text."""
    return frozenset(name for _, name, _, _ in Formatter().parse(text) if name)
