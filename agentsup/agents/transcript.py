"""What was said in a session: our own rows are the truth; an engine's state is a copy beside it."""

from __future__ import annotations

import json
from dataclasses import dataclass

from agentsup.model.engine import HistoryItem
from agentsup.model.message import Part
from agentsup.store.database import Reader, Tx

HISTORY_LIMIT = 60
"""Entries of a session that a turn is given; older ones stay in the store."""


@dataclass(frozen=True, slots=True)
class SessionMemory:
    """What a turn starts from."""

    history: tuple[HistoryItem, ...]
    engine_state: bytes | None


def append_tx(
    tx: Tx,
    *,
    session_id: str,
    message_id: str,
    role: str,
    text: str,
    at: int,
    parts: tuple[Part, ...] = (),
) -> None:
    """Add one finished entry, in the transaction that finishes it."""
    tx.execute(
        "INSERT INTO transcript (session_id, message_id, role, text, parts, at)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (session_id, message_id, role, text, json.dumps([p.to_json() for p in parts]), at),
    )


def load_memory(reader: Reader, session_id: str, engine: str) -> SessionMemory:
    """History of a session, oldest first; the engine state only if this engine wrote it."""
    rows = reader.all(
        "SELECT role, text FROM transcript WHERE session_id = ? ORDER BY entry_id DESC LIMIT ?",
        (session_id, HISTORY_LIMIT),
    )
    row = reader.one(
        "SELECT engine, engine_state FROM sessions WHERE session_id = ?", (session_id,)
    )
    state = row["engine_state"] or None if row is not None and row["engine"] == engine else None
    history = tuple(HistoryItem(r["role"], r["text"]) for r in reversed(rows))
    return SessionMemory(history, state)
