"""The rows of what agents remember: save, find, pin, forget. Functions of one transaction.

The index beside the table is kept by triggers, so it is right whatever writes here.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Sequence
from dataclasses import dataclass

from agentsup.agents.memory.entry import Draft, Entry, Kind, Own, Owner, Scope, Seen
from agentsup.agents.memory.ranking import audience, queries, ranked, standing
from agentsup.agents.memory.room import Held, room
from agentsup.model.errors import BadRequest, NotFound, NotSeen, Overloaded
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
    """Keep an entry; one of the same person with the same key and scope is replaced and stays the
    same entry, but is shared no longer: what an operator saw was its content of before.

    Raises ``BadRequest`` for scope type without a role and ``Overloaded`` where all that the agent
    may keep is pinned.
    """
    if draft.scope is Scope.TYPE and not owner.role:
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
    entry = Entry.of(row)
    is_new = entry.memory_id == memory_id
    dropped = _make_room_tx(tx, owner, entry.seq, now) if is_new else 0
    return Saved(entry, is_new, dropped)


def _make_room_tx(tx: Tx, owner: Owner, newest: int, now: int) -> int:
    """Drop the least valuable entries over the limit, neither pinned ones nor the newest, of those
    who have the most: nobody's saving takes what another has within an equal part.

    In a large memory some more go at once, so that not every saving has to weigh them all.
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
    held = [Held(*row) for row in people]
    drops = room(held, owner.person, over=over, limit=owner.max_entries)
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
        least = heapq.nsmallest(number, rows, key=lambda r: (standing(r[1], r[2], r[3], now), r[0]))
        tx.executemany("DELETE FROM memories WHERE seq = ?", [(row[0],) for row in least])
    return sum(drops.values())


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
    """Entries that have any of the words, the best first: those of this person's work, then what is
    shared with all work of the agent, with agents of the same role, with everybody. ``own_only``:
    all that the agent has. Removed agents' entries rest."""
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


_SEEN_SQL = (
    "agent_id = :agent AND (:person IS NULL OR person = :person"
    " OR (:shared AND scope = 'agent' AND shared_by <> ''))"
)
"""Entries of an agent that one person may see (``:shared``) or change; all for operators, None."""


def listing(
    reader: Reader,
    agent_id: str,
    *,
    kind: Kind | None = None,
    limit: int = 100,
    person: str | None = None,
) -> list[Entry]:
    """What an agent has saved that ``person`` may see (None: all), pinned ones first, then the
    latest."""
    rows = reader.all(
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
    return [Entry.of(row) for row in rows]


def count_of(reader: Reader, agent_id: str, person: str | None = None) -> int:
    """How many entries an agent has that ``person`` may see (None: all)."""
    found = {"agent": agent_id, "person": person, "shared": 1}
    return int(reader.scalar(f"SELECT count(*) FROM memories WHERE {_SEEN_SQL}", found))  # noqa: S608 - a constant


def under_key(
    reader: Reader,
    agent_id: str,
    key: str,
    scope: Scope | None = None,
    *,
    person: str | None = None,
    shared: bool = False,
) -> list[Entry]:
    """An agent's entries of one key that are ``person``'s (None: anybody's), one per scope and
    person; with ``shared`` also what is shared with all. A key in other letters' case is found where
    none is written exactly so."""
    rows = reader.all(
        f"SELECT * FROM memories WHERE {_SEEN_SQL} AND key = :key COLLATE NOCASE"  # noqa: S608 - a constant
        " AND (:scope IS NULL OR scope = :scope) ORDER BY seq",
        {"agent": agent_id, "person": person, "shared": int(shared), "key": key, "scope": scope},
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


def named(reader: Reader, agent_id: str, which: Seen | Own, only: str | None = None) -> list[Entry]:
    """The entries that are meant: one as it was shown, or what somebody has under a key, perhaps
    nothing. ``only``: whose the one must be (None: anybody's).

    Raises ``NotFound``, and ``NotSeen`` where the one has changed since.
    """
    if isinstance(which, Seen):
        return [_as_shown(reader, agent_id, which, only)]
    return under_key(reader, agent_id, which.key, which.scope, person=which.person)


def _as_shown(reader: Reader, agent_id: str, seen: Seen, only: str | None = None) -> Entry:
    row = reader.one(
        "SELECT * FROM memories WHERE memory_id = ? AND agent_id = ? AND (? IS NULL OR person = ?)",
        (seen.memory_id, agent_id, only, only),
    )
    if row is None:
        raise NotFound(f"there is no memory {seen.memory_id!r} of this agent", id=seen.memory_id)
    entry = Entry.of(row)
    if entry.updated_at != seen.updated_at:
        raise NotSeen(
            f"{entry.key!r} has changed since it was shown; nothing was done. Look at it again, and "
            "decide about what you see then",
            key=entry.key,
        )
    return entry


def forget_tx(tx: Tx, agent_id: str, which: Seen | Own, *, only: str | None = None) -> list[Entry]:
    """Drop what is meant; which entries that were. Raises what ``named`` raises."""
    found = named(tx, agent_id, which, only)
    tx.executemany("DELETE FROM memories WHERE seq = ?", [(entry.seq,) for entry in found])
    return found


def pin_tx(
    tx: Tx,
    agent_id: str,
    which: Seen | Own,
    *,
    pinned: bool,
    now: int,
    only: str | None = None,
) -> list[Entry]:
    """Pin or unpin what is meant. Raises ``NotFound`` where there is nothing, and ``NotSeen``."""
    found = named(tx, agent_id, which, only)
    if not found:
        key = which.key if isinstance(which, Own) else ""
        raise NotFound(f"nothing is remembered under {key!r}", key=key)
    tx.executemany(
        "UPDATE memories SET pinned = ?, touched_at = ? WHERE seq = ?",
        [(int(pinned), now, entry.seq) for entry in found],
    )
    return named(tx, agent_id, which, only)


def share_tx(
    tx: Tx, agent_id: str, seen: Seen, scope: Scope, by: str, *, now: int
) -> tuple[Entry, bool]:
    """Let one entry be recalled as widely as ``scope`` says, because the operator ``by`` wants it; with
    scope instance, by its own person again. Returns it, and whether it took the place of what that
    person had in that scope under the same key.

    Raises ``NotFound``, ``NotSeen`` where it has changed since it was seen, and ``BadRequest`` for scope
    type of an agent without a role.
    """
    entry = _as_shown(tx, agent_id, seen)
    if scope is Scope.TYPE and not entry.role:
        raise BadRequest(
            "its agent had no role when it saved this, so there are no agents of its type",
            field="scope",
        )
    owner = Owner(entry.agent_id, entry.role, person=entry.person)
    is_shared = scope is not Scope.INSTANCE
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
    return Entry.of(changed), gave_way.rowcount > 0


def prune_tx(tx: Tx, agent_id: str, below: float, *, now: int, person: str | None = None) -> int:
    """Drop what ``person`` may see (None: all), has a standing below a bound and is not pinned; how
    many there were."""
    rows = tx.all(
        f"SELECT seq, confidence, use_count, updated_at FROM memories WHERE {_SEEN_SQL}"  # noqa: S608 - a constant
        " AND pinned = 0",
        {"agent": agent_id, "person": person, "shared": 1},
    )
    gone = [(row[0],) for row in rows if standing(row[1], row[2], row[3], now) < below]
    tx.executemany("DELETE FROM memories WHERE seq = ?", gone)
    return len(gone)


def retention_rules() -> tuple[Retention, ...]:
    """What nobody has saved, pinned or recalled for two years goes; pinned entries stay."""
    return (Retention("memories", "pinned = 0 AND touched_at < :cutoff", _UNTOUCHED_MS, key="seq"),)
