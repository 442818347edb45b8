"""Line and column of any value in a JSON or TOML text.

The standard library parses both texts first and keeps no positions; a position is looked up here
only for a finding. In JSON the C decoder skips the values of a container, so a lookup costs about
as much as one parse.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from typing import NamedTuple

from agentsup.config.findings import KeyPath

Position = tuple[int, int]
"""Line and column, both from 1; columns count characters."""

_SPACE = re.compile(r"[ \t\r\n]*")


class LineIndex:
    """Turns offsets of a text into lines and columns."""

    def __init__(self, text: str) -> None:
        """Index the line starts of ``text``."""
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def position(self, offset: int) -> Position:
        """Line and column of the character at ``offset``."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1


class Member(NamedTuple):
    """One member of an object or a list, by offsets in the text."""

    key: str | int
    key_at: int
    """In a list: as ``value_at``."""
    value_at: int
    end: int


class JsonPositions:
    """Positions in a JSON text that ``json.loads`` accepts."""

    def __init__(self, text: str) -> None:
        """Keep ``text``; nothing is parsed before the first lookup."""
        self._text = text
        self._decoder = json.JSONDecoder(strict=False)
        self._members: dict[int, list[Member]] = {}
        self._lines: LineIndex | None = None

    def locate(self, where: KeyPath) -> Position:
        """Position of the value at ``where``, or of its key if the value is in an object.

        If the text has no such value, the position of its nearest existing parent.
        """
        return self._position(self._find(where)[0])

    def members(self, where: KeyPath) -> tuple[int, list[Member]]:
        """Offset of the container at ``where`` (or of its nearest existing parent), and what is in
        it."""
        start = self._find(where)[1]
        return start, self._walk(start)

    def duplicate_keys(self) -> list[tuple[KeyPath, Position]]:
        """Every repeated key of an object, in the order of the text."""
        found: list[tuple[KeyPath, int]] = []
        waiting: list[tuple[KeyPath, int]] = [((), self._skip(0))]
        while waiting:
            path, start = waiting.pop()
            seen: set[str | int] = set()
            for member in self._walk(start):
                where = (*path, member.key)
                if member.key in seen:
                    found.append((where, member.key_at))
                seen.add(member.key)
                if self._text[member.value_at] in "{[":
                    waiting.append((where, member.value_at))
        found.sort(key=lambda each: each[1])
        return [(path, self._position(offset)) for path, offset in found]

    def _position(self, offset: int) -> Position:
        if self._lines is None:
            self._lines = LineIndex(self._text)
        return self._lines.position(offset)

    def _find(self, where: KeyPath) -> tuple[int, int]:
        """Offsets of the key and of the value at ``where``, or of its nearest existing parent."""
        value = found = self._skip(0)
        for part in where:
            # json.loads keeps the last of equal keys.
            for member in reversed(self._walk(value)):
                if member.key == part and isinstance(member.key, str) == isinstance(part, str):
                    value, found = member.value_at, member.key_at
                    break
            else:
                break
        return found, value

    def _walk(self, start: int) -> list[Member]:
        """The members of the container at ``start``; none for a scalar."""
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
            end = decode(text, at)[1]
            members.append(Member(key, key_offset, at, end))
            at = self._skip(end)
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


class TomlPositions:
    """Positions of keys and tables in a TOML text that ``tomllib`` accepts.

    A value inside an inline table or a list has the position of its key.
    """

    def __init__(self, text: str) -> None:
        """Read the keys of ``text`` once."""
        self._positions: dict[KeyPath, Position] = {}
        lines = LineIndex(text)
        table: tuple[str, ...] = ()
        offset = 0
        while offset < len(text):
            match = _TOML_LINE.match(text, offset)
            if match and match["table"] is not None:
                table = _toml_keys(match["table"])
                self._note(table, lines.position(match.start("table")))
                offset = _end_of_statement(text, match.end())
            elif match:
                keys = _toml_keys(match["key"])
                self._note((*table, *keys), lines.position(match.start("key")))
                offset = _end_of_statement(text, match.end())
            else:
                offset = _end_of_statement(text, offset)

    def locate(self, where: KeyPath) -> Position:
        """Position of the key at ``where``, or of its nearest parent in the text."""
        keys = tuple(part for part in where if isinstance(part, str))
        while keys and keys not in self._positions:
            keys = keys[:-1]
        return self._positions.get(keys, (1, 1))

    def _note(self, keys: tuple[str, ...], position: Position) -> None:
        for length in range(1, len(keys) + 1):
            self._positions.setdefault(keys[:length], position)


def _toml_keys(dotted: str) -> tuple[str, ...]:
    parts = re.findall(_TOML_KEY, dotted)
    return tuple(part[1:-1] if part[0] in "\"'" else part for part in parts)


def _end_of_statement(text: str, offset: int) -> int:
    """Offset of the line after the statement that continues at ``offset``, over all its lines."""
    depth = 0
    for token in _TOML_TOKEN.finditer(text, offset):
        if token["open"]:
            depth += 1
        elif token["close"]:
            depth -= 1
        elif token["line"] and depth <= 0:
            return token.end()
    return len(text)
