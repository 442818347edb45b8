"""Failed attempts at a message, on record: what was tried, and what was done about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentsup.store.database import Reader, Tx

__all__ = [
    "AttemptRow",
    "begin_anew_tx",
    "of_message",
    "recent",
    "record_tx",
    "told_tx",
    "told_wait_tx",
]

ANEW = "requeued"
"""Marks that a person put the message back: what came before it no longer counts."""
MAX_TEXT = 500


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One attempt. ``tier`` says which of the agent's models it was made on, ``trouble`` what kind of
    failure it met, ``act`` what was done next."""

    message_id: str
    tier: str
    engine: str
    provider: str
    model: str
    trouble: str
    code: str
    text: str
    act: str
    at: int


_COLUMNS = "message_id, tier, engine, provider, model, trouble, code, text, act, at"


def record_tx(tx: Tx, row: AttemptRow) -> None:
    """Put one on record."""
    tx.execute(
        f"INSERT INTO attempts ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - a constant
        (
            row.message_id,
            row.tier,
            row.engine,
            row.provider,
            row.model,
            row.trouble,
            row.code,
            row.text[:MAX_TEXT],
            row.act,
            row.at,
        ),
    )


def begin_anew_tx(tx: Tx, message_id: str, at: int) -> None:
    """What was tried until now no longer counts."""
    record_tx(tx, AttemptRow(message_id, "", "", "", "", "", "", "", ANEW, at))


def of_message(reader: Reader, message_id: str) -> tuple[AttemptRow, ...]:
    """Those that count, oldest first."""
    rows = _rows(
        reader.all(
            f"SELECT {_COLUMNS} FROM attempts WHERE message_id = ? ORDER BY attempt_id",  # noqa: S608 - a constant
            (message_id,),
        )
    )
    last = max((index for index, row in enumerate(rows) if row.act == ANEW), default=-1)
    return tuple(rows[last + 1 :])


def recent(reader: Reader, since_at: int, *, limit: int = 1000) -> tuple[AttemptRow, ...]:
    """All since a time (wall ms), newest first."""
    return tuple(
        _rows(
            reader.all(
                f"SELECT {_COLUMNS} FROM attempts WHERE at >= ? AND act <> ?"  # noqa: S608 - a constant
                " ORDER BY attempt_id DESC LIMIT ?",
                (since_at, ANEW, limit),
            )
        )
    )


def told_tx(tx: Tx, session_id: str, *, on_fallback: bool, at: int) -> bool:
    """Note which model answered in a session; True where its people must be told of the fallback
    now, which is once until the primary answers again."""
    if on_fallback:
        return bool(
            tx.execute(
                "INSERT INTO fallback_told (session_id, at) VALUES (?, ?) ON CONFLICT DO NOTHING",
                (session_id, at),
            ).rowcount
        )
    if tx.scalar("SELECT 1 FROM fallback_told WHERE session_id = ?", (session_id,)):
        tx.execute("DELETE FROM fallback_told WHERE session_id = ?", (session_id,))
    return False


def told_wait_tx(tx: Tx, message_id: str, at: int) -> bool:
    """Note that the people of a message are told of its wait; False where they were before."""
    return bool(
        tx.execute(
            "INSERT INTO wait_told (message_id, at) VALUES (?, ?) ON CONFLICT DO NOTHING",
            (message_id, at),
        ).rowcount
    )


def _rows(rows: Sequence[object]) -> list[AttemptRow]:
    return [AttemptRow(*row) for row in rows]  # type: ignore[misc]  # a Row unpacks like a tuple
