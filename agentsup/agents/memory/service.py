"""An agent's durable memory, over the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from agentsup.agents.memory import rows
from agentsup.agents.memory.entry import (
    Draft,
    Entry,
    Kind,
    Own,
    Owner,
    Scope,
    Seen,
    clean_key,
    clean_tags,
    draft,
)
from agentsup.agents.memory.ranking import words
from agentsup.agents.memory.rows import Saved
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.model.errors import BadRequest, Forbidden, NotFound
from agentsup.model.principal import Principal
from agentsup.store.database import Database, Reader, Tx

RECALL_LIMIT = 10
SEARCH_LIMIT = 50
MAX_RECALLED = 50


class AgentMemory:
    """What agents save and recall. Holds no state beside the store's."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        entropy: Entropy,
        *,
        redact: Callable[[str], str] = lambda text: text,
    ) -> None:
        """``redact`` takes known secrets out of what is saved."""
        self._database = database
        self._clock = clock
        self._entropy = entropy
        self._redact = redact

    async def save(
        self,
        owner: Owner,
        key: str,
        content: str,
        *,
        kind: str = Kind.FACT.value,
        scope: str = Scope.INSTANCE.value,
        confidence: float = 0.5,
        tags: Sequence[str] = (),
    ) -> Saved:
        """Keep an entry for the person whose work it is; the same key and scope again replaces its
        content and keeps its id. A wider scope is a wish until an operator shares it (``share``).

        Raises ``BadRequest`` naming the field, ``Overloaded`` where there is no room.
        """
        wanted = draft(
            self._redact(key),
            self._redact(content),
            kind=kind,
            scope=scope,
            confidence=confidence,
            tags=[self._redact(tag) for tag in tags],
        )
        return await self._save(owner, wanted)

    async def _save(self, owner: Owner, wanted: Draft) -> Saved:
        memory_id, now = self._entropy.new_id("mem"), self._clock.now_ms()

        def save(tx: Tx) -> Saved:
            return rows.save_tx(tx, owner, wanted, memory_id=memory_id, now=now)

        return await self._database.write(save, name="memory.save")

    async def recall(
        self,
        owner: Owner,
        query: str,
        *,
        limit: int = RECALL_LIMIT,
        kind: Kind | None = None,
        tags: Sequence[str] = (),
        min_confidence: float = 0.0,
    ) -> list[Entry]:
        """What the agent knows about a text; each entry counts as used. Raises ``BadRequest``."""
        if not query.strip():
            raise BadRequest("say what to recall", field="query")
        found = await self.search(
            owner,
            query,
            limit=max(1, min(limit, MAX_RECALLED)),
            kind=kind,
            tags=tags,
            min_confidence=min_confidence,
        )
        if found:
            now = self._clock.now_ms()
            await self._database.write(
                lambda tx: rows.used_tx(tx, found, now=now), name="memory.used"
            )
        return found

    async def search(
        self,
        owner: Owner,
        query: str,
        *,
        limit: int = SEARCH_LIMIT,
        kind: Kind | None = None,
        tags: Sequence[str] = (),
        min_confidence: float = 0.0,
        own_only: bool = False,
    ) -> list[Entry]:
        """The same for somebody who looks: no use is counted."""
        wanted, now, filed = words(query), self._clock.now_ms(), clean_tags(tags)

        def find(reader: Reader) -> list[Entry]:
            return rows.search(
                reader,
                owner,
                wanted,
                now=now,
                limit=limit,
                kind=kind,
                tags=filed,
                min_confidence=min_confidence,
                own_only=own_only,
            )

        return await self._database.read(find, name="memory.search")

    async def all_of(
        self,
        agent_id: str,
        person: str | None = None,
        *,
        kind: Kind | None = None,
        limit: int = 100,
    ) -> tuple[list[Entry], int]:
        """What an agent has saved that ``person`` may see (None: all), pinned ones first, then the
        latest; and how many in all."""
        return await self._database.read(
            lambda r: (
                rows.listing(r, agent_id, kind=kind, limit=limit, person=person),
                rows.count_of(r, agent_id, person),
            ),
            name="memory.list",
        )

    async def under_key(self, agent_id: str, key: str, person: str | None = None) -> list[Entry]:
        """An agent's entries of one key that ``person`` may see (None: all), one per scope and
        person. Raises ``NotFound``."""
        wanted = clean_key(key)
        found = await self._database.read(
            lambda r: rows.under_key(r, agent_id, wanted, person=person, shared=True),
            name="memory.show",
        )
        if not found:
            raise NotFound(f"nothing is remembered under {wanted!r}", key=wanted)
        return found

    async def forget(
        self, agent_id: str, which: Seen | Own, *, only: str | None = None
    ) -> list[Entry]:
        """Drop one entry of an agent as it was shown (``only``: if it is that person's), or what
        somebody has under a key; which those were, perhaps none of a key.

        Raises ``NotFound``, and ``NotSeen`` where the one has been saved anew since it was shown.
        """
        meant = _clean(which)
        return await self._database.write(
            lambda tx: rows.forget_tx(tx, agent_id, meant, only=only), name="memory.forget"
        )

    async def share(
        self, agent_id: str, seen: Seen, scope: Scope, by: Principal
    ) -> tuple[Entry, bool]:
        """Let one entry of an agent be recalled as widely as ``scope`` says, as it was shown to whoever
        decides; the entry, and whether it replaces an earlier one. An operator's deed.

        Raises ``Forbidden`` for anybody else, ``NotFound``, ``BadRequest``, and ``NotSeen`` where the
        entry has been saved anew since: show it again and ask again.
        """
        if not by.is_operator:
            raise Forbidden("only an operator may share what is remembered")
        now = self._clock.now_ms()

        def share(tx: Tx) -> tuple[Entry, bool]:
            return rows.share_tx(tx, agent_id, seen, scope, by.label, now=now)

        return await self._database.write(share, name="memory.share")

    async def pin(
        self,
        agent_id: str,
        which: Seen | Own,
        *,
        pinned: bool = True,
        only: str | None = None,
    ) -> list[Entry]:
        """Keep what is meant, as by ``forget``, from being pruned, or no longer. Raises ``NotFound``
        and ``NotSeen``."""
        meant, now = _clean(which), self._clock.now_ms()
        return await self._database.write(
            lambda tx: rows.pin_tx(tx, agent_id, meant, pinned=pinned, now=now, only=only),
            name="memory.pin",
        )

    async def prune(self, agent_id: str, below: float, *, person: str | None = None) -> int:
        """Drop what ``person`` may see (None: all), has a standing below a bound and is not pinned;
        how many there were."""
        now = self._clock.now_ms()
        return await self._database.write(
            lambda tx: rows.prune_tx(tx, agent_id, below, now=now, person=person),
            name="memory.prune",
        )


def _clean(which: Seen | Own) -> Seen | Own:
    return replace(which, key=clean_key(which.key)) if isinstance(which, Own) else which
