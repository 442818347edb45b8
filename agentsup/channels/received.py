"""Files that people send: a place in the agent's workspace, under a name that is safe."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Final

from agentsup.kit.normal_form import normal_form
from agentsup.kit.planted import Folder
from agentsup.kit.pool import BoundedPool

__all__ = ["FOLDER", "Landing", "Write", "safe_name", "sweep", "swept"]

_log = logging.getLogger(__name__)

FOLDER: Final = "inbox"
Write = Callable[[bytes], Awaitable[object]]
"""Takes a piece of a file; raises ``OSError``."""
_MAX_NAME: Final = 100
_NAMED_CHARS: Final = 4_096
"""Of a name as it was given; no path is longer."""
_NAMES: Final = 10_000
_LOOKED_AT: Final = 100_000
"""Entries of one folder that a sweep looks at."""
_UNSAFE = re.compile(r"[^\w.+=@-]+")


def safe_name(name: str) -> str:
    """``name`` as one harmless segment of a path, recognisable, its ending kept."""
    plain = normal_form(name[-_NAMED_CHARS:]).replace("\\", "/").rpartition("/")[2]
    plain = _UNSAFE.sub("_", plain).lstrip(".-").rstrip(". ")
    stem, dot, ending = plain.rpartition(".")
    if not dot:
        stem, ending = plain, ""
    ending = ending[:16]
    while len(f"{stem}.{ending}".encode()) > _MAX_NAME:
        stem = stem[:-1]
    return (f"{stem}.{ending}" if ending else stem) or "file"


class Landing:
    """A file on its way into a workspace, in which an agent may plant what it likes.

    What is written goes into a file of ours under a name that nobody can foresee, never through a
    link; it gets its own name when it is whole. All methods block.
    """

    def __init__(self, workspace: Path, *, owner: str, token: str) -> None:
        """``owner`` names whose unfinished files a ``sweep`` finds; ``token`` is a secret for this
        one file. What stands in the folder's place and is none is set aside. Raises ``OSError``."""
        self._part = f"{_part_of(owner)}{token}"
        self._path = workspace / FOLDER
        place = Folder(workspace)
        if aside := place.clear(FOLDER):
            _log.warning("%s of %s was set aside as %s", FOLDER, workspace.parent.name, aside)
        with place.directory((FOLDER,)) as folder:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(self._part, flags, 0o644, dir_fd=folder)
            # From here on it is this very directory, wherever its name leads later.
            self._folder = os.dup(folder)
        self.out: IO[bytes] = os.fdopen(descriptor, "wb")
        """Where the content goes."""
        self._is_closed = False

    def keep(self, name: str, *, now_ms: int) -> Path:
        """It is whole: give it the first free name ``<date>-<safe name>``. Raises ``OSError``."""
        self.out.close()
        for wanted in _names(name, now_ms):
            try:
                os.link(
                    self._part,
                    wanted,
                    src_dir_fd=self._folder,
                    dst_dir_fd=self._folder,
                    follow_symlinks=False,
                )
            except FileExistsError:
                continue
            return self._path / wanted
        raise OSError(0, f"too many files are called {name}")

    def close(self) -> None:
        """Leave nothing unfinished behind. Never raises; a second time does nothing."""
        if self._is_closed:
            return  # by now the number may name a file of somebody else
        self._is_closed = True
        for step in (
            self.out.close,
            lambda: os.unlink(self._part, dir_fd=self._folder),
            lambda: os.close(self._folder),
        ):
            try:
                step()
            except OSError:
                continue


def sweep(workspace: Path, *, owner: str) -> int:
    """Remove what lives that were killed have left unfinished; how many there were. Blocks.

    An agent may have put a link in place of the folder, or of a file in it: none is followed, and
    only plain files under ``owner``'s own names go; a huge folder is looked at in part.
    """
    count, place = 0, Folder(workspace)
    try:
        with place.directory((FOLDER,)) as folder, os.scandir(folder) as entries:
            left = [
                each.name
                for each in islice(entries, _LOOKED_AT)
                if each.name.startswith(_part_of(owner)) and each.is_file(follow_symlinks=False)
            ]
        for name in left:
            count += place.remove(f"{FOLDER}/{name}")
    except OSError:
        return count
    return count


async def swept(
    workspace: Path, *, owner: str, files: BoundedPool, limit_s: float | None = None
) -> None:
    """``sweep`` in the pool. What does not answer is left as it is."""
    step = partial(sweep, workspace, owner=owner)
    try:
        await files.run(step, key=workspace.parent.name, limit_s=limit_s)
    except OSError as error:
        _log.warning("unfinished files of %s stay: %s", workspace.parent.name, error)


def _part_of(owner: str) -> str:
    return f".agentsup-{_UNSAFE.sub('_', owner)}-"


def _names(name: str, now_ms: int) -> list[str]:
    """The names to try, in order."""
    day = time.strftime("%Y-%m-%d", time.gmtime(now_ms / 1000))
    wanted = f"{day}-{safe_name(name)}"
    stem, dot, ending = wanted.rpartition(".")
    if not dot:
        stem, ending = wanted, ""
    return [wanted, *(f"{stem}-{number}{dot}{ending}" for number in range(2, _NAMES))]
