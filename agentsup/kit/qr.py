"""QR codes of links: half blocks for a terminal, SVG for the page.

The library is loaded by the first call only: it takes some 20 ms, and most commands need none.
"""

from __future__ import annotations

from importlib import import_module
from io import BytesIO
from typing import Any, Final

_BORDER: Final = 1
"""Light modules around the code. The standard asks for four, which no phone needs, and 40 columns
have no room for them."""
_PAIRS: Final = {(0, 0): "█", (0, 1): "▀", (1, 0): "▄", (1, 1): " "}
"""The light modules are drawn, since most terminals are dark; phones read the other way, too."""


def half_blocks(text: str, columns: int) -> str:
    """The QR code of ``text`` with two rows in a line; empty if it needs more than ``columns``."""
    rows = [[int(each) for each in row] for row in _code(text).matrix_iter(border=_BORDER)]
    if len(rows[0]) > columns:
        return ""
    if len(rows) % 2:
        rows.append([1] * len(rows[0]))  # as dark as the terminal
    pairs = zip(rows[::2], rows[1::2], strict=True)
    return "\n".join(
        "".join(_PAIRS[each] for each in zip(upper, lower, strict=True)) for upper, lower in pairs
    )


def svg(text: str) -> str:
    """The QR code of ``text`` as an SVG picture, dark on white."""
    picture = BytesIO()
    _code(text).save(picture, kind="svg", border=4, light="#fff", scale=4, xmldecl=False)
    return picture.getvalue().decode()


def _code(text: str) -> Any:
    return import_module("segno").make(text, error="l", boost_error=False, micro=False)
