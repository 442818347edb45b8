"""A small reader of JSON5: comments, trailing commas, plain keys, single quotes, other numbers.

Token by token the text becomes JSON, each token in its line. Only what people write into a
configuration is understood. Anything else is an error with its line.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

_TOKEN: Final = re.compile(
    r"""
    (?P<space>[\s\ufeff]+|//[^\n\r]*|/\*.*?\*/)
    |(?P<text>"(?:[^"\\\n\r]|\\.)*"|'(?:[^'\\\n\r]|\\.)*')
    |(?P<number>[+-]?(?:0[xX][0-9a-fA-F]{1,16}
        |(?:\d{1,400}\.?\d{0,400}|\.\d{1,400})(?:[eE][+-]?\d{1,4})?))
    |(?P<name>[^\W\d][\w$]*|[$][\w$]*)
    |(?P<sign>[{}\[\]:,])
    """,
    re.DOTALL | re.VERBOSE,
)
_ESCAPE: Final = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|(\r\n|.))", re.DOTALL)
_ESCAPES: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0"}
_LINE_ENDS: Final = ("\n", "\r", "\r\n", "\u2028", "\u2029")
"""Behind a backslash: the text goes on in the next line."""


class BadJson5(ValueError):
    """The text is no JSON5 as it is read here."""


def parse_json5(text: str) -> Any:
    """The value of a JSON5 text. Raises ``BadJson5``."""
    try:
        return json.loads(text)  # what a program wrote is plain JSON
    except (ValueError, RecursionError):
        pass
    try:
        return json.loads(_as_json(text))
    except json.JSONDecodeError as error:
        raise BadJson5(f"line {error.lineno}: {error.msg}") from None
    except RecursionError:
        raise BadJson5("line 1: nested too deep") from None


def _as_json(text: str) -> str:
    parts: list[str] = []
    at = last = 0
    is_name = False
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            line = text.count("\n", 0, at) + 1
            raise BadJson5(f"line {line}: {text[at]!r} is not understood")
        at, shown = token.end(), token[0]
        if token["space"]:
            parts.append("\n" * shown.count("\n"))
            continue
        if shown in ("}", "]") and parts and parts[last] == ",":
            parts[last] = ""  # a comma at the end
        elif shown == ":" and is_name:
            parts[last] = json.dumps(parts[last])
        last, is_name = len(parts), bool(token["name"])
        if token["text"]:
            plain = _ESCAPE.sub(_plain, shown[1:-1])
            shown = json.dumps(plain) + "\n" * shown.count("\n")
        parts.append(json.dumps(_number(shown)) if token["number"] else shown)
    return " ".join(parts)


def _plain(escape: re.Match[str]) -> str:
    if digits := escape[1] or escape[2]:
        return chr(int(digits, 16))
    return "" if escape[3] in _LINE_ENDS else _ESCAPES.get(escape[3], escape[3])


def _number(text: str) -> int | float:
    if "x" in text or "X" in text:
        return int(text, 16)
    return float(text) if any(sign in text for sign in ".eE") else int(text)
