"""Mounts, and the other paths to a file: over a bind mount, a subvolume, or a second mount of the
same disk."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
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
        text = table.read_bytes().decode("utf-8", "surrogateescape")
    except OSError:
        return ()
    return tuple(parse(text.splitlines()))


def parse(lines: Iterable[str]) -> Iterator[Mount]:
    """The mounts in the lines of a table; lines that can't be parsed are skipped."""
    for line in lines:
        fields = line.split(" ")
        if len(fields) > 5:
            yield Mount(fields[2], _plain(fields[3]), _plain(fields[4]))


def second_paths(path: str, known: Iterable[Mount]) -> set[str]:
    """The other paths to ``path`` (absolute, without links), or to a part of what is below it."""
    table = tuple(known)
    # Of several mounts at one point the last one is visible.
    own = max(
        (each for each in reversed(table) if is_in(path, each.point)),
        key=lambda each: len(each.point),
        default=None,
    )
    if own is None:
        return set()
    inner = _joined(own.root, os.path.relpath(path, own.point))
    found: set[str] = set()
    for each in table:
        if each.device != own.device:
            continue
        if is_in(inner, each.root):
            found.add(_joined(each.point, os.path.relpath(inner, each.root)))
        elif is_in(each.root, inner):
            found.add(each.point)
    return found - {path}


def _joined(folder: str, below: str) -> str:
    return os.path.normpath(os.path.join(folder, below))  # noqa: PTH118 - words, no files


def is_in(path: str, folder: str) -> bool:
    """Whether ``path`` is ``folder`` or lies below it; both are whole paths without links."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _plain(word: str) -> str:
    """A path of the table, with octal numbers decoded (for blanks and similar characters)."""
    return _OCTAL.sub(lambda found: chr(int(found[1], 8)), word)
