"""What a platform gave us and nobody could handle: kept to be looked at, tried again, or dropped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from agentsup.model.errors import Conflict, NotFound
from agentsup.store.database import Reader, Tx

__all__ = ["Poison", "drop_tx", "find", "latest", "name_of", "of_channel", "retry_tx", "topic"]

_ERROR_CHARS: Final = 500
_SOURCES: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {"telegram": ("updates", "bot_id"), "matrix": ("matrix_events", "user_id")}
)
"""Channel to the table of what it gave, and the column that says to whom."""


@dataclass(frozen=True, slots=True)
class Poison:
    """One update or event. ``account`` is the bot's id on the platform; ``at`` is wall ms."""

    poison_id: str
    channel: str
    account: str
    error: str
    raw: str
    at: int
    state: str


def name_of(channel: str, row_id: int) -> str:
    """What people call it by: ``telegram.12``."""
    return f"{channel}.{row_id}"


def topic(channel: str, account: str) -> str:
    """Touched when something of a bot is to be tried again, or was dropped."""
    return f"poison:{channel}:{account}"


def of_channel(reader: Reader, channel: str, *, limit: int) -> list[Poison]:
    """The latest of a channel, newest first."""
    table, account = _SOURCES[channel]
    rows = reader.all(
        f"SELECT row_id, {account}, error, raw, at, state FROM {table}"  # noqa: S608 - constants
        " WHERE state = 'quarantined' ORDER BY row_id DESC LIMIT ?",
        (limit,),
    )
    return [Poison(name_of(channel, row[0]), channel, *row[1:]) for row in rows]


def latest(reader: Reader, *, limit: int) -> list[Poison]:
    """The latest of all channels, newest first."""
    found = [each for channel in _SOURCES for each in of_channel(reader, channel, limit=limit)]
    return sorted(found, key=lambda each: each.at, reverse=True)[:limit]


def find(reader: Reader, poison_id: str) -> Poison:
    """The one of that name, in whatever state it is. Raises ``NotFound``."""
    channel, _, number = poison_id.partition(".")
    if channel in _SOURCES and number.isascii() and number.isdecimal() and len(number) < 19:
        table, account = _SOURCES[channel]
        row = reader.one(
            f"SELECT {account}, error, raw, at, state FROM {table} WHERE row_id = ?",  # noqa: S608 - constants
            (int(number),),
        )
        if row is not None:
            return Poison(name_of(channel, int(number)), channel, *row)
    raise NotFound(f"nothing that was set aside is called {poison_id}", poison_id=poison_id)


def retry_tx(tx: Tx, poison_id: str) -> Poison:
    """Handle it as if it came now; a bot that does not run does so at its next start.

    Raises ``NotFound`` and ``Conflict``.
    """
    return _end(tx, poison_id, "received", "tried again: ")


def drop_tx(tx: Tx, poison_id: str) -> Poison:
    """Give it up for good. Raises ``NotFound`` and ``Conflict``."""
    return _end(tx, poison_id, "skipped", "dropped: ")


def _end(tx: Tx, poison_id: str, state: str, prefix: str) -> Poison:
    one = find(tx, poison_id)
    if one.state != "quarantined":
        raise Conflict(f"{poison_id} is not set aside: it is {one.state}", poison_id=poison_id)
    table, _ = _SOURCES[one.channel]
    # The error stays, so that the bot finds what is to be tried again.
    tx.execute(
        f"UPDATE {table} SET state = ?, begun = 0, error = substr(? || error, 1, ?)"  # noqa: S608 - constants
        " WHERE row_id = ?",
        (state, prefix, _ERROR_CHARS, int(poison_id.partition(".")[2])),
    )
    tx.touch(topic(one.channel, one.account))
    return find(tx, poison_id)
