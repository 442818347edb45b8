"""Unicode's normal forms in linear time."""

from __future__ import annotations

import re
import unicodedata
from typing import Final, Literal

_PIECE_CHARS: Final = 256
_PIECE: Final = re.compile(rf".{{1,{_PIECE_CHARS}}}(?<=\s)|.{{1,{_PIECE_CHARS}}}", re.DOTALL)


def normal_form(text: str, form: Literal["NFC", "NFKC"] = "NFC") -> str:
    """``text`` in that form.

    ``unicodedata.normalize`` sorts each run of combining marks in quadratic time and lets no other
    thread run meanwhile: 160,000 marks behind one letter take 20 seconds. So a long text is handled
    in pieces that end behind white space. If there is none in 256 characters, a mark at the border
    of two pieces stays apart from its letter.
    """
    if len(text) <= _PIECE_CHARS or text.isascii():
        return unicodedata.normalize(form, text)
    return "".join(unicodedata.normalize(form, piece) for piece in _PIECE.findall(text))
