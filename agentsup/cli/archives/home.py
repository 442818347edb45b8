"""A whole home as one archive: how it is written beside a running daemon, and put in place of a home.

What stood in the home is moved to ``backups/aside-TIME``, the store first; the store of the archive
comes last. So a home whose restore was interrupted has no store, which every start refuses, and the
same command can be run again. ``replace_home`` blocks, and needs the lock of the home.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

from agentsup import __version__
from agentsup.cli.connect.failure import CommandFailed
from agentsup.config import TEMPORARY_MARK, Home
from agentsup.kit.archive.contents import ArchiveRefused, Contents
from agentsup.kit.archive.packing import Packer, packed
from agentsup.kit.archive.unpacking import check, unpack
from agentsup.kit.files import HomeLock, HomeLocked
from agentsup.kit.safe_files import GuardedFolder
from agentsup.store import copy_to, identity, restoring, stamp, whole_file

_BIGGEST: Final = 2**50


def write_archive(
    target: Path, kind: str, at_ms: int, fill: Callable[[Packer], Mapping[str, Any]]
) -> Contents:
    """Write what ``fill`` adds into the new file ``target``, with the facts that it returns.

    Raises ``FileExistsError``, ``OSError``, ``ArchiveRefused``, and what ``fill`` raises; then there
    is no such file.
    """
    if target.exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    with whole_file(target) as partial:
        with packed(partial) as packer:
            facts = fill(packer)
            written = packer.finish(
                {**facts, "kind": kind, "agentsup": __version__, "made_at": at_ms}
            )
        if check(partial, limit=_BIGGEST).entries != written.entries:
            raise ArchiveRefused("what was read back is not what was written")
    return written


HOME: Final = "home"
"""The ``kind`` of an archive of a whole home."""
STORE: Final = "state.db"


def stays_out(home: Home) -> Callable[[str], bool]:
    """Chooses what does not belong into an archive: what only a running daemon means, copies, logs,
    and the store itself, of which a consistent copy is put in."""
    store = home.state_db.name
    names = {
        *(store, f"{store}-wal", f"{store}-shm", f"{store}-reserve"),
        *(identity.path_beside(home.state_db).name, home.daemon_json.name),
        *(home.lock.name, home.keeper.name, home.logs.name, home.backups.name),
        *(TEMPORARY_MARK, identity.UNPACKED),
    }
    return lambda path: path in names


def is_closed(path: str) -> bool:
    """Whether the path holds keys or tokens. Only the owner may read it, whatever its mode was."""
    top = path.partition("/")[0]
    return top in {"secrets", "environment", "api.token", STORE}


def _is_of_people(path: str) -> bool:
    """Whether people alone put links there; a link to a file is taken along as that file."""
    return PurePosixPath(path).parts[0] not in {"agents", "tasks"}


def back_up(home: Home, target: Path, *, at_ms: int) -> Contents:
    """Write the whole home into the new file ``target``, whether or not a daemon runs.

    The store comes first, so that the files it names are there. The archive is read back and
    compared before it gets its name. Raises ``FileExistsError``, ``OSError``, ``ArchiveRefused``,
    ``StoreUnavailable``, ``StoreCorrupt``.
    """
    copy = target.with_name(f"{target.name}.store")
    out = stays_out(home)
    ours = {str(target.absolute()), str(copy.absolute()), f"{target.absolute()}.partial"}

    def fill(packer: Packer) -> Mapping[str, Any]:
        facts = _add_store(packer, home, copy, at_ms) if home.state_db.exists() else {}
        packer.tree(
            home.root,
            skips=lambda path: out(path) or str(home.root / path) in ours,
            follows=_is_of_people,
        )
        return facts

    return write_archive(target, HOME, at_ms, fill)


def _add_store(packer: Packer, home: Home, copy: Path, at_ms: int) -> Mapping[str, Any]:
    copy.unlink(missing_ok=True)  # of a process that was killed
    try:
        copy_to(home.state_db, copy, at_ms=at_ms)
        holds = restoring.unfinished(copy)
        with copy.open("rb") as source:
            size = copy.stat().st_size
            packer.file(STORE, source, mode=0o600, changed_ns=at_ms * 10**6, size=size)
    finally:
        copy.unlink(missing_ok=True)
    return {"messages": holds.messages, "unfinished": holds.unfinished}


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


def problem_of(home: Home) -> str:
    """Why the folder is not to be removed; empty if it is a home."""
    root = home.root
    if not root.is_dir():
        return "there is no such folder"
    real = root.resolve()
    if (
        real == Path.home().resolve()
        or real == Path(real.anchor)
        or Path.cwd().is_relative_to(real)
    ):
        return "it is no folder of its own, or you are in it"
    if not (home.state_db.exists() or home.agents_json.exists()):
        return "it is no home of agentsup"
    return ""


def remove_home(home: Home) -> None:
    """Remove the home and all in it; links are removed, not followed. Raises ``CommandFailed``."""
    folder = GuardedFolder(home.root)
    try:
        with HomeLock(home.lock):
            while found := folder.list("", 1000)[0]:
                for name, _ in found:
                    folder.remove_tree(name, lambda: True)
        if home.root.is_symlink():
            home.root.resolve().rmdir()
            home.root.unlink()
        else:
            home.root.rmdir()
    except HomeLocked as error:
        raise CommandFailed(f"{error}; the home stays") from None
    except OSError as error:
        raise CommandFailed(
            f"{home.root} is not removed as a whole: {error.filename or ''} {error.strerror}"
        ) from None
