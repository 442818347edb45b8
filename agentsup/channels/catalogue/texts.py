"""The catalogue: a text by its key, in the language of the person who reads it.

A language is a file ``<code>.toml`` beside this module, flattened to dotted keys. What a file
leaves out is said in English. Help lines of commands stand in ``agents.commands`` and, for other
languages, in the table ``[command]`` of their file.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from string import Formatter
from types import MappingProxyType
from typing import Any

__all__ = ["ENGLISH", "Catalogue", "flatten", "load", "placeholders"]

ENGLISH = "en"
_COMMAND = "command."


class Catalogue:
    """Texts of every language; immutable."""

    def __init__(self, texts: Mapping[str, Mapping[str, str]]) -> None:
        """``texts`` maps a language code to its keys; ``en`` must be there."""
        self._texts = {code: MappingProxyType(dict(found)) for code, found in texts.items()}
        self._english = self._texts[ENGLISH]

    @property
    def languages(self) -> tuple[str, ...]:
        """The codes there are texts for, English first."""
        return (ENGLISH, *sorted(code for code in self._texts if code != ENGLISH))

    def texts(self, code: str) -> Mapping[str, str]:
        """All keys of one language, as its file has them."""
        return self._texts[code]

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
        words = self._texts[self.best(language)].get(key) or self._english[key]
        return words.format(**facts) if facts else words

    def command(self, name: str, language: str = "") -> str | None:
        """The help line of a command, or None where only the command's own English one exists."""
        return self._texts[self.best(language)].get(_COMMAND + name)


@cache
def load() -> Catalogue:
    """The catalogue of this version: read once, then the same value. A few ms the first time."""
    found: dict[str, dict[str, str]] = {}
    for file in resources.files(__package__).iterdir():
        code, dot, ending = file.name.partition(".")
        if dot and ending == "toml":
            found[code] = flatten(tomllib.loads(file.read_text(encoding="utf-8")))
    return Catalogue(found)


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


def placeholders(words: str) -> frozenset[str]:
    """The names of the places in a text."""
    return frozenset(name for _, name, _, _ in Formatter().parse(words) if name)
