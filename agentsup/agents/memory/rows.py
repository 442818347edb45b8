"""The rows of agents' memory: save, search, pin, forget. Functions of one transaction.

Triggers maintain the full-text index, so it is right whatever writes to the table.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentsup.agents.memory.entry import (
    MemoryDraft,
    MemoryEntry,
    MemoryKind,
    MemoryOwner,
    MemoryScope,
    PersonKey,
    ShownEntry,
)
from agentsup.agents.memory.ranking import (
    PersonShare,
    audience,
    entries_to_drop,
    queries,
    ranked,
    weight,
)
from agentsup.model.errors import BadRequest, NotFound, NotSeen, Overloaded
from agentsup.store import Reader, Retention, Tx, from_row

MAX_LISTED = 500
_CANDIDATES = 50
"""The number of best matches of a tier that are then ordered by weight as well."""
_UNTOUCHED_MS = 2 * 365 * 24 * 3600 * 1000
_WEIGHTS = "5.0, 1.0, 2.0, 0.0"
"""The ``bm25`` weights of the columns key, content, tags and audience."""


@dataclass(frozen=True, slots=True)
class SavedMemory:
    """The result of a save. ``dropped`` is how many entries were dropped to make room."""

    entry: MemoryEntry
    is_new: bool
    dropped: int = 0


def _entry_of(row: Any) -> MemoryEntry:
    return from_row(
        MemoryEntry,
        row,
        scope=MemoryScope(row["scope"]),
        kind=MemoryKind(row["kind"]),
        tags=tuple(json.loads(row["tags"])),
        pinned=bool(row["pinned"]),
    )


def save_tx(
    tx: Tx, owner: MemoryOwner, draft: MemoryDraft, memory_id: str, now: int
) -> SavedMemory:
    """Save an entry. An entry of the same person, key and scope is replaced and keeps its id.

    A replaced entry is no longer shared, since an operator has only seen its earlier content.
    Raises ``BadRequest`` for scope type without a role, and ``Overloaded`` if the memory is full
    and all others are pinned.
    """
    if draft.scope is MemoryScope.TYPE and not owner.role:
        raise BadRequest(
            "this agent has no role, so there are no agents of its type; use instance or global",
            field="scope",
        )
    row = tx.one(
        "INSERT INTO memories (memory_id, agent_id, person, scope, kind, key, content, tags,"
        " confidence, role, audience, created_at, updated_at, touched_at)"
        " VALUES (:id, :agent, :person, :scope, :kind, :key, :content, :tags, :confidence, :role,"
        " :audience, :now, :now, :now)"
        " ON CONFLICT (agent_id, person, scope, key) DO UPDATE SET kind = excluded.kind,"
        " shared_by = '',"
        " content = excluded.content, tags = excluded.tags, confidence = excluded.confidence,"
        " role = excluded.role, audience = excluded.audience,"
        " updated_at = max(excluded.updated_at, updated_at + 1),"
        " touched_at = excluded.touched_at RETURNING *",
        {
            "id": memory_id,
            "agent": owner.agent_id,
            "person": owner.person,
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
    entry = _entry_of(row)
    is_new = entry.memory_id == memory_id
    dropped = _make_room_tx(tx, owner, entry.seq, now) if is_new else 0
    return SavedMemory(entry, is_new, dropped)


def _make_room_tx(tx: Tx, owner: MemoryOwner, newest: int, now: int) -> int:
    """Drop the entries of least weight over the limit, but neither pinned ones nor the newest.

    They are taken from the persons who have the most: a save never drops entries of a person who
    has no more than an equal part. In a large memory some more are dropped at once, so that not
    every save has to weigh all entries.
    """
    count = tx.scalar("SELECT count(*) FROM memories WHERE agent_id = ?", (owner.agent_id,))
    over = int(count) - owner.max_entries
    if over <= 0:
        return 0
    people = tx.all(
        "SELECT person, count(*), sum(pinned = 0 AND seq <> ?) FROM memories WHERE agent_id = ?"
        " GROUP BY person",
        (newest, owner.agent_id),
    )
    stored = [PersonShare(*row) for row in people]
    drops = entries_to_drop(stored, owner.person, over=over, limit=owner.max_entries)
    if sum(drops.values()) < over:
        raise Overloaded(
            f"this agent keeps {owner.max_entries} memories at most, and all that could go are "
            "pinned; forget or unpin one first",
            limit=owner.max_entries,
        )
    for person, number in drops.items():
        rows = tx.all(
            "SELECT seq, confidence, use_count, updated_at FROM memories"
            " WHERE agent_id = ? AND person = ? AND pinned = 0 AND seq <> ?",
            (owner.agent_id, person, newest),
        )
        least = heapq.nsmallest(number, rows, key=lambda r: (weight(r[1], r[2], r[3], now), r[0]))
        tx.executemany("DELETE FROM memories WHERE seq = ?", [(row[0],) for row in least])
    return sum(drops.values())


def search(
    reader: Reader,
    owner: MemoryOwner,
    wanted: tuple[str, ...],
    *,
    now: int,
    limit: int = 50,
    kind: MemoryKind | None = None,
    tags: Sequence[str] = (),
    own_only: bool = False,
) -> list[MemoryEntry]:
    """Entries that have any of the words, the best of each tier first.

    The tiers are: saved in this person's work, shared with all work of the agent, with agents of
    the same role, with every agent. ``own_only`` searches all of the agent's entries instead.
    Entries of removed agents are not found by others.
    """
    found: list[MemoryEntry] = []
    for query in queries(owner, wanted, kind=kind, own_only=own_only):
        rows = reader.all(
            f"SELECT m.*, bm25(memories_index, {_WEIGHTS}) AS fit"  # noqa: S608 - constants
            " FROM memories_index JOIN memories m ON m.seq = memories_index.rowid"
            " WHERE memories_index MATCH :query"
            " AND (m.agent_id = :agent OR EXISTS"
            " (SELECT 1 FROM agents a WHERE a.agent_id = m.agent_id AND a.present = 1))"
            " AND (:tags = '[]' OR EXISTS (SELECT 1 FROM json_each(m.tags) t"
            " JOIN json_each(:tags) w ON w.value = t.value))"
            " ORDER BY fit LIMIT :count",
            {
                "query": query,
                "agent": owner.agent_id,
                "tags": json.dumps(tuple(tags), ensure_ascii=False),
                "count": max(_CANDIDATES, limit),
            },
        )
        found += ranked(((_entry_of(row), row["fit"]) for row in rows), now)[: limit - len(found)]
        if len(found) >= limit:
            break
    return found


_SEEN_SQL = (
    "agent_id = :agent AND (:person IS NULL OR person = :person"
    " OR (:shared AND scope = 'agent' AND shared_by <> ''))"
)
"""The entries of an agent that ``:person`` may see (``:shared`` 1) or change (0).

A NULL person is an operator, who may see and change all.
"""


def listing(
    reader: Reader,
    agent_id: str,
    *,
    kind: MemoryKind | None = None,
    limit: int = 100,
    person: str | None = None,
) -> list[MemoryEntry]:
    """An agent's entries that ``person`` may see (None: all): pinned first, then the latest."""
    return reader.values(
        _entry_of,
        f"SELECT * FROM memories WHERE {_SEEN_SQL} AND (:kind IS NULL OR kind = :kind)"  # noqa: S608 - a constant
        " ORDER BY pinned DESC, updated_at DESC, seq DESC LIMIT :limit",
        {
            "agent": agent_id,
            "person": person,
            "shared": 1,
            "kind": kind,
            "limit": max(1, min(limit, MAX_LISTED)),
        },
    )


def every(reader: Reader, agent_id: str, *, after: int = 0) -> list[MemoryEntry]:
    """At most ``MAX_LISTED`` of all entries of an agent, in order of ``seq``."""
    return reader.values(
        _entry_of,
        "SELECT * FROM memories WHERE agent_id = ? AND seq > ? ORDER BY seq LIMIT ?",
        (agent_id, after, MAX_LISTED),
    )


def count_of(reader: Reader, agent_id: str, person: str | None = None) -> int:
    """Number of an agent's entries that ``person`` may see (None: all)."""
    found = {"agent": agent_id, "person": person, "shared": 1}
    return int(reader.scalar(f"SELECT count(*) FROM memories WHERE {_SEEN_SQL}", found))  # noqa: S608 - a constant


def under_key(
    reader: Reader,
    agent_id: str,
    key: str,
    scope: MemoryScope | None = None,
    *,
    person: str | None = None,
    shared: bool = False,
) -> list[MemoryEntry]:
    """An agent's entries under ``key`` that are ``person``'s (None: anybody's).

    There is at most one per scope and person. ``shared`` adds those shared with all work of the
    agent. If no key is equal, keys that differ only in case are found.
    """
    found = reader.values(
        _entry_of,
        f"SELECT * FROM memories WHERE {_SEEN_SQL} AND key = :key COLLATE NOCASE"  # noqa: S608 - a constant
        " AND (:scope IS NULL OR scope = :scope) ORDER BY seq",
        {"agent": agent_id, "person": person, "shared": int(shared), "key": key, "scope": scope},
    )
    return [entry for entry in found if entry.key == key] or found


def used_tx(tx: Tx, entries: Sequence[MemoryEntry], now: int) -> None:
    """Count one use of each entry."""
    tx.execute(
        "UPDATE memories SET use_count = use_count + 1, touched_at = ?"
        " WHERE seq IN (SELECT value FROM json_each(?))",
        (now, json.dumps([entry.seq for entry in entries])),
    )


def named(
    reader: Reader, agent_id: str, which: ShownEntry | PersonKey, only: str | None = None
) -> list[MemoryEntry]:
    """The one entry that was shown (``Seen``), or what a person has under a key (``Own``).

    The list may be empty for a key. ``only`` is the person whose entry the shown one must be (None:
    anybody's). Raises ``NotFound``, and ``NotSeen`` if the shown entry has changed since.
    """
    if isinstance(which, ShownEntry):
        return [_as_shown(reader, agent_id, which, only)]
    return under_key(reader, agent_id, which.key, which.scope, person=which.person)


def _as_shown(
    reader: Reader, agent_id: str, seen: ShownEntry, only: str | None = None
) -> MemoryEntry:
    entry = reader.value(
        _entry_of,
        "SELECT * FROM memories WHERE memory_id = ? AND agent_id = ? AND (? IS NULL OR person = ?)",
        (seen.memory_id, agent_id, only, only),
    )
    if entry is None:
        raise NotFound(f"there is no memory {seen.memory_id!r} of this agent", id=seen.memory_id)
    if entry.updated_at != seen.updated_at:
        raise NotSeen(
            f"{entry.key!r} has changed since it was shown; nothing was done. Look at it again, and "
            "decide about what you see then",
            key=entry.key,
        )
    return entry


def forget_tx(
    tx: Tx, agent_id: str, which: ShownEntry | PersonKey, only: str | None = None
) -> list[MemoryEntry]:
    """Drop the entries that ``named`` finds, and return them. Raises what ``named`` raises."""
    found = named(tx, agent_id, which, only)
    tx.executemany("DELETE FROM memories WHERE seq = ?", [(entry.seq,) for entry in found])
    return found


def pin_tx(
    tx: Tx,
    agent_id: str,
    which: ShownEntry | PersonKey,
    *,
    pinned: bool,
    now: int,
    only: str | None = None,
) -> list[MemoryEntry]:
    """Pin or unpin the entries that ``named`` finds.

    Raises ``NotFound``, also if a key has no entry, and ``NotSeen``.
    """
    found = named(tx, agent_id, which, only)
    if not found:
        key = which.key if isinstance(which, PersonKey) else ""
        raise NotFound(f"nothing is remembered under {key!r}", key=key)
    tx.executemany(
        "UPDATE memories SET pinned = ?, touched_at = ? WHERE seq = ?",
        [(int(pinned), now, entry.seq) for entry in found],
    )
    return named(tx, agent_id, which, only)


def share_tx(
    tx: Tx, agent_id: str, seen: ShownEntry, scope: MemoryScope, by: str, now: int
) -> tuple[MemoryEntry, bool]:
    """Let one entry be recalled as widely as ``scope`` says, as the operator ``by`` decided.

    Scope instance takes a sharing back. Returns the entry, and whether it replaced an entry of the
    same person, scope and key. Raises ``NotFound``, ``NotSeen`` if the entry has changed since it
    was shown, and ``BadRequest`` for scope type of an agent without a role.
    """
    entry = _as_shown(tx, agent_id, seen)
    if scope is MemoryScope.TYPE and not entry.role:
        raise BadRequest(
            "its agent had no role when it saved this, so there are no agents of its type",
            field="scope",
        )
    owner = MemoryOwner(entry.agent_id, entry.role, person=entry.person)
    is_shared = scope is not MemoryScope.INSTANCE
    gave_way = tx.execute(
        "DELETE FROM memories WHERE agent_id = ? AND person = ? AND scope = ? AND key = ? AND seq <> ?",
        (entry.agent_id, entry.person, scope.value, entry.key, entry.seq),
    )
    changed = tx.one(
        "UPDATE memories SET scope = ?, shared_by = ?, audience = ?, touched_at = ? WHERE seq = ?"
        " RETURNING *",
        (
            scope.value,
            by if is_shared else "",
            audience(owner, scope, entry.kind, is_shared=is_shared),
            now,
            entry.seq,
        ),
    )
    return _entry_of(changed), gave_way.rowcount > 0


def prune_tx(tx: Tx, agent_id: str, below: float, now: int, person: str | None = None) -> int:
    """Drop the unpinned entries that ``person`` may see (None: all) with a weight under ``below``.

    Returns how many there were.
    """
    rows = tx.all(
        f"SELECT seq, confidence, use_count, updated_at FROM memories WHERE {_SEEN_SQL}"  # noqa: S608 - a constant
        " AND pinned = 0",
        {"agent": agent_id, "person": person, "shared": 1},
    )
    gone = [(row[0],) for row in rows if weight(row[1], row[2], row[3], now) < below]
    tx.executemany("DELETE FROM memories WHERE seq = ?", gone)
    return len(gone)


def retention_rules() -> tuple[Retention, ...]:
    """Unpinned entries that nobody has saved, pinned or recalled for two years are removed."""
    return (Retention("memories", "pinned = 0 AND touched_at < :cutoff", _UNTOUCHED_MS, key="seq"),)
