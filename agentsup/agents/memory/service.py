"""An agent's durable memory in the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from agentsup.agents.memory import rows
from agentsup.agents.memory.entry import (
    MemoryDraft,
    MemoryEntry,
    MemoryKind,
    MemoryOwner,
    MemoryScope,
    PersonKey,
    ShownEntry,
    clean_key,
    clean_tags,
    draft,
)
from agentsup.agents.memory.ranking import words
from agentsup.agents.memory.rows import SavedMemory
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.model.errors import BadRequest, Forbidden, NotFound
from agentsup.model.principal import Principal
from agentsup.store import Database, Tx

_ROOM = 100_000
"""An import drops nothing to make room; the agent's own limit counts from its next save."""
RECALL_LIMIT = 10
SEARCH_LIMIT = 50
MAX_RECALLED = 50


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


@dataclass(frozen=True, slots=True)
class AgentMemory:
    """Saves and recalls the entries of agents. It has no state but the store's."""

    database: Database
    clock: Clock
    entropy: Entropy
    redact: Callable[[str], str] = str
    """Removes known secrets from what is saved."""

    async def save(
        self,
        owner: MemoryOwner,
        key: str,
        content: str,
        *,
        kind: str = MemoryKind.FACT.value,
        scope: str = MemoryScope.INSTANCE.value,
        confidence: float = 0.5,
        tags: Sequence[str] = (),
    ) -> SavedMemory:
        """Save an entry for the person for whom the agent works.

        A second save with the same key and scope replaces the content and keeps the id. A wider
        scope than instance takes effect when an operator shares the entry (``share``). Raises
        ``BadRequest`` naming the field, and ``Overloaded`` if there is no room.
        """
        wanted = draft(
            self.redact(key),
            self.redact(content),
            kind=kind,
            scope=scope,
            confidence=confidence,
            tags=[self.redact(tag) for tag in tags],
        )
        memory_id, now = self.entropy.new_id("mem"), self.clock.now_ms()
        return await self.database.write(
            rows.save_tx, owner, wanted, memory_id, now, name="memory.save"
        )

    async def take_over(self, agent_id: str, moved: Sequence[MovedMemory], by: Principal) -> int:
        """Add entries of another home that are not here yet; returns how many. Raises ``Forbidden``
        if ``by`` is not an operator."""
        if not by.is_operator:
            raise Forbidden("only an operator may import what an agent remembers")
        now = self.clock.now_ms()
        return await self.database.write(
            put_tx, agent_id, moved, by.label, now, name="memory.import"
        )

    async def recall(
        self,
        owner: MemoryOwner,
        query: str,
        *,
        limit: int = RECALL_LIMIT,
        kind: MemoryKind | None = None,
        tags: Sequence[str] = (),
    ) -> list[MemoryEntry]:
        """The entries that match ``query``; each counts as used. Raises ``BadRequest``."""
        if not query.strip():
            raise BadRequest("say what to recall", field="query")
        most = max(1, min(limit, MAX_RECALLED))
        found = await self.search(owner, query, limit=most, kind=kind, tags=tags)
        if found:
            now = self.clock.now_ms()
            await self.database.write(rows.used_tx, found, now, name="memory.used")
        return found

    async def search(
        self,
        owner: MemoryOwner,
        query: str,
        *,
        limit: int = SEARCH_LIMIT,
        kind: MemoryKind | None = None,
        tags: Sequence[str] = (),
        own_only: bool = False,
    ) -> list[MemoryEntry]:
        """Like ``recall``, but no use is counted: for people who look at entries."""
        wanted, now, filed = words(query), self.clock.now_ms(), clean_tags(tags)
        return await self.database.read(
            lambda r: rows.search(
                r, owner, wanted, now=now, limit=limit, kind=kind, tags=filed, own_only=own_only
            ),
            name="memory.search",
        )

    async def all_of(
        self,
        agent_id: str,
        person: str | None = None,
        *,
        kind: MemoryKind | None = None,
        limit: int = 100,
    ) -> tuple[list[MemoryEntry], int]:
        """The entries of an agent that ``person`` may see (None: all), and how many there are.

        Pinned ones come first, then the latest; at most ``limit``.
        """
        return await self.database.read(
            lambda r: (
                rows.listing(r, agent_id, kind=kind, limit=limit, person=person),
                rows.count_of(r, agent_id, person),
            ),
            name="memory.list",
        )

    async def under_key(
        self, agent_id: str, key: str, person: str | None = None
    ) -> list[MemoryEntry]:
        """An agent's entries under ``key`` that ``person`` may see (None: all).

        There is at most one per scope and person. Raises ``NotFound``.
        """
        wanted = clean_key(key)
        found = await self.database.read(
            lambda r: rows.under_key(r, agent_id, wanted, person=person, shared=True),
            name="memory.show",
        )
        if not found:
            raise NotFound(f"nothing is remembered under {wanted!r}", key=wanted)
        return found

    async def forget(
        self, agent_id: str, which: ShownEntry | PersonKey, *, only: str | None = None
    ) -> list[MemoryEntry]:
        """Drop one entry as it was shown (``Seen``), or what a person has under a key (``Own``).

        ``only`` is the person whose entry the shown one must be (None: anybody's). Returns the
        dropped entries, which may be none for a key. Raises ``NotFound``, and ``NotSeen`` if the
        shown entry was saved again since.
        """
        return await self.database.write(
            rows.forget_tx, agent_id, _clean(which), only, name="memory.forget"
        )

    async def share(
        self, agent_id: str, seen: ShownEntry, scope: MemoryScope, by: Principal
    ) -> tuple[MemoryEntry, bool]:
        """Let one entry, as it was shown to an operator, be recalled as widely as ``scope`` says.

        Returns the entry, and whether it replaced an earlier one. Raises ``Forbidden`` if ``by`` is
        not an operator, ``NotFound``, ``BadRequest``, and ``NotSeen`` if the entry was saved again
        since: show it and ask again.
        """
        if not by.is_operator:
            raise Forbidden("only an operator may share what is remembered")
        now = self.clock.now_ms()
        return await self.database.write(
            rows.share_tx, agent_id, seen, scope, by.label, now, name="memory.share"
        )

    async def pin(
        self,
        agent_id: str,
        which: ShownEntry | PersonKey,
        *,
        pinned: bool = True,
        only: str | None = None,
    ) -> list[MemoryEntry]:
        """Pin or unpin entries, named as for ``forget``.

        Pinned entries are neither pruned nor dropped to make room. Raises ``NotFound`` and
        ``NotSeen``.
        """
        meant, now = _clean(which), self.clock.now_ms()
        return await self.database.write(
            lambda tx: rows.pin_tx(tx, agent_id, meant, pinned=pinned, now=now, only=only),
            name="memory.pin",
        )

    async def prune(self, agent_id: str, below: float, *, person: str | None = None) -> int:
        """Drop the unpinned entries with a weight under ``below`` (see ``ranking.weight``).

        Only those that ``person`` may see are dropped (None: all). Returns how many there were.
        """
        now = self.clock.now_ms()
        return await self.database.write(
            rows.prune_tx, agent_id, below, now, person, name="memory.prune"
        )


def _clean(which: ShownEntry | PersonKey) -> ShownEntry | PersonKey:
    return replace(which, key=clean_key(which.key)) if isinstance(which, PersonKey) else which
