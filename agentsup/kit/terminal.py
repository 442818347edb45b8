"""Foreign text made safe for a terminal: all output passes one of these functions.

A terminal obeys control characters (move the cursor, set the title, send an answer as if the person
had typed it), reorders text behind direction marks, and shows nothing for some characters. Of
these, ``clean`` keeps those that emoji and some scripts need.
"""

from __future__ import annotations

import json
import re

from agentsup.kit.text import INVISIBLE, code

_UNSAFE = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and line feed, DEL, C1
    r"\u2028\u2029\ud800-\udfff"  # line separators, halves of characters
) + INVISIBLE
_EMOJI = (
    r"\xa9\xae\u203c\u2049\u2122-\u27ff\u2900-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
)
_JOINING = r"\u0600-\u109f\u1780-\u17b3\u17b6-\u17ff\ufb50-\ufdff\ufe70-\ufefc"
"""Arabic and Indic letters, whose shape depends on joiners."""
_PRESERVED = re.compile(
    rf"(?:\A|(?<=[{_EMOJI}]))[\ufe0e\ufe0f]|(?<=[#*0-9])\ufe0f(?=\u20e3)"
    rf"|(?:\A|(?<=[{_EMOJI}\ufe0f]))\u200d(?:\Z|(?=[{_EMOJI}]))"
    rf"|(?:\A|(?<=[{_JOINING}]))[\u200c\u200d](?:\Z|(?=[{_JOINING}]))"
)
"""Matches invisible characters that are kept; streamed text may be cut before or behind any of
them."""
_CONTROL = re.compile(f"[{_UNSAFE}]")
_COLOUR = re.compile("(\x1b\\[(?:0|1|2|31|32|33|36)m)")


def clean(text: object) -> str:
    """``text`` with ``·`` in place of each character that a terminal would obey or not show; line
    ends, tabs, emoji and joined letters are kept."""
    prose = str(text)
    return _CONTROL.sub(lambda at: at[0] if _PRESERVED.match(prose, at.start()) else "·", prose)


def clean_line(text: object) -> str:
    """``text`` on one line: all such characters and line ends are written as codes."""
    shown = _CONTROL.sub(lambda found: code(found[0]), str(text))
    return shown.replace("\n", "\\n").replace("\t", "\\t")


def clean_json(text: str) -> str:
    """A JSON document of the same meaning, in which each such character is an escape sequence."""
    return _CONTROL.sub(lambda found: json.dumps(found[0])[1:-1], text)


def clean_painted(text: str) -> str:
    """As ``clean``, but the few colours that our own commands use are kept."""
    return "".join(part if at % 2 else clean(part) for at, part in enumerate(_COLOUR.split(text)))
