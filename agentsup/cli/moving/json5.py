"""A small reader of JSON5: comments, trailing commas, plain keys, single quotes, other numbers.

Only what people write into a configuration is understood. Anything else is an error with its line.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

MAX_DEPTH: Final = 64
_SPACE: Final = re.compile(r"(?:[\s\ufeff]+|//[^\n\r]*|/\*.*?\*/)*", re.DOTALL)
_NAME: Final = re.compile(r"[^\W\d][\w$]*|[$][\w$]*")
_NUMBER: Final = re.compile(
    r"[+-]?(?:0[xX][0-9a-fA-F]{1,16}|(?:\d{1,400}\.?\d{0,400}|\.\d{1,400})(?:[eE][+-]?\d{1,4})?)"
)
_PLAIN: Final = {
    '"': re.compile(r'[^"\\\n\r]+'),
    "'": re.compile(r"[^'\\\n\r]+"),
}
_ESCAPES: Final = {
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "0": "\0",
    "\n": "",
    "\r": "",
    "\u2028": "",
    "\u2029": "",
}
_WORDS: Final = {"true": True, "false": False, "null": None}


class BadJson5(ValueError):
    """The text is no JSON5 as it is read here."""


def parse_json5(text: str) -> Any:
    """The value of a JSON5 text. Raises ``BadJson5``."""
    try:
        return json.loads(text)  # what a program wrote is plain JSON
    except (ValueError, RecursionError):
        return _Reader(text).whole()


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def whole(self) -> Any:
        value = self._value(0)
        self._skip()
        if self._at < len(self._text):
            raise self._wrong("more text after the end")
        return value

    def _wrong(self, what: str) -> BadJson5:
        return BadJson5(f"line {self._text.count(chr(10), 0, self._at) + 1}: {what}")

    def _skip(self) -> None:
        found = _SPACE.match(self._text, self._at)
        assert found is not None, "the pattern matches the empty text, too"
        self._at = found.end()

    def _next(self) -> str:
        self._skip()
        return self._text[self._at : self._at + 1]

    def _value(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise self._wrong(f"nested more than {MAX_DEPTH} levels deep")
        sign = self._next()
        if sign == "{":
            return self._object(depth)
        if sign == "[":
            return self._list(depth)
        if sign in ('"', "'") and sign:
            return self._string(sign)
        if found := _NUMBER.match(self._text, self._at):
            self._at = found.end()
            return _number(found[0])
        if (found := _NAME.match(self._text, self._at)) and found[0] in _WORDS:
            self._at = found.end()
            return _WORDS[found[0]]
        raise self._wrong("a value is missing")

    def _object(self, depth: int) -> dict[str, Any]:
        self._at += 1
        found: dict[str, Any] = {}
        while self._next() != "}":
            key = self._key()
            if self._next() != ":":
                raise self._wrong("':' is missing after a key")
            self._at += 1
            found[key] = self._value(depth + 1)
            self._comma("}")
        self._at += 1
        return found

    def _list(self, depth: int) -> list[Any]:
        self._at += 1
        found: list[Any] = []
        while self._next() != "]":
            found.append(self._value(depth + 1))
            self._comma("]")
        self._at += 1
        return found

    def _comma(self, end: str) -> None:
        sign = self._next()
        if sign == ",":
            self._at += 1
        elif sign != end:
            raise self._wrong(f"',' or {end!r} is missing")

    def _key(self) -> str:
        sign = self._next()
        if sign in ('"', "'") and sign:
            return self._string(sign)
        if found := _NAME.match(self._text, self._at):
            self._at = found.end()
            return found[0]
        raise self._wrong("a key is missing")

    def _string(self, quote: str) -> str:
        self._at += 1
        parts: list[str] = []
        while True:
            if found := _PLAIN[quote].match(self._text, self._at):
                parts.append(found[0])
                self._at = found.end()
            sign = self._text[self._at : self._at + 1]
            if sign == quote:
                self._at += 1
                return "".join(parts)
            if sign != "\\":
                raise self._wrong("a text has no end")
            parts.append(self._escaped())

    def _escaped(self) -> str:
        sign = self._text[self._at + 1 : self._at + 2]
        self._at += 2
        length = {"x": 2, "u": 4}.get(sign)
        if length is None:
            if sign == "\r" and self._text[self._at : self._at + 1] == "\n":
                self._at += 1
            return _ESCAPES.get(sign, sign)
        digits = self._text[self._at : self._at + length]
        if not re.fullmatch(f"[0-9a-fA-F]{{{length}}}", digits):
            raise self._wrong("an escape is not understood")
        self._at += length
        return chr(int(digits, 16))


def _number(text: str) -> int | float:
    if "x" in text or "X" in text:
        return int(text, 16)
    return float(text) if any(sign in text for sign in ".eE") else int(text)
