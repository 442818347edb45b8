"""Quarantine: received updates that could not be handled, to be inspected, retried or dropped."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from agentsup.channels.core.receiving.rows import SkipReason
from agentsup.model.errors import Conflict, NotFound
from agentsup.store import Reader, Tx

_COLUMNS: Final = "row_id, channel, account, error, raw, at, state"


@dataclass(frozen=True, slots=True)
class QuarantinedUpdate:
    """One update or event. ``account`` is the bot's id on the platform; ``at`` is wall ms."""

    update_id: str
    channel: str
    account: str
    error: str
    raw: str
    at: int
    state: str


def name_of(channel: str, row_id: int) -> str:
    """Return the id by which people name it, such as ``telegram.12``."""
    return f"{channel}.{row_id}"


def topic(channel: str, account: str) -> str:
    """Return the store topic that is touched when an update of a bot was released or dropped."""
    return f"poison:{channel}:{account}"


def latest(reader: Reader, *, limit: int) -> list[QuarantinedUpdate]:
    """Return the latest quarantined updates of all channels, newest first."""
    rows = reader.all(
        f"SELECT {_COLUMNS} FROM received WHERE state = 'quarantined'"  # noqa: S608 - constants
        " ORDER BY at DESC, row_id DESC LIMIT ?",
        (limit,),
    )
    return [_update(each) for each in rows]


def find(reader: Reader, update_id: str) -> QuarantinedUpdate:
    """Return the update with that id, in any state. Raises ``NotFound``."""
    channel, _, number = update_id.partition(".")
    if number.isascii() and number.isdecimal() and len(number) < 19:
        row = reader.one(
            f"SELECT {_COLUMNS} FROM received WHERE row_id = ? AND channel = ?",  # noqa: S608 - constants
            (int(number), channel),
        )
        if row is not None:
            return _update(row)
    raise NotFound(f"there is no update {update_id} in quarantine", poison_id=update_id)


def _update(found: Iterable[Any]) -> QuarantinedUpdate:
    row_id, channel, *rest = found
    return QuarantinedUpdate(name_of(channel, row_id), channel, *rest)


def retry_tx(tx: Tx, update_id: str) -> QuarantinedUpdate:
    """Release an update to be handled again; a bot that does not run does so at its next start.

    Raises ``NotFound``, and ``Conflict`` if the update is not in quarantine.
    """
    return _end_tx(tx, update_id, "state = 'received', begun = 0, retry_requested = 1")


def drop_tx(tx: Tx, update_id: str) -> QuarantinedUpdate:
    """Give an update up for good. Raises ``NotFound``, and ``Conflict`` as ``retry_tx`` does."""
    dropped = f"state = 'skipped', begun = 0, skip_reason = '{SkipReason.DROPPED_BY_OPERATOR}'"
    return _end_tx(tx, update_id, dropped)


def _end_tx(tx: Tx, update_id: str, changes: str) -> QuarantinedUpdate:
    """Take an update out of quarantine by ``changes`` of its row, in SQL."""
    one = find(tx, update_id)
    if one.state != "quarantined":
        raise Conflict(f"{update_id} is not in quarantine: it is {one.state}", poison_id=update_id)
    row_id = int(one.update_id.partition(".")[2])
    tx.execute(f"UPDATE received SET {changes} WHERE row_id = ?", (row_id,))  # noqa: S608 - constants
    tx.touch(topic(one.channel, one.account))
    return find(tx, one.update_id)
