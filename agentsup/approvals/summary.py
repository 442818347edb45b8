"""A call as a person reads it before deciding: bounded, and unable to look like something else. Pure."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

VALUE_CHARS = 600
MOST_ARGUMENTS = 12
_NAME_CHARS = 120
_HIDDEN = frozenset({"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp"})
_FENCE = re.compile("`+")


def summary(
    tool: str, title: str, args: Mapping[str, Any], redact: Callable[[str], str] = str
) -> str:
    """Tool and arguments, one line each, in a block that Markdown leaves alone.

    ``title`` is what the engine calls it, and stands in quotes. ``redact`` takes secrets out.
    """
    lines = [_bounded(visible(redact(tool)), _NAME_CHARS)]
    if title:
        lines.append(f"“{_bounded(visible(redact(title)), _NAME_CHARS)}”")
    for name, value in list(args.items())[:MOST_ARGUMENTS]:
        shown = visible(redact(json.dumps(value, ensure_ascii=False, default=repr)))
        key = _bounded(visible(redact(str(name))), _NAME_CHARS)
        lines.append(f"  {key}: {_bounded(shown, VALUE_CHARS)}")
    left = len(args) - MOST_ARGUMENTS
    if left > 0:
        lines.append(f"  … {left} more")
    text = "\n".join(lines)
    fence = "`" * max(3, 1 + max((len(run) for run in _FENCE.findall(text)), default=0))
    return f"{fence}\n{text}\n{fence}"


def visible(text: str) -> str:
    """``text`` on one line, with whatever is not seen (controls, direction marks, joiners, unusual
    spaces) written out."""
    return "".join(_shown(letter) for letter in text)


def plain_name(text: str) -> str:
    """A person's name inside a sentence, without anything that Markdown acts on."""
    return "".join(c for c in _bounded(visible(text), 60) if c not in "`*_[]()<>#~|!\\")


def _shown(letter: str) -> str:
    if letter == " " or (unicodedata.category(letter) not in _HIDDEN and not letter.isspace()):
        return letter
    number = ord(letter)
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"


def _bounded(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    half = most // 2
    cut = f"{text[:half]} … {len(text) - 2 * half} characters not shown … {text[-half:]}"
    return cut if len(cut) < len(text) else text
