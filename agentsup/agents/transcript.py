"""What was said in a session: our own rows are the truth; an engine's state is a copy beside it."""

from __future__ import annotations

import json
from dataclasses import dataclass

from agentsup.model.engine import HistoryItem
from agentsup.model.message import Part
from agentsup.store.database import Reader, Tx

HISTORY_LIMIT = 60
"""Entries of a session that a turn is given; older ones stay in the store."""
SUMMARISED_AT_ONCE = 5000
"""Entries that one summary may take in; a longer session is caught up with turn by turn."""
SUMMARY_HEAD = "Summary of the earlier conversation, which is not shown any more:"


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
    """History of a session, oldest first, a summary standing for what it covers; the engine state
    only if this engine wrote it."""
    summary = reader.one("SELECT upto_id, text FROM summaries WHERE session_id = ?", (session_id,))
    rows = reader.all(
        "SELECT role, text FROM transcript WHERE session_id = ? AND entry_id > ?"
        " ORDER BY entry_id DESC LIMIT ?",
        (session_id, summary["upto_id"] if summary is not None else 0, HISTORY_LIMIT),
    )
    row = reader.one(
        "SELECT engine, engine_state FROM sessions WHERE session_id = ?", (session_id,)
    )
    state = row["engine_state"] or None if row is not None and row["engine"] == engine else None
    history = tuple(HistoryItem(r["role"], r["text"]) for r in reversed(rows))
    if summary is not None:
        history = (HistoryItem("note", f"{SUMMARY_HEAD}\n{summary['text']}"), *history)
    return SessionMemory(history, state)


# -- sessions that grow too long ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Said:
    """One entry."""

    entry_id: int
    message_id: str
    role: str
    text: str


@dataclass(frozen=True, slots=True)
class SessionSize:
    """How long the part of a session is that no summary stands for."""

    entries: int
    text_bytes: int
    summary_bytes: int
    state_bytes: int
    """Of the state that the engine itself kept."""


def size_of(reader: Reader, session_id: str, engine: str) -> SessionSize:
    """The length of a session's history as a turn of ``engine`` would get it."""
    row = reader.one(
        "SELECT count(*) AS entries, coalesce(sum(length(CAST(t.text AS BLOB))), 0) AS bytes"
        " FROM transcript t WHERE t.session_id = :id AND t.entry_id >"
        " coalesce((SELECT upto_id FROM summaries WHERE session_id = :id), 0)",
        {"id": session_id},
    )
    beside = reader.one(
        "SELECT coalesce((SELECT length(CAST(text AS BLOB)) FROM summaries WHERE session_id = :id),"
        " 0) AS summary, coalesce((SELECT length(engine_state) FROM sessions"
        " WHERE session_id = :id AND engine = :engine), 0) AS state",
        {"id": session_id, "engine": engine},
    )
    assert row is not None, "an aggregate has a row"
    assert beside is not None, "as above"
    return SessionSize(row["entries"], row["bytes"], beside["summary"], beside["state"])


def uncovered(reader: Reader, *, session_id: str) -> tuple[str, list[Said]]:
    """The present summary, and the entries that it does not stand for, oldest first."""
    summary = reader.one("SELECT upto_id, text FROM summaries WHERE session_id = ?", (session_id,))
    rows = reader.all(
        "SELECT entry_id, message_id, role, text FROM transcript"
        " WHERE session_id = ? AND entry_id > ? ORDER BY entry_id LIMIT ?",
        (session_id, summary["upto_id"] if summary is not None else 0, SUMMARISED_AT_ONCE),
    )
    said = [Said(r["entry_id"], r["message_id"], r["role"], r["text"]) for r in rows]
    return (summary["text"] if summary is not None else ""), said


def summarise_tx(
    tx: Tx, session_id: str, *, text: str, upto_id: int, turns: int, made_by: str, at: int
) -> None:
    """Let ``text`` stand for a session up to an entry. The entries stay; a summary only grows."""
    tx.execute(
        "INSERT INTO summaries (session_id, upto_id, text, turns, made_by, at)"
        " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (session_id) DO UPDATE SET"
        " upto_id = excluded.upto_id, text = excluded.text, turns = turns + excluded.turns,"
        " made_by = excluded.made_by, at = excluded.at WHERE excluded.upto_id > upto_id",
        (session_id, upto_id, text, turns, made_by, at),
    )


def drop_state_tx(tx: Tx, session_id: str) -> None:
    """Let the next turn start from the transcript."""
    tx.execute("UPDATE sessions SET engine_state = NULL WHERE session_id = ?", (session_id,))
