"""Files that people send: stored in the agent's workspace, under a safe name."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Final

from agentsup.kit.log import get_logger
from agentsup.kit.pool import BoundedPool
from agentsup.kit.safe_files import GuardedFolder
from agentsup.kit.text import normal_form

_log = get_logger(__name__)

FOLDER: Final = "inbox"
Write = Callable[[bytes], Awaitable[object]]
"""Writes the next bytes of a file; raises ``OSError``."""
Opened = Callable[[], Awaitable[Write]]
"""Opens the local file to write."""
_MAX_NAME: Final = 100
_NAMED_CHARS: Final = 4_096
"""Only so many last characters of a given name are read; no path is longer."""
_NAMES: Final = 10_000
_LOOKED_AT: Final = 100_000
"""Most entries of a folder that one sweep examines."""
_REMOVED_AT_ONCE: Final = 1_000
_RECEIVED = re.compile(r"\d{4}-\d\d-\d\d-.")
"""The names that ``InboxFolder.keep`` gives to files."""
_UNSAFE = re.compile(r"[^\w.+=@-]+")


def safe_name(name: str) -> str:
    """Return ``name`` as one harmless path segment; it stays recognisable and keeps its ending."""
    plain = normal_form(name[-_NAMED_CHARS:]).replace("\\", "/").rpartition("/")[2]
    plain = _UNSAFE.sub("_", plain).lstrip(".-").rstrip(". ")
    stem, dot, ending = plain.rpartition(".")
    if not dot:
        stem, ending = plain, ""
    ending = ending[:16]
    while len(f"{stem}.{ending}".encode()) > _MAX_NAME:
        stem = stem[:-1]
    return (f"{stem}.{ending}" if ending else stem) or "file"


class InboxFolder:
    """A file that is being written into a workspace, whose content the agent controls.

    The content goes into a temporary file with an unpredictable name, never through a link; the
    file gets its final name when it is whole. All methods block.
    """

    def __init__(self, workspace: Path, *, owner: str, token: str) -> None:
        """``owner`` is the name by which ``sweep`` finds unfinished files.

        ``token`` is a secret for this one file. If ``inbox`` is no directory, it is renamed.
        Raises ``OSError``.
        """
        self._part = f"{_part_of(owner)}{token}"
        self._path = workspace / FOLDER
        guarded = GuardedFolder(workspace)
        if aside := guarded.clear(FOLDER):
            _log.warning(f"{FOLDER} of {workspace.parent.name} was set aside as {aside}")
        with guarded.directory((FOLDER,)) as folder:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(self._part, flags, 0o644, dir_fd=folder)
            # The descriptor stays on this directory, even if its name leads elsewhere later.
            self._folder = os.dup(folder)
        self.out: IO[bytes] = os.fdopen(descriptor, "wb")
        """The temporary file."""
        self._is_closed = False

    def keep(self, name: str, *, now_ms: int) -> Path:
        """Give the whole file the first free name ``<date>-<safe name>`` and return its path.

        Raises ``OSError``.
        """
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
        """Remove the temporary file. Never raises. A second call does nothing."""
        if self._is_closed:
            return  # by now the descriptor's number may belong to another file
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
    """Remove the unfinished files of lives that were killed; return how many there were. Blocks.

    An agent may have replaced the folder, or a file in it, by a link: no link is followed, and only
    regular files with ``owner``'s prefix are removed. Of a huge folder only a part is examined.
    """
    count, guarded = 0, GuardedFolder(workspace)
    try:
        with guarded.directory((FOLDER,)) as folder, os.scandir(folder) as entries:
            left = [
                each.name
                for each in islice(entries, _LOOKED_AT)
                if each.name.startswith(_part_of(owner)) and each.is_file(follow_symlinks=False)
            ]
        for name in left:
            count += guarded.remove(f"{FOLDER}/{name}")
    except OSError:
        return count
    return count


def remove_received(workspace: Path, *, before_s: float) -> int:
    """Remove files that people sent and nobody has changed since ``before_s``; return how many.

    Only plain files that have the name of a received one count, and no link is followed. Of a huge
    folder only a part is examined, and at most ``_REMOVED_AT_ONCE`` files are removed. Blocks.
    """
    count, guarded = 0, GuardedFolder(workspace)
    try:
        with guarded.directory((FOLDER,)) as folder, os.scandir(folder) as entries:
            old = [
                each.name
                for each in islice(entries, _LOOKED_AT)
                if _RECEIVED.match(each.name)
                and each.is_file(follow_symlinks=False)
                and each.stat(follow_symlinks=False).st_mtime < before_s
            ]
    except (FileNotFoundError, NotADirectoryError):
        return 0
    for name in old[:_REMOVED_AT_ONCE]:
        count += guarded.remove(f"{FOLDER}/{name}")
    return count


async def sweep_inbox(
    workspace: Path, *, owner: str, files: BoundedPool, limit_s: float | None = None
) -> None:
    """Run ``sweep`` in the pool, for at most ``limit_s`` seconds. A failure is only logged."""
    step = partial(sweep, workspace, owner=owner)
    try:
        await files.run(step, key=workspace.parent.name, limit_s=limit_s)
    except OSError as error:
        _log.warning(f"unfinished files of {workspace.parent.name} stay: {error}")


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
