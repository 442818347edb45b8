"""Text from elsewhere, made safe for a terminal: the one function that whatever is shown goes through.

A terminal obeys control characters (move the cursor, set the title, answer as if the person had
typed), and shows text in another order behind direction marks.
"""

from __future__ import annotations

import re

_UNSAFE = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and line feed, DEL, C1
    r"\u2028\u2029\u202a-\u202e\u2066-\u2069"  # line separators, what changes the direction of text
    r"\ud800-\udfff"
)
_CONTROL = re.compile(f"[{_UNSAFE}]")
_COLOUR = re.compile("(\x1b\\[(?:0|1|2|31|32|33|36)m)")


def clean(text: object) -> str:
    """``text`` with ``·`` in place of each character that a terminal would obey; line ends and tabs
    are kept."""
    return _CONTROL.sub("·", str(text))


def clean_line(text: object) -> str:
    """``text`` on one line: what a terminal would obey, and line ends, are written out as codes."""
    return _CONTROL.sub(_code, str(text)).replace("\n", "\\n").replace("\t", "\\t")


def clean_json(text: str) -> str:
    """A JSON document of the same meaning, in which each such character is an escape sequence."""
    return _CONTROL.sub(_code, text)


def clean_painted(text: str) -> str:
    """``text`` as ``clean`` has it, with the few colours that our own commands use."""
    return "".join(part if at % 2 else clean(part) for at, part in enumerate(_COLOUR.split(text)))


def _code(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"
