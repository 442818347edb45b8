"""Whether the file at the store's place is the store that was there: pure comparison, no I/O.

What is remembered beside the store (`store.record`) is held against what is found before the file
is opened, and once more when its write-ahead log has been read. Serves P1 and P2: a store that is
gone, older or without its log would lose work, and do finished work again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from agentsup.model.errors import StoreLost

__all__ = [
    "Condition",
    "Doubt",
    "MainFile",
    "Remembered",
    "before_opening",
    "refusal",
    "when_read",
]


class Condition(StrEnum):
    """What is known of the write-ahead log beside the file."""

    CLOSED = "closed"
    """The file is whole; no log belongs to it."""
    OPENING = "opening"
    """A start was under way: there may be a log or none."""
    OPEN = "open"
    """In use: there is a log, unless the file says that it was closed in order."""


class Doubt(StrEnum):
    """What is wrong with the store that is there; the fact `reason` of `StoreLost`."""

    MISSING = "missing"
    EMPTIED = "emptied"
    OLDER = "older"
    WITHOUT_LOG = "without_log"
    FOREIGN_LOG = "foreign_log"
    OTHER_STORE = "other_store"
    BACKUP = "backup"


@dataclass(frozen=True, slots=True)
class Remembered:
    """What was noted last. `generation` counts the starts on this store; 0: none was completed."""

    store_id: str
    generation: int
    folded: int
    """The generation that stands in the file itself, without its log."""
    sequence: int
    """The last event that was durable then."""
    condition: Condition
    at: int
    """Wall time of the note in ms."""


@dataclass(frozen=True, slots=True)
class MainFile:
    """What the database says of itself: read without its log, or with it."""

    store_id: str
    generation: int
    is_clean: bool
    copied_at: int | None = None
    """When this copy was made, in ms, where it is a backup."""
    sequence: int = 0


def before_opening(
    past: Remembered | None, *, size: int | None, log_bytes: int, main: MainFile | None, seen: bool
) -> Doubt | None:
    """What speaks against opening the file, or None.

    `size` of the file, None without one; `log_bytes` of its log, 0 without one; `main` is read
    without the log, None where that can't be read (damage is told by the opening itself). `seen`:
    the home shows by other things that there was a store.
    """
    if not size:
        is_first = past.generation == 0 if past is not None else not seen
        if is_first:
            return Doubt.FOREIGN_LOG if log_bytes else None
        return Doubt.MISSING if size is None else Doubt.EMPTIED
    if main is not None and main.copied_at is not None:
        return Doubt.BACKUP
    if past is None or past.generation == 0 or main is None:
        return None
    if main.store_id and main.store_id != past.store_id:
        return Doubt.OTHER_STORE
    if main.generation < past.folded:
        return Doubt.OLDER
    if past.condition is Condition.CLOSED and log_bytes:
        return Doubt.FOREIGN_LOG
    is_whole = main.is_clean and main.generation >= past.generation
    if past.condition is Condition.OPEN and not log_bytes and not is_whole:
        return Doubt.WITHOUT_LOG
    return None


def when_read(past: Remembered | None, found: MainFile) -> Doubt | None:
    """As `before_opening`, of the database read together with its log."""
    if past is None or past.generation == 0:
        return None
    if found.store_id and found.store_id != past.store_id:
        return Doubt.OTHER_STORE
    if found.generation < past.generation or found.sequence < past.sequence:
        return Doubt.OLDER
    return None


_LOST: dict[Doubt, str] = {
    Doubt.MISSING: "{path} is missing, and this home had a store",
    Doubt.EMPTIED: "{path} is empty, and this home had a store",
    Doubt.OLDER: "{path} is older than the store that was here",
    Doubt.WITHOUT_LOG: (
        "{path}-wal is missing: the daemon did not close the store, and the last changes stood there"
    ),
    Doubt.FOREIGN_LOG: "{path}-wal belongs to another file: it would be mixed into this one",
    Doubt.OTHER_STORE: "{path} is the store of another home",
    Doubt.BACKUP: "{path} is a backup that was copied here by hand",
}
_ACCEPTED: dict[Doubt, str] = {
    Doubt.MISSING: "starts with an empty store",
    Doubt.EMPTIED: "starts with an empty store",
    Doubt.FOREIGN_LOG: "puts that file aside and starts with the rest",
}


def refusal(
    path: Path, doubt: Doubt, past: Remembered | None, last_good: tuple[Path, int] | None
) -> StoreLost:
    """A `StoreLost` that says what is missing, the newest backup, and both ways on.

    `last_good` is that backup and when it was made, in ms.
    """
    command = f"agentsup --home {path.parent}"
    sentence = _LOST[doubt].format(path=path)
    if past is not None and past.at:
        sentence += f" (last seen whole at {_clock_time(past.at)})"
    if last_good is None:
        restore = "There is no backup in backups/."
    else:
        restore = (
            f"The newest backup is {last_good[0].name}, of {_clock_time(last_good[1])}: "
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


def _clock_time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
