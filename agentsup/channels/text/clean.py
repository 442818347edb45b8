"""Text made safe to show: no control characters, no lone surrogates, one kind of line end."""

from __future__ import annotations

import re
import unicodedata

_LINE_ENDS = re.compile(r"\r\n|[\r\x0b\x0c\x85\u2028\u2029]")
# Escape sequences of terminals: colours and cursor moves (CSI), titles and links (OSC).
_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)")
# Embedding and overriding of direction affect also the text after the answer.
_DIRECTION = re.compile("[\u202a-\u202e]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_REFUSED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
# Invisible, though not white space: fillers of Hangul, Braille's blank, the object placeholder, the
# joiner of graphemes.
_UNSEEN = frozenset("\u034f\u115f\u1160\u2800\u3164\uffa0\ufffc")
_UNSEEN_CATEGORIES = frozenset({"Cc", "Cf", "Zs", "Zl", "Zp"})


def clean(text: str) -> str:
    """Return ``text`` with ``\\n`` as line end and without terminal codes.

    Other control characters and lone surrogates become U+FFFD; tabs stay.
    """
    text = _LINE_ENDS.sub("\n", text)
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    if _SURROGATE.search(text):
        # Two adjacent surrogates are one character; a lone one is none.
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return scrub(_DIRECTION.sub("", text))


def scrub(text: str) -> str:
    """Replace each control character and surrogate by U+FFFD; no position changes."""
    return _REFUSED.sub("\ufffd", text)


def is_unseen(char: str) -> bool:
    """Whether a character is invisible: white space, joiners, marks of direction."""
    return (
        char.isspace()
        or char in _UNSEEN
        or "\ufe00" <= char <= "\ufe0f"
        or unicodedata.category(char) in _UNSEEN_CATEGORIES
    )


def is_blank(text: str) -> bool:
    """Whether a text has no visible character; platforms refuse such a message."""
    return not text or all(map(is_unseen, text))
