"""A whole home as one archive: what of it goes in, and how it is written beside a running daemon."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

from agentsup.cli.archives.writing import write_archive
from agentsup.config import TEMPORARY_MARK, Home
from agentsup.kit.archive.contents import Contents
from agentsup.kit.archive.packing import Packer
from agentsup.store import copy_to, identity, restoring

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
    """Whether only the owner may read it, whatever its mode was: keys and tokens."""
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
