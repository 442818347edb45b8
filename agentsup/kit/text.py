"""Texts: invisible characters as codes, normal forms in linear time, whole sentences. Pure."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_IGNORABLE = (
    (0x00AD, 0x00AD),
    (0x034F, 0x034F),
    (0x061C, 0x061C),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x200B, 0x200F),
    (0x202A, 0x202E),
    (0x2060, 0x206F),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFF8),
    (0x1BCA0, 0x1BCA3),
    (0x1D173, 0x1D17A),
    (0xE0000, 0xE0FFF),
)
"""The property ``Default_Ignorable_Code_Point`` of ``DerivedCoreProperties.txt`` in the Unicode
Character Database (Unicode 16; the property is stable: assigned characters keep it)."""
_BLANK = (
    (0x2800, 0x2800),  # Braille pattern blank
    (0x1107F, 0x1107F),  # Brahmi number joiner
    (0x13441, 0x13442),  # Egyptian hieroglyph full and half blank
    (0x16FE4, 0x16FE4),  # Khitan small script filler
    (0x1D159, 0x1D159),  # musical symbol null notehead
)
"""Characters whose glyph has no ink."""
INVISIBLE = "".join(f"{chr(first)}-{chr(last)}" for first, last in _IGNORABLE + _BLANK)
"""The inside of a character class of ``re``."""
_INVISIBLE = re.compile(f"[{INVISIBLE}]")
_HIDDEN = frozenset({"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp"})
_PIECE_CHARS: Final = 256
_PIECE: Final = re.compile(rf".{{1,{_PIECE_CHARS}}}(?<=\s)|.{{1,{_PIECE_CHARS}}}", re.DOTALL)
_ADDRESS: Final = re.compile(r"[a-z][a-z0-9+.-]*://", re.ASCII)
_ENDS: Final = (".", "?", "!", "…", ":")


def visible(text: str) -> str:
    """``text`` on one line, with every invisible character (controls, direction marks, joiners,
    fillers, variation selectors, unusual spaces) written as a code."""
    return "".join(character if _is_seen(character) else code(character) for character in text)


def code(character: str) -> str:
    """A character as a Python escape: ``\\u200b``, ``\\U000e0100``."""
    number = ord(character)
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"


def _is_seen(character: str) -> bool:
    if " " <= character <= "~":
        return True
    return not (
        unicodedata.category(character) in _HIDDEN
        or character.isspace()
        or _INVISIBLE.match(character)
    )


def normal_form(text: str) -> str:
    """``text`` in the form NFC.

    ``unicodedata.normalize`` sorts each run of combining marks in quadratic time and lets no other
    thread run meanwhile: 160,000 marks behind one letter take 20 seconds. So a long text is handled
    in pieces that end behind white space. If there is none in 256 characters, a mark at the border
    of two pieces stays apart from its letter.
    """
    if len(text) <= _PIECE_CHARS or text.isascii():
        return unicodedata.normalize("NFC", text)
    return "".join(unicodedata.normalize("NFC", piece) for piece in _PIECE.findall(text))


def capitalized(text: str) -> str:
    """``text`` with a capital at its beginning, unless an address is there."""
    return text if _ADDRESS.match(text) else text[:1].upper() + text[1:]


def as_sentence(text: str) -> str:
    """``text`` as a sentence that another one can follow."""
    text = capitalized(text.rstrip())
    return text if not text or text.endswith(_ENDS) else f"{text}."
