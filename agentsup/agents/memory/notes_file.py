"""MEMORY.md of an agent: people write it, we only read it."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def read_notes(path: Path, max_bytes: int) -> str:
    """The beginning of the file as text; empty without one. Blocks for as long as the disk takes.

    What is no regular file is not read: a pipe in its place would hold the reader for ever.
    """
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        raw = os.read(opened, max_bytes) if stat.S_ISREG(os.fstat(opened).st_mode) else b""
    except OSError:
        return ""
    finally:
        os.close(opened)
    return raw.decode("utf-8-sig", "ignore")
