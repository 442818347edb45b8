"""The other paths to a file: over a bind mount, a subvolume, or a second mount of the same disk."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

_OCTAL: Final = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """One line of ``/proc/self/mountinfo``: the directory ``root`` of ``device`` is at ``point``."""

    device: str
    root: str
    point: str


def mounts(table: Path = Path("/proc/self/mountinfo")) -> tuple[Mount, ...]:
    """The mounts that this process sees; empty if the system does not list them."""
    try:
        lines = table.read_bytes().decode("utf-8", "surrogateescape").splitlines()
    except OSError:
        return ()
    rows = (line.split(" ") for line in lines)
    return tuple(Mount(row[2], _plain(row[3]), _plain(row[4])) for row in rows if len(row) > 5)


def second_paths(path: str, known: Iterable[Mount]) -> set[str]:
    """The other paths to ``path`` (absolute, without links), or to a part of what is below it."""
    table = tuple(known)
    # Of several mounts at one point the last one is visible.
    points = [each for each in reversed(table) if is_in(path, each.point)]
    if not points:
        return set()
    own = max(points, key=lambda each: len(each.point))
    inner = _joined(own.root, os.path.relpath(path, own.point))
    same = [each for each in table if each.device == own.device]
    found = {_joined(m.point, os.path.relpath(inner, m.root)) for m in same if is_in(inner, m.root)}
    return (found | {m.point for m in same if is_in(m.root, inner)}) - {path}


def _joined(folder: str, below: str) -> str:
    return os.path.normpath(os.path.join(folder, below))  # noqa: PTH118 - words, no files


def is_in(path: str, folder: str) -> bool:
    """Whether ``path`` is ``folder`` or lies below it; both are whole paths without links."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _plain(word: str) -> str:
    """A path of the table, with octal numbers decoded (for blanks and similar characters)."""
    return _OCTAL.sub(lambda found: chr(int(found[1], 8)), word)
