"""The catalogue: a text by its key, in the language of the person who reads it.

A language is a file ``<code>.toml`` beside this module, flattened to dotted keys. A text with a
count has two keys, ``<key>.one`` and ``<key>.other``. The English help lines of commands are in
``commands``; other languages have them in the table ``[command]`` of their file.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from types import MappingProxyType
from typing import Any

from agentsup.kit.own_command import with_home

ENGLISH = "en"
_COMMAND = "command."
_FOR_STRANGERS = ("elsewhere.", "pairing.code")
"""Texts that do not tell where the home is."""

Texts = Mapping[str, str]


class Catalogue:
    """Texts of every language; a language is read at its first use."""

    def __init__(self, texts: Mapping[str, Texts | Callable[[], Texts]]) -> None:
        """``texts`` maps a language code to its keys, or to a callable that reads them; ``en`` must
        be there."""
        self._texts = dict(texts)
        assert ENGLISH in self._texts, "English is what all else falls back to"

    @property
    def languages(self) -> tuple[str, ...]:
        """The codes of all languages, English first."""
        return (ENGLISH, *sorted(code for code in self._texts if code != ENGLISH))

    def texts(self, code: str) -> Texts:
        """All keys of one language, as its file has them. The first call takes a few ms."""
        found = self._texts[code]
        if callable(found):
            found = self._texts[code] = MappingProxyType(dict(found()))
        return found

    def best(self, language: str) -> str:
        """The code of the language to use for a person's platform language ``language``
        (``de-AT``)."""
        wanted = language.replace("_", "-").casefold()
        while wanted:
            if wanted in self._texts:
                return wanted
            wanted = wanted.rpartition("-")[0]
        return ENGLISH

    def text(self, key: str, language: str = "", **facts: object) -> str:
        """The text ``key`` with its placeholders filled from ``facts``; commands name the home.

        Raises ``KeyError`` for a key that English lacks, or for a missing fact.
        """
        found = self.texts(self.best(language)).get(key) or self.texts(ENGLISH)[key]
        text = found.format(**facts) if facts else found
        return text if key.startswith(_FOR_STRANGERS) else with_home(text)

    def command(self, name: str, language: str = "") -> str | None:
        """The help line of a command, or None if there is only the command's own English one."""
        return self.texts(self.best(language)).get(_COMMAND + name)


class LocalizedTexts:
    """The catalogue in one language."""

    def __init__(self, catalogue: Catalogue, language: str) -> None:
        """``language`` is in the platform's form; empty for English."""
        self._catalogue = catalogue
        self.language = language

    def __call__(self, key: str, **facts: object) -> str:
        """The text ``key``. Raises ``KeyError`` for an unknown key or a missing fact."""
        return self._catalogue.text(key, self.language, **facts)

    def translated(self, line: str) -> str:
        """A ``Note`` in this language; any other line as it is."""
        return self(line.key, **line.facts) if isinstance(line, Note) else line

    def count(self, key: str, number: float, **facts: object) -> str:
        """The text ``key`` for a count; ``n`` is the number."""
        which = "one" if number == 1 else "other"
        return self(
            f"{key}.{which}", n=f"{number:g}" if isinstance(number, float) else str(number), **facts
        )


class Note(str):
    """A text of the catalogue in English that knows its key, for lists of English lines that may be
    shown to a person: ``LocalizedTexts.translated``."""

    __slots__ = ("facts", "key")

    key: str
    facts: Mapping[str, object]

    @classmethod
    def of(cls, key: str, **facts: object) -> Note:
        """The text ``key`` with its placeholders filled."""
        note = cls(words()(key, **facts))
        note.key, note.facts = key, facts
        return note


@cache
def load() -> Catalogue:
    """The catalogue of this version, always the same object."""
    found: dict[str, Callable[[], Texts]] = {}
    for file in resources.files(__package__).iterdir():
        code, dot, ending = file.name.partition(".")
        if dot and ending == "toml":
            found[code] = _reader(file)
    return Catalogue(found)


@cache
def page_words(language: str) -> tuple[str, Texts]:
    """The texts of the web page in a language: its code, and the texts by their English wording.

    They are in ``page.<code>.toml``; English has no such file, since it is in the page itself.
    Blocks.
    """
    code = load().best(language)
    file = resources.files(__package__) / f"page.{code}.toml"
    found = tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return code, MappingProxyType(found)


def words(language: str = "") -> LocalizedTexts:
    """The texts for a person of that language; empty: English."""
    return LocalizedTexts(load(), language)


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
