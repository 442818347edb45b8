"""Entries that come along when an agent moves here from another home."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from agentsup.agents.memory import rows
from agentsup.agents.memory.entry import MemoryDraft, MemoryOwner, MemoryScope
from agentsup.store import Tx

_ROOM = 100_000
"""An import drops nothing to make room; the agent's own limit counts from its next save."""


@dataclass(frozen=True, slots=True)
class MovedMemory:
    """One entry as it was in the other home."""

    memory_id: str
    """Its new id."""
    draft: MemoryDraft
    person: str
    role: str
    pinned: bool
    is_shared: bool
    use_count: int
    created_at: int
    updated_at: int


def put_tx(tx: Tx, agent_id: str, moved: Sequence[MovedMemory], by: str, now: int) -> int:
    """Add those entries whose key its person does not have in that scope; returns how many.

    What was shared there is shared here by ``by``, the operator who imports it.
    """
    added = 0
    for each in moved:
        draft = each.draft
        if draft.scope is MemoryScope.TYPE and not each.role:
            draft = replace(draft, scope=MemoryScope.INSTANCE)
        if rows.under_key(tx, agent_id, draft.key, draft.scope, person=each.person):
            continue
        owner = MemoryOwner(agent_id, each.role, _ROOM, each.person)
        entry = rows.save_tx(tx, owner, draft, each.memory_id, now).entry
        if each.is_shared and draft.scope is not MemoryScope.INSTANCE:
            rows.share_tx(tx, agent_id, entry.seen, draft.scope, by, now)
        tx.execute(
            "UPDATE memories SET pinned = ?, use_count = ?, created_at = ?, updated_at = ?"
            " WHERE memory_id = ?",
            (int(each.pinned), each.use_count, each.created_at, each.updated_at, entry.memory_id),
        )
        added += 1
    return added
