"""Files that people send: a place in the agent's workspace, under a name that is safe."""

from __future__ import annotations

import re
import time
import unicodedata
from pathlib import Path
from typing import Final

__all__ = ["FOLDER", "give_up", "reserve", "safe_name"]

FOLDER: Final = "inbox"
_MAX_NAME: Final = 100
_UNSAFE = re.compile(r"[^\w.+=@-]+")


def safe_name(name: str) -> str:
    """``name`` as one harmless segment of a path, recognisable, its ending kept."""
    plain = unicodedata.normalize("NFC", name).replace("\\", "/").rpartition("/")[2]
    plain = _UNSAFE.sub("_", plain).lstrip(".-").rstrip(". ")
    stem, dot, ending = plain.rpartition(".")
    if not dot:
        stem, ending = plain, ""
    ending = ending[:16]
    while len(f"{stem}.{ending}".encode()) > _MAX_NAME:
        stem = stem[:-1]
    return (f"{stem}.{ending}" if ending else stem) or "file"


def reserve(workspace: Path, name: str, *, now_ms: int) -> Path:
    """An empty file ``<workspace>/inbox/<date>-<safe name>`` that nobody else gets.

    Blocks. Raises ``OSError``.
    """
    day = time.strftime("%Y-%m-%d", time.gmtime(now_ms / 1000))
    wanted = f"{day}-{safe_name(name)}"
    folder = workspace / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    if not folder.resolve().is_relative_to(workspace.resolve()):
        raise OSError(0, f"{FOLDER} leads out of the workspace")
    stem, dot, ending = wanted.rpartition(".")
    for number in range(1, 10_000):
        other = f"{stem}-{number}{dot}{ending}" if dot else f"{wanted}-{number}"
        to = folder / (wanted if number == 1 else other)
        try:
            to.open("xb").close()
        except FileExistsError:
            continue
        return to
    raise OSError(0, f"too many files are called {wanted}")


def give_up(to: Path) -> None:
    """Take a reserved file back that nothing was written to. Blocks."""
    if to.is_file() and to.stat().st_size == 0:
        to.unlink(missing_ok=True)
