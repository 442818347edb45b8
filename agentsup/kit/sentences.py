"""Whole sentences out of the texts of errors, which have no capital and no full stop of their own."""

from __future__ import annotations

import re
from typing import Final

_ADDRESS: Final = re.compile(r"[a-z][a-z0-9+.-]*://", re.ASCII)
_ENDS: Final = (".", "?", "!", "…", ":")


def capitalized(text: str) -> str:
    """``text`` with a capital at its beginning, unless an address is there."""
    return text if _ADDRESS.match(text) else text[:1].upper() + text[1:]


def as_sentence(text: str) -> str:
    """``text`` as a sentence that another one can follow."""
    text = capitalized(text.rstrip())
    return text if not text or text.endswith(_ENDS) else f"{text}."
