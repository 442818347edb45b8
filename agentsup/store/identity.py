"""Whether the file in the store's location is the recorded store: pure comparison, no I/O.

The record beside the store (``store.record``) is compared with the file before it is opened, and
again when its write-ahead log has been read. Serves P1 and P2: with a store that is missing, older
or without its log, work would be lost and finished work would be done again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from agentsup.model.errors import StoreLost


class StoreCondition(StrEnum):
    """Knowledge about the write-ahead log beside the file."""

    CLOSED = "closed"
    """The file is complete; no log belongs to it."""
    OPENING = "opening"
    """A start was in progress: there may be a log or none."""
    OPEN = "open"
    """In use: there is a log, unless the file is marked as cleanly closed."""


class IdentityDoubt(StrEnum):
    """The defect of the present file; the fact ``reason`` of ``StoreLost``."""

    MISSING = "missing"
    EMPTIED = "emptied"
    OLDER = "older"
    WITHOUT_LOG = "without_log"
    FOREIGN_LOG = "foreign_log"
    OTHER_STORE = "other_store"
    BACKUP = "backup"


@dataclass(frozen=True, slots=True)
class RecordedIdentity:
    """The recorded identity. ``generation`` counts starts on this store; 0: none completed."""

    store_id: str
    generation: int
    folded: int
    """The generation that is in the file itself, without its log."""
    sequence: int
    """The last durable event number at that time."""
    condition: StoreCondition
    at: int
    """Wall time of the record in ms."""


@dataclass(frozen=True, slots=True)
class StoreFile:
    """The identity that the database itself holds, read without its log or with it."""

    store_id: str
    generation: int
    is_clean: bool
    copied_at: int | None = None
    """When this copy was made, in ms, if it is a backup."""
    sequence: int = 0


def before_opening(
    past: RecordedIdentity | None,
    *,
    size: int | None,
    log_bytes: int,
    main: StoreFile | None,
    seen: bool,
) -> IdentityDoubt | None:
    """Why the file must not be opened, or None.

    ``size`` is that of the file, None without one; ``log_bytes`` is the size of its log, 0 without
    one; ``main`` is read without the log, None if it can't be read (the opening itself reports
    damage). ``seen``: other files of the home show that there was a store.
    """
    if not size:
        is_first = past.generation == 0 if past is not None else not seen
        if is_first:
            return IdentityDoubt.FOREIGN_LOG if log_bytes else None
        return IdentityDoubt.MISSING if size is None else IdentityDoubt.EMPTIED
    if main is not None and main.copied_at is not None:
        return IdentityDoubt.BACKUP
    if past is None or past.generation == 0 or main is None:
        return None
    if main.store_id and main.store_id != past.store_id:
        return IdentityDoubt.OTHER_STORE
    if main.generation < past.folded:
        return IdentityDoubt.OLDER
    if past.condition is StoreCondition.CLOSED and log_bytes:
        return IdentityDoubt.FOREIGN_LOG
    is_whole = main.is_clean and main.generation >= past.generation
    if past.condition is StoreCondition.OPEN and not log_bytes and not is_whole:
        return IdentityDoubt.WITHOUT_LOG
    return None


def when_read(past: RecordedIdentity | None, found: StoreFile) -> IdentityDoubt | None:
    """As ``before_opening``, for the database read together with its log."""
    if past is None or past.generation == 0:
        return None
    if found.store_id and found.store_id != past.store_id:
        return IdentityDoubt.OTHER_STORE
    if found.generation < past.generation or found.sequence < past.sequence:
        return IdentityDoubt.OLDER
    return None


_LOST: dict[IdentityDoubt, str] = {
    IdentityDoubt.MISSING: "{path} is missing, and this home had a store",
    IdentityDoubt.EMPTIED: "{path} is empty, and this home had a store",
    IdentityDoubt.OLDER: "{path} is older than the store that was here",
    IdentityDoubt.WITHOUT_LOG: (
        "{path}-wal is missing: the daemon did not close the store, and the last changes stood there"
    ),
    IdentityDoubt.FOREIGN_LOG: "{path}-wal belongs to another file: it would be mixed into this one",
    IdentityDoubt.OTHER_STORE: "{path} is the store of another home",
    IdentityDoubt.BACKUP: "{path} is a backup that was copied here by hand",
}
_ACCEPTED: dict[IdentityDoubt, str] = {
    IdentityDoubt.MISSING: "starts with an empty store",
    IdentityDoubt.EMPTIED: "starts with an empty store",
    IdentityDoubt.FOREIGN_LOG: "puts that file aside and starts with the rest",
}


def refusal(
    path: Path,
    doubt: IdentityDoubt,
    past: RecordedIdentity | None,
    last_good: tuple[Path, int] | None,
    *,
    is_cut: bool = False,
) -> StoreLost:
    """A ``StoreLost`` that names what is missing, the newest backup, and both remedies.

    ``last_good`` is that backup and when it was made, in ms. ``is_cut``: the home was being
    restored from an archive.
    """
    command = f"agentsup --home {path.parent}"
    sentence = _LOST[doubt].format(path=path)
    if is_cut:
        sentence += ": a restore of this home was interrupted, run it again with the same file"
    if past is not None and past.at:
        sentence += f" (last seen whole at {clock_time(past.at)})"
    if last_good is None:
        restore = "There is no backup in backups/."
    else:
        restore = (
            f"The newest backup is {last_good[0].name}, of {clock_time(last_good[1])}: "
            f"`{command} restore` goes back to it."
        )
    accepted = _ACCEPTED.get(doubt, "takes the file as it is: what it lacks is gone")
    return StoreLost(
        f"{sentence}; nothing was started. Put the right files back, if you have them. {restore} "
        f"`{command} run --accept-store` (or `up`) {accepted}, and finished work may be done again.",
        reason=doubt.value,
        path=str(path),
        last_good_backup=None if last_good is None else str(last_good[0]),
    )


def clock_time(at_ms: int) -> str:
    """A wall time in ms as people read it, in UTC."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
