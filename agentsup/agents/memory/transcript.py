"""The transcript of a session. Our own rows are authoritative; an engine's state is only a copy."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace

from agentsup.mailbox.messages import sessions
from agentsup.model.engine import HistoryItem
from agentsup.model.message import Part
from agentsup.store import Reader, Tx

HISTORY_LIMIT = 60
"""Most entries of a session that a turn gets; older ones stay in the store."""
SUMMARISED_AT_ONCE = 5000
"""Most entries for one summary; the rest of a longer session follows turn by turn."""
_ENTRIES_LOOKED_AT = 100
"""Latest entries from which the size of the next request is estimated."""
SUMMARY_HEAD = "Summary of the earlier conversation, which is not shown any more:"


@dataclass(frozen=True, slots=True)
class SessionSize:
    """The size of a session: of the entries after the summary, and of the summary."""

    entries: int
    text_bytes: int
    summary_bytes: int
    state_bytes: int
    """The size of the engine's own state."""


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session as it is stored: what a turn starts from."""

    history: tuple[HistoryItem, ...]
    """The latest entries, oldest first, with a summary in place of those it covers."""
    size: SessionSize
    """The size of all that the summary does not cover; its state is of ``engine``."""
    engine: str
    """The engine that wrote ``engine_state``."""
    engine_state: bytes | None

    def state_for(self, engine: str) -> bytes | None:
        """The state, if that engine wrote it."""
        return self.engine_state if engine == self.engine else None

    def size_for(self, engine: str) -> SessionSize:
        """The size as a turn of that engine would get it."""
        return self.size if engine == self.engine else replace(self.size, state_bytes=0)


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


def fork_tx(tx: Tx, parent_id: str, child_id: str, last: int) -> None:
    """Copy the last entries of the parent session's transcript into the child, unless it has any."""
    tx.execute(
        "INSERT INTO transcript (session_id, message_id, role, text, parts, at)"
        " SELECT ?1, message_id, role, text, parts, at FROM (SELECT * FROM transcript"
        " WHERE session_id = ?2 ORDER BY entry_id DESC LIMIT ?3)"
        " WHERE NOT EXISTS (SELECT 1 FROM transcript WHERE session_id = ?1) ORDER BY entry_id",
        (child_id, parent_id, last),
    )


def read_session(reader: Reader, session_id: str) -> StoredSession:
    """The session with its history, its size and the state of its engine."""
    summary = reader.one("SELECT upto_id, text FROM summaries WHERE session_id = ?", (session_id,))
    upto_id, summary_text = summary or (0, "")
    rows = reader.all(
        "SELECT role, text FROM transcript WHERE session_id = ? AND entry_id > ?"
        " ORDER BY entry_id DESC LIMIT ?",
        (session_id, upto_id, HISTORY_LIMIT + 1),
    )
    history = [HistoryItem(row["role"], row["text"]) for row in reversed(rows[:HISTORY_LIMIT])]
    entries, text_bytes = len(rows), sum(_bytes(each.text) for each in history)
    if entries > HISTORY_LIMIT:
        entries, text_bytes = _size_of_all(reader, session_id, upto_id)
    if summary is not None:
        history.insert(0, HistoryItem("note", f"{SUMMARY_HEAD}\n{summary_text}"))
    engine, state = sessions.engine_state(reader, session_id)
    size = SessionSize(entries, text_bytes, _bytes(summary_text), len(state or b""))
    return StoredSession(tuple(history), size, engine, state)


def first_words(reader: Reader, session_ids: Iterable[str]) -> dict[str, str]:
    """The person's first words in each of these sessions; sessions without any are left out."""
    found = {}
    for session_id in session_ids:
        text = reader.scalar(
            "SELECT text FROM transcript WHERE session_id = ? AND role = 'user'"
            " ORDER BY entry_id LIMIT 1",
            (session_id,),
        )
        if text:
            found[session_id] = str(text)[:200]
    return found


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _size_of_all(reader: Reader, session_id: str, upto_id: int) -> tuple[int, int]:
    row = reader.one(
        "SELECT count(*), sum(length(CAST(text AS BLOB))) FROM transcript"
        " WHERE session_id = ? AND entry_id > ?",
        (session_id, upto_id),
    )
    assert row is not None, "an aggregate has a row"
    return row[0], row[1]


# -- sessions that grow too long ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TranscriptEntry:
    """One entry of a transcript."""

    entry_id: int
    message_id: str
    role: str
    text: str


def request_bytes(reader: Reader, session_id: str) -> int:
    """About how much of its session (in bytes) an engine will read again."""
    if stored := sessions.engine_state_bytes(reader, session_id):
        return stored
    said = reader.scalar(
        "SELECT sum(length(text)) FROM (SELECT text FROM transcript WHERE session_id = ?"
        " ORDER BY entry_id DESC LIMIT ?)",
        (session_id, _ENTRIES_LOOKED_AT),
    )
    return int(said or 0)


def uncovered(reader: Reader, session_id: str) -> tuple[str, list[TranscriptEntry]]:
    """The current summary, and the entries that it does not cover, oldest first."""
    summary = reader.one("SELECT upto_id, text FROM summaries WHERE session_id = ?", (session_id,))
    said = reader.values(
        lambda row: TranscriptEntry(*row),
        "SELECT entry_id, message_id, role, text FROM transcript"
        " WHERE session_id = ? AND entry_id > ? ORDER BY entry_id LIMIT ?",
        (session_id, summary["upto_id"] if summary is not None else 0, SUMMARISED_AT_ONCE),
    )
    return (summary["text"] if summary is not None else ""), said


def last_entry(reader: Reader, session_id: str) -> TranscriptEntry | None:
    """The latest entry of a session, or None."""
    return reader.value(
        lambda row: TranscriptEntry(*row),
        "SELECT entry_id, message_id, role, text FROM transcript WHERE session_id = ?"
        " ORDER BY entry_id DESC LIMIT 1",
        (session_id,),
    )


def summarise_tx(
    tx: Tx, session_id: str, *, text: str, upto_id: int, turns: int, made_by: str, at: int
) -> None:
    """Set the summary of a session up to an entry. The entries stay; a summary that does not cover
    more than the present one is ignored."""
    tx.execute(
        "INSERT INTO summaries (session_id, upto_id, text, turns, made_by, at)"
        " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (session_id) DO UPDATE SET"
        " upto_id = excluded.upto_id, text = excluded.text, turns = turns + excluded.turns,"
        " made_by = excluded.made_by, at = excluded.at WHERE excluded.upto_id > upto_id",
        (session_id, upto_id, text, turns, made_by, at),
    )
