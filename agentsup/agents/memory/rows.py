"""The rows of what agents remember: save, find, pin, forget. Functions of one transaction.

The index beside the table is kept by triggers, so it is right whatever writes here.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Sequence
from dataclasses import dataclass

from agentsup.agents.memory.entry import Draft, Entry, Kind, Owner, Scope
from agentsup.agents.memory.ranking import audience, queries, ranked, standing
from agentsup.model.errors import BadRequest, NotFound, Overloaded
from agentsup.store.database import Reader, Tx
from agentsup.store.retention import Retention

MAX_LISTED = 500
_CANDIDATES = 50
"""Best fits of a tier that are put in order by more than their words."""
_UNTOUCHED_MS = 2 * 365 * 24 * 3600 * 1000
_WEIGHTS = "5.0, 1.0, 2.0, 0.0"
"""Of key, content, tags and audience in the fit."""


@dataclass(frozen=True, slots=True)
class Saved:
    """What saving did: ``dropped`` entries had to go to make room."""

    entry: Entry
    is_new: bool
    dropped: int = 0


def save_tx(tx: Tx, owner: Owner, draft: Draft, *, memory_id: str, now: int) -> Saved:
    """Keep an entry; one with the same key and scope is replaced and stays the same entry.

    Raises ``BadRequest`` for scope type without a role and ``Overloaded`` where all that the agent
    may keep is pinned.
    """
    if draft.scope is Scope.TYPE and not owner.role:
        raise BadRequest(
            "this agent has no role, so there are no agents of its type; use instance or global",
            field="scope",
        )
    row = tx.one(
        "INSERT INTO memories (memory_id, agent_id, scope, kind, key, content, tags, confidence,"
        " role, audience, created_at, updated_at, touched_at)"
        " VALUES (:id, :agent, :scope, :kind, :key, :content, :tags, :confidence, :role, :audience,"
        " :now, :now, :now)"
        " ON CONFLICT (agent_id, scope, key) DO UPDATE SET kind = excluded.kind,"
        " content = excluded.content, tags = excluded.tags, confidence = excluded.confidence,"
        " role = excluded.role, audience = excluded.audience, updated_at = excluded.updated_at,"
        " touched_at = excluded.touched_at RETURNING *",
        {
            "id": memory_id,
            "agent": owner.agent_id,
            "scope": draft.scope.value,
            "kind": draft.kind.value,
            "key": draft.key,
            "content": draft.content,
            "tags": json.dumps(draft.tags, ensure_ascii=False),
            "confidence": draft.confidence,
            "role": owner.role,
            "audience": audience(owner, draft.scope, draft.kind),
            "now": now,
        },
    )
    entry = Entry.of(row)
    is_new = entry.memory_id == memory_id
    dropped = _make_room_tx(tx, owner, entry.seq, now) if is_new else 0
    return Saved(entry, is_new, dropped)


def _make_room_tx(tx: Tx, owner: Owner, newest: int, now: int) -> int:
    """Drop the least valuable entries over the limit, neither pinned ones nor the newest.

    In a large memory some more go at once, so that not every saving has to weigh them all.
    """
    count = tx.scalar("SELECT count(*) FROM memories WHERE agent_id = ?", (owner.agent_id,))
    over = int(count) - owner.max_entries
    if over <= 0:
        return 0
    rows = tx.all(
        "SELECT seq, confidence, use_count, updated_at FROM memories"
        " WHERE agent_id = ? AND pinned = 0 AND seq <> ?",
        (owner.agent_id, newest),
    )
    if len(rows) < over:
        raise Overloaded(
            f"this agent keeps {owner.max_entries} memories at most, and all are pinned; forget "
            "or unpin one first",
            limit=owner.max_entries,
        )
    over = min(len(rows), over + owner.max_entries // 50)
    least = heapq.nsmallest(over, rows, key=lambda r: (standing(r[1], r[2], r[3], now), r[0]))
    tx.executemany("DELETE FROM memories WHERE seq = ?", [(row[0],) for row in least])
    return over


def search(
    reader: Reader,
    owner: Owner,
    wanted: tuple[str, ...],
    *,
    now: int,
    limit: int = 50,
    kind: Kind | None = None,
    tags: Sequence[str] = (),
    min_confidence: float = 0.0,
    own_only: bool = False,
) -> list[Entry]:
    """Entries that have any of the words, the best first: own ones, then those of agents of the
    same role, then what other agents saved for everybody. Removed agents' entries rest."""
    found: list[Entry] = []
    for query in queries(owner, wanted, kind=kind, own_only=own_only):
        rows = reader.all(
            f"SELECT m.*, bm25(memories_index, {_WEIGHTS}) AS fit"  # noqa: S608 - constants
            " FROM memories_index JOIN memories m ON m.seq = memories_index.rowid"
            " WHERE memories_index MATCH :query AND m.confidence >= :least"
            " AND (m.agent_id = :agent OR EXISTS"
            " (SELECT 1 FROM agents a WHERE a.agent_id = m.agent_id AND a.present = 1))"
            " AND (:tags = '[]' OR EXISTS (SELECT 1 FROM json_each(m.tags) t"
            " JOIN json_each(:tags) w ON w.value = t.value))"
            " ORDER BY fit LIMIT :count",
            {
                "query": query,
                "least": min_confidence,
                "agent": owner.agent_id,
                "tags": json.dumps(tuple(tags), ensure_ascii=False),
                "count": max(_CANDIDATES, limit),
            },
        )
        found += ranked(((Entry.of(row), row["fit"]) for row in rows), now)[: limit - len(found)]
        if len(found) >= limit:
            break
    return found


def listing(
    reader: Reader, agent_id: str, *, kind: Kind | None = None, limit: int = 100
) -> list[Entry]:
    """What an agent has saved, pinned ones first, then the latest."""
    rows = reader.all(
        "SELECT * FROM memories WHERE agent_id = ? AND (? IS NULL OR kind = ?)"
        " ORDER BY pinned DESC, updated_at DESC, seq DESC LIMIT ?",
        (agent_id, kind, kind, max(1, min(limit, MAX_LISTED))),
    )
    return [Entry.of(row) for row in rows]


def count_of(reader: Reader, agent_id: str) -> int:
    """How many entries an agent has."""
    return int(reader.scalar("SELECT count(*) FROM memories WHERE agent_id = ?", (agent_id,)))


def under_key(reader: Reader, agent_id: str, key: str, scope: Scope | None = None) -> list[Entry]:
    """An agent's entries of one key: one, or one per scope. A key in other letters' case is found
    where none is written exactly so."""
    rows = reader.all(
        "SELECT * FROM memories WHERE agent_id = :agent AND key = :key COLLATE NOCASE"
        " AND (:scope IS NULL OR scope = :scope) ORDER BY seq",
        {"agent": agent_id, "key": key, "scope": scope},
    )
    found = [Entry.of(row) for row in rows]
    return [entry for entry in found if entry.key == key] or found


def used_tx(tx: Tx, entries: Sequence[Entry], *, now: int) -> None:
    """Count one use of each, in one statement."""
    tx.execute(
        "UPDATE memories SET use_count = use_count + 1, touched_at = ?"
        " WHERE seq IN (SELECT value FROM json_each(?))",
        (now, json.dumps([entry.seq for entry in entries])),
    )


def forget_tx(tx: Tx, agent_id: str, key: str, scope: Scope | None = None) -> int:
    """Drop an agent's entries of one key; how many there were."""
    found = under_key(tx, agent_id, key, scope)
    tx.executemany("DELETE FROM memories WHERE seq = ?", [(entry.seq,) for entry in found])
    return len(found)


def pin_tx(
    tx: Tx, agent_id: str, key: str, *, pinned: bool, now: int, scope: Scope | None = None
) -> list[Entry]:
    """Pin or unpin an agent's entries of one key. Raises ``NotFound``."""
    found = under_key(tx, agent_id, key, scope)
    if not found:
        raise NotFound(f"nothing is remembered under {key!r}", key=key)
    tx.executemany(
        "UPDATE memories SET pinned = ?, touched_at = ? WHERE seq = ?",
        [(int(pinned), now, entry.seq) for entry in found],
    )
    return under_key(tx, agent_id, key, scope)


def prune_tx(tx: Tx, agent_id: str, below: float, *, now: int) -> int:
    """Drop what has a standing below a bound and is not pinned; how many there were."""
    rows = tx.all(
        "SELECT seq, confidence, use_count, updated_at FROM memories"
        " WHERE agent_id = ? AND pinned = 0",
        (agent_id,),
    )
    gone = [(row[0],) for row in rows if standing(row[1], row[2], row[3], now) < below]
    tx.executemany("DELETE FROM memories WHERE seq = ?", gone)
    return len(gone)


def retention_rules() -> tuple[Retention, ...]:
    """What nobody has saved, pinned or recalled for two years goes; pinned entries stay."""
    return (Retention("memories", "pinned = 0 AND touched_at < :cutoff", _UNTOUCHED_MS, key="seq"),)
