"""Where a file system is mounted, and by which other paths a file is reached: a bind mount, a
subvolume, a second mount of the same disk."""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["Mount", "mounts", "parse", "second_paths"]

_OCTAL: Final = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """One line of ``/proc/self/mountinfo``: the directory ``root`` of ``device`` is at ``point``."""

    device: str
    root: str
    point: str


def mounts(table: Path = Path("/proc/self/mountinfo")) -> tuple[Mount, ...]:
    """What this process sees mounted; nothing where the system does not tell."""
    try:
        text = table.read_bytes().decode("utf-8", "surrogateescape")
    except OSError:
        return ()
    return tuple(parse(text.splitlines()))


def parse(lines: Iterable[str]) -> Iterator[Mount]:
    """The mounts of a table's lines; what can't be read is passed over."""
    for line in lines:
        fields = line.split(" ")
        if len(fields) > 5:
            yield Mount(fields[2], _plain(fields[3]), _plain(fields[4]))


def second_paths(path: str, known: Iterable[Mount]) -> set[str]:
    """The other paths under which ``path`` (absolute, without links), or a part of what is below it,
    is found."""
    table = tuple(known)
    # Of mounts at one point the last one is seen.
    own = max(
        (each for each in reversed(table) if _is_in(path, each.point)),
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
        if _is_in(inner, each.root):
            found.add(_joined(each.point, os.path.relpath(inner, each.root)))
        elif _is_in(each.root, inner):
            found.add(each.point)
    return found - {path}


def _joined(folder: str, below: str) -> str:
    return os.path.normpath(os.path.join(folder, below))  # noqa: PTH118 - words, no files


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _plain(word: str) -> str:
    """A path of the table, in which blanks and the like stand as octal numbers."""
    return _OCTAL.sub(lambda found: chr(int(found[1], 8)), word)
