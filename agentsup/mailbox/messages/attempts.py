"""The record of failed attempts at a message: what was tried, and what was done next."""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace

from agentsup.store import Reader, Tx

ANEW = "requeued"
"""The ``act`` that marks a message which a person queued again: earlier attempts don't count."""
MAX_TEXT = 500


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One attempt.

    ``tier`` is the agent's model that was used, ``failure_kind`` the kind of failure, ``act`` what was
    done next.
    """

    message_id: str
    tier: str
    engine: str
    provider: str
    model: str
    failure_kind: str
    code: str
    text: str
    act: str
    at: int


_COLUMNS = "message_id, tier, engine, provider, model, trouble, code, text, act, at"


def record_tx(tx: Tx, row: AttemptRow) -> None:
    """Record one attempt."""
    tx.execute(
        f"INSERT INTO attempts ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - a constant
        astuple(replace(row, text=row.text[:MAX_TEXT])),
    )


def reset_attempts_tx(tx: Tx, message_id: str, at: int) -> None:
    """Let the attempts until now no longer count."""
    record_tx(tx, AttemptRow(message_id, "", "", "", "", "", "", "", ANEW, at))


def of_message(reader: Reader, message_id: str) -> tuple[AttemptRow, ...]:
    """The attempts that count, oldest first."""
    rows = reader.values(
        lambda row: AttemptRow(*row),
        f"SELECT {_COLUMNS} FROM attempts WHERE message_id = ? ORDER BY attempt_id",  # noqa: S608 - a constant
        (message_id,),
    )
    last = max((index for index, row in enumerate(rows) if row.act == ANEW), default=-1)
    return tuple(rows[last + 1 :])


def note_model_notice_tx(tx: Tx, session_id: str, *, on_fallback: bool, at: int) -> bool:
    """Record which model answered in a session; True if a notice of the fallback is due now.

    It is due once until the primary model answers again.
    """
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


def note_wait_notice_tx(tx: Tx, message_id: str, at: int) -> bool:
    """Record the notice that a message waits; False if there was one before."""
    return bool(
        tx.execute(
            "INSERT INTO wait_told (message_id, at) VALUES (?, ?) ON CONFLICT DO NOTHING",
            (message_id, at),
        ).rowcount
    )
