"""A folder for a socket of a test."""

from __future__ import annotations

import tempfile
from typing import Final

_LONG: Final = 50


def socket_folder(prefix: str) -> str:
    """Make a folder whose path is short, wherever ``TMPDIR`` is: that of a socket has 107 bytes."""
    usual = tempfile.gettempdir()
    return tempfile.mkdtemp(prefix=prefix, dir=usual if len(usual) <= _LONG else "/tmp")
