"""``/agents/{name}/memory``: what an agent remembers, for the operator."""

from __future__ import annotations

from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from agentsup.agents.memory import (
    MemoryEntry,
    MemoryKind,
    MemoryOwner,
    MemoryScope,
    MovedMemory,
    PersonKey,
    ShownEntry,
    draft,
)
from agentsup.api.documents.bodies import Body, Query
from agentsup.api.documents.document import Document, DoneDocument
from agentsup.api.http.route import Call, get, post
from agentsup.model.principal import OPERATORS, name_of_person

Key = Annotated[str, Field(min_length=1, max_length=1000)]
_SEEN_AT: Final = "of what was shown; another one is 409 `not_seen`"


class MemoryQuery(Query):
    """Which entries to list: all, the pinned and the latest first, or by words, the best first."""

    q: Annotated[str | None, Field(max_length=2000)] = None
    key: Annotated[str | None, Field(max_length=1000)] = None
    kind: MemoryKind | None = None
    limit: Annotated[int, Field(ge=1, le=500)] = 100


class EntriesBody(Body):
    """One entry as it was shown (`id`, `updated_at`), or the operators' own of a `key`, without
    `scope` in every scope."""

    id: Annotated[str | None, Field(min_length=1, max_length=100)] = None
    updated_at: int | None = Field(None, ge=0, description=_SEEN_AT)
    key: Key | None = None
    scope: Annotated[MemoryScope | None, Field(strict=False)] = None

    @model_validator(mode="after")
    def _either(self) -> Self:
        is_one = self.id is not None and self.updated_at is not None
        if is_one == (self.key is not None) or (self.id is None) != (self.updated_at is None):
            raise ValueError("give either id and updated_at of one entry, or a key of your own")
        return self

    def meant_by(self, person: str) -> ShownEntry | PersonKey:
        """The entries that this body names, if ``person`` sends it."""
        if self.id is not None and self.updated_at is not None:
            return ShownEntry(self.id, self.updated_at)
        return PersonKey(person, self.key or "", self.scope)


class PinBody(EntriesBody):
    """Entries to pin, or to unpin; pinned entries are not pruned."""

    pinned: bool = True


class ShareBody(Body):
    """An entry as it was shown, and the scope in which it is shared."""

    id: Annotated[str, Field(min_length=1, max_length=100)]
    updated_at: int = Field(ge=0, description=_SEEN_AT)
    scope: Annotated[MemoryScope, Field(strict=False)] = MemoryScope.AGENT


class PruneBody(Body):
    """Removes the entries that are not pinned and weigh less than `below`."""

    below: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False, strict=False)]


Time = Annotated[int, Field(ge=0, le=2**53)]


class MovedMemoryBody(Body):
    """One entry as it was in another home."""

    key: Key
    content: Annotated[str, Field(min_length=1, max_length=20_000)]
    kind: Annotated[MemoryKind, Field(strict=False)] = MemoryKind.FACT
    scope: Annotated[MemoryScope, Field(strict=False)] = MemoryScope.INSTANCE
    tags: Annotated[tuple[str, ...], Field(max_length=100, strict=False)] = ()
    confidence: Annotated[float, Field(strict=False)] = 0.5
    person: str = Field(
        OPERATORS, max_length=300, description="as stored: person:NAME, operator or nobody"
    )
    role: Annotated[str, Field(max_length=200)] = ""
    pinned: bool = False
    shared: bool = False
    use_count: Time = 0
    created_at: Time
    updated_at: Time

    def moved(self, memory_id: str) -> MovedMemory:
        """The entry under a new id. Raises ``BadRequest``."""
        return MovedMemory(
            memory_id,
            draft(
                self.key,
                self.content,
                kind=self.kind,
                scope=self.scope,
                confidence=self.confidence,
                tags=self.tags,
            ),
            self.person,
            self.role,
            self.pinned,
            self.shared,
            self.use_count,
            self.created_at,
            self.updated_at,
        )


class MovedMemoriesBody(Body):
    """Entries that come along with an agent from another home."""

    memories: Annotated[list[MovedMemoryBody], Field(min_length=1, max_length=50)]


class MemoryDocument(Document):
    id: str
    key: str
    content: str
    kind: MemoryKind
    scope: MemoryScope
    person: str = Field(description="in whose work it was saved: a person's name, or operator")
    shared_by: str = Field(
        description="the operator who shared it; empty: only that person's work recalls it"
    )
    tags: list[str]
    confidence: float
    use_count: int
    pinned: bool
    role: str = Field(description="of its agent when it was saved")
    created_at: int
    updated_at: int
    touched_at: int = Field(description="last saved, pinned or recalled")

    @classmethod
    def of(cls, entry: MemoryEntry) -> Self:
        """One entry of an agent's memory."""
        return cls.from_value(entry, id=entry.memory_id, person=name_of_person(entry.person))


class MemoryList(Document):
    agent: str
    total: int = Field(description="all that the agent has, whatever was asked for")
    memories: list[MemoryDocument]


class MemoryShared(DoneDocument):
    agent: str
    memory: MemoryDocument
    replaced: bool = Field(
        description="whether another entry of that person, key and scope had to give way"
    )


class MemoryChanged(DoneDocument):
    agent: str
    count: int = Field(description="how many entries were changed or dropped")


@get("/agents/{name}/memory", refusals=(404, 410))
async def listing(call: Call, query: MemoryQuery) -> MemoryList:
    """List the memory entries of an agent.

    Entries that others share with it are listed with their own agent.
    """
    agent = call.deps.directory.lookup(call.named("name"))
    memory = call.deps.memory
    found, total = await memory.all_of(agent.agent_id, kind=query.kind, limit=query.limit)
    if query.key is not None:
        found = await memory.under_key(agent.agent_id, query.key)
    elif query.q is not None:
        found = await memory.search(
            MemoryOwner(agent.agent_id), query.q, kind=query.kind, limit=query.limit, own_only=True
        )
    memories = [MemoryDocument.of(entry) for entry in found]
    return MemoryList(agent=agent.name, total=total, memories=memories)


@post("/agents/{name}/memory/forget", refusals=(404, 409, 410))
async def forget(call: Call, body: EntriesBody) -> MemoryChanged:
    """Let an agent forget one entry, or what is your own under a key."""
    agent = call.deps.directory.lookup(call.named("name"))
    found = await call.deps.memory.forget(agent.agent_id, body.meant_by(call.by.person))
    return _changed(agent.name, len(found))


@post("/agents/{name}/memory/pin", refusals=(404, 409, 410))
async def pin(call: Call, body: PinBody) -> MemoryChanged:
    """Pin or unpin one entry, or what is your own under a key."""
    agent = call.deps.directory.lookup(call.named("name"))
    which = body.meant_by(call.by.person)
    found = await call.deps.memory.pin(agent.agent_id, which, pinned=body.pinned)
    return _changed(agent.name, len(found))


@post("/agents/{name}/memory/share", refusals=(404, 409, 410))
async def share(call: Call, body: ShareBody) -> MemoryShared:
    """Let one entry be recalled in more work than its person's.

    Refused if the entry is no longer as the operator saw it.
    """
    agent = call.deps.directory.lookup(call.named("name"))
    seen = ShownEntry(body.id, body.updated_at)
    entry, is_replacing = await call.deps.memory.share(agent.agent_id, seen, body.scope, call.by)
    return MemoryShared(
        success=True, agent=agent.name, memory=MemoryDocument.of(entry), replaced=is_replacing
    )


@post("/agents/{name}/memory/import", refusals=(404, 410))
async def take_over(call: Call, body: MovedMemoriesBody) -> MemoryChanged:
    """Add what an agent remembered in another home, where it is not here yet."""
    agent = call.deps.directory.lookup(call.named("name"))
    moved = [each.moved(call.deps.entropy.new_id("mem")) for each in body.memories]
    return _changed(agent.name, await call.deps.memory.take_over(agent.agent_id, moved, call.by))


@post("/agents/{name}/memory/prune", refusals=(404, 410))
async def prune(call: Call, body: PruneBody) -> MemoryChanged:
    """Let an agent forget what is worth little."""
    agent = call.deps.directory.lookup(call.named("name"))
    return _changed(agent.name, await call.deps.memory.prune(agent.agent_id, body.below))


def _changed(name: str, count: int) -> MemoryChanged:
    return MemoryChanged(success=True, agent=name, count=count)
