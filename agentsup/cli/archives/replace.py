"""Puts an archive in place of a home: unpacked and checked beside it first, then renamed.

What stood in the home is moved to ``backups/aside-TIME``, the store first; the store of the archive
comes last. So a home whose restore was interrupted has no store, which every start refuses, and the
same command can be run again. Everything here blocks, and needs the home's lock.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from agentsup.cli.archives.home import STORE, is_closed
from agentsup.config import Home
from agentsup.kit.archive.contents import Contents
from agentsup.kit.archive.unpacking import unpack
from agentsup.kit.safe_files import GuardedFolder
from agentsup.store import identity, restoring, stamp


def room_for(home: Home) -> int:
    """Number of bytes that may be unpacked for ``home``: those that are free, but for a reserve."""
    root = home.root
    while not root.exists():
        root = root.parent
    return max(0, shutil.disk_usage(root).free - 64 * 1024 * 1024)


def replace_home(home: Home, file: Path, contents: Contents, *, at_ms: int) -> Path | None:
    """Make the home what ``contents``, which ``check`` read from ``file``, says. Returns where what
    was there lies now, None if there was nothing.

    Raises ``ArchiveRefused``, ``OSError``, ``StoreCorrupt``, ``StoreUnavailable``; then the home is
    as it was.
    """
    fresh = home.root / identity.UNPACKED
    _forget(home)
    try:
        unpack(file, contents, fresh, closed=is_closed)
        if (fresh / STORE).exists():
            restoring.unfinished(fresh / STORE)
        return _swap(home, fresh, at_ms)
    finally:
        with contextlib.suppress(OSError):
            _forget(home)


def _forget(home: Home) -> None:
    """Remove what was unpacked, also by a restore that was killed."""
    folder = GuardedFolder(home.root)
    if folder.has(identity.UNPACKED):
        folder.remove_tree(identity.UNPACKED, lambda: True)


def _swap(home: Home, fresh: Path, at_ms: int) -> Path | None:
    """Move what is there aside and what is in ``fresh`` in; all of it back where that fails."""
    store, recorded = home.state_db, identity.path_beside(home.state_db)
    of_store = [store.name, f"{store.name}-wal", f"{store.name}-shm"]
    stays = {home.lock.name, home.keeper.name, home.logs.name, home.backups.name, identity.UNPACKED}
    there = {each.name for each in home.root.iterdir()} - stays - {recorded.name}
    past = identity.read_record(recorded)
    written = None
    if (fresh / STORE).exists():
        written = restoring.adopt(fresh / STORE, past, at_ms)
        _sync(fresh / STORE)
    aside = home.backups / f"aside-{stamp(at_ms)}"
    if there:
        home.backups.mkdir(mode=0o700, exist_ok=True)
        aside.mkdir(mode=0o700)
    moves = _Moves()
    try:
        for name in (each for each in of_store if each in there):
            moves.move(home.root / name, aside / name)
        if there and recorded.exists():
            shutil.copyfile(recorded, aside / recorded.name)
        if written is not None:
            identity.write(store, written)
        for name in sorted(there.difference(of_store)):
            moves.move(home.root / name, aside / name)
        if written is None:
            recorded.unlink(missing_ok=True)
        for path in sorted(fresh.iterdir(), key=lambda path: (path.name == STORE, path.name)):
            moves.move(path, home.root / path.name)
        for folder in (aside, home.backups, home.root):
            if folder.is_dir():
                _sync(folder)
    except OSError:
        moves.undo()
        if past is not None:
            identity.write(store, past)
        else:
            recorded.unlink(missing_ok=True)
        raise
    return aside if there else None


class _Moves:
    """Renames, which can be taken back."""

    def __init__(self) -> None:
        self._made: list[tuple[Path, Path]] = []

    def move(self, path: Path, to: Path) -> None:
        path.rename(to)
        self._made.append((path, to))

    def undo(self) -> None:
        for path, to in reversed(self._made):
            to.rename(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
