"""Line and column of any value in a JSON or TOML text.

Both texts are parsed by the standard library first, which keeps no positions; only when something
must be told about a value is its place looked up here. JSON containers are walked with the C
decoder stepping over their values, so a lookup costs about as much as one parse.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right

from agentsup.config.findings import KeyPath

Place = tuple[int, int]
"""Line and column, both from 1; columns count characters."""

_SPACE = re.compile(r"[ \t\r\n]*")


class LineIndex:
    """Turns offsets of a text into lines and columns."""

    def __init__(self, text: str) -> None:
        """Index the line starts of `text`."""
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def place(self, offset: int) -> Place:
        """Line and column of the character at `offset`."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1


Member = tuple[str | int, int, int]
"""Key or index, offset of the key (of the value in a list), offset of the value."""


class JsonPlaces:
    """Places in a JSON text that `json.loads` accepts."""

    def __init__(self, text: str) -> None:
        """Keep `text`; nothing is walked before the first lookup."""
        self._text = text
        self._decoder = json.JSONDecoder(strict=False)
        self._members: dict[int, list[Member]] = {}
        self._lines: LineIndex | None = None

    def locate(self, where: KeyPath) -> Place:
        """Place of the value at `where`, of its key if the value is in an object.

        Where the text has no such value, the place of its nearest parent that exists.
        """
        return self._place(self._offset(where))

    def duplicate_keys(self) -> list[tuple[KeyPath, Place]]:
        """Every key that its object has already, in the order of the text."""
        found: list[tuple[KeyPath, int]] = []
        waiting: list[tuple[KeyPath, int]] = [((), self._skip(0))]
        while waiting:
            path, start = waiting.pop()
            seen: set[str | int] = set()
            for key, key_offset, value_offset in self._walk(start):
                if key in seen:
                    found.append(((*path, key), key_offset))
                seen.add(key)
                if self._text[value_offset] in "{[":
                    waiting.append(((*path, key), value_offset))
        found.sort(key=lambda each: each[1])
        return [(path, self._place(offset)) for path, offset in found]

    def _place(self, offset: int) -> Place:
        if self._lines is None:
            self._lines = LineIndex(self._text)
        return self._lines.place(offset)

    def _offset(self, where: KeyPath) -> int:
        value = told = self._skip(0)
        for part in where:
            # The last of equal keys is the one json.loads keeps.
            for key, key_offset, value_offset in reversed(self._walk(value)):
                if key == part and isinstance(key, str) == isinstance(part, str):
                    value, told = value_offset, key_offset
                    break
            else:
                break
        return told

    def _walk(self, start: int) -> list[Member]:
        """The members of the container at `start`; none where a scalar stands there."""
        if start not in self._members:
            opener = self._text[start : start + 1]
            self._members[start] = (
                self._walk_members(start, opener == "{") if opener in {"{", "["} else []
            )
        return self._members[start]

    def _walk_members(self, start: int, is_object: bool) -> list[Member]:
        members: list[Member] = []
        text, decode = self._text, self._decoder.raw_decode
        at = self._skip(start + 1)
        while text[at] not in "]}":
            key: str | int = len(members)
            key_offset = at
            if is_object:
                key, at = decode(text, at)
                at = self._skip(self._skip(at) + 1)
            members.append((key, key_offset, at))
            at = self._skip(decode(text, at)[1])
            if text[at] == ",":
                at = self._skip(at + 1)
        return members

    def _skip(self, offset: int) -> int:
        match = _SPACE.match(self._text, offset)
        return match.end() if match else offset


_TOML_KEY = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
_TOML_DOTTED = rf"{_TOML_KEY}(?:[ \t]*\.[ \t]*{_TOML_KEY})*"
_TOML_LINE = re.compile(
    rf"[ \t]*(?:\[\[?[ \t]*(?P<table>{_TOML_DOTTED})[ \t]*\]|(?P<key>{_TOML_DOTTED})[ \t]*=)"
)
_TOML_TOKEN = re.compile(
    r'(?P<multi>"""(?:[^\\]|\\.)*?"{3,5}|\'\'\'.*?\'{3,5})'
    r'|(?P<text>"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\')'
    r"|(?P<comment>#[^\n]*)|(?P<open>[\[{])|(?P<close>[\]}])|(?P<line>\n)",
    re.DOTALL,
)


class TomlPlaces:
    """Places of keys and tables in a TOML text that `tomllib` accepts.

    Values inside inline tables and lists are placed at the key they belong to.
    """

    def __init__(self, text: str) -> None:
        """Read the keys of `text` once."""
        self._places: dict[KeyPath, Place] = {}
        lines = LineIndex(text)
        table: tuple[str, ...] = ()
        offset = 0
        while offset < len(text):
            match = _TOML_LINE.match(text, offset)
            if match and match["table"] is not None:
                table = _toml_keys(match["table"])
                self._note(table, lines.place(match.start("table")))
                offset = _end_of_statement(text, match.end())
            elif match:
                keys = _toml_keys(match["key"])
                self._note((*table, *keys), lines.place(match.start("key")))
                offset = _end_of_statement(text, match.end())
            else:
                offset = _end_of_statement(text, offset)

    def locate(self, where: KeyPath) -> Place:
        """Place of the key at `where`, else of its nearest parent in the text."""
        keys = tuple(part for part in where if isinstance(part, str))
        while keys and keys not in self._places:
            keys = keys[:-1]
        return self._places.get(keys, (1, 1))

    def _note(self, keys: tuple[str, ...], place: Place) -> None:
        for length in range(1, len(keys) + 1):
            self._places.setdefault(keys[:length], place)


def _toml_keys(dotted: str) -> tuple[str, ...]:
    parts = re.findall(_TOML_KEY, dotted)
    return tuple(part[1:-1] if part[0] in "\"'" else part for part in parts)


def _end_of_statement(text: str, offset: int) -> int:
    """Offset of the line after the statement that goes on at `offset`, over all its lines."""
    depth = 0
    for token in _TOML_TOKEN.finditer(text, offset):
        if token["open"]:
            depth += 1
        elif token["close"]:
            depth -= 1
        elif token["line"] and depth <= 0:
            return token.end()
    return len(text)
