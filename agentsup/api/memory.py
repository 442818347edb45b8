"""`/agents/{name}/memory`: what an agent remembers, for the operator."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from aiohttp import web
from pydantic import Field, model_validator

from agentsup.agents.memory.entry import Entry, Kind, Own, Owner, Scope, Seen
from agentsup.agents.memory.service import AgentMemory
from agentsup.api.bodies import Body, Query
from agentsup.api.route import Call, Route, reply
from agentsup.api.shapes import Document
from agentsup.model.principal import name_of_person

Key = Annotated[str, Field(min_length=1, max_length=1000)]


class MemoryQuery(Query):
    """Which entries to list: all, the pinned and the latest first, or by words, the best first."""

    q: Annotated[str | None, Field(max_length=2000)] = None
    key: Annotated[str | None, Field(max_length=1000)] = None
    kind: Kind | None = None
    limit: Annotated[int, Field(ge=1, le=500)] = 100


class EntriesBody(Body):
    """One entry as it was shown (`id`, `updated_at`), or the operators' own of a `key`, without
    `scope` in every scope."""

    id: Annotated[str | None, Field(min_length=1, max_length=100)] = None
    updated_at: Annotated[
        int | None, Field(ge=0, description="of what was shown; another one is 409 `not_seen`")
    ] = None
    key: Key | None = None
    scope: Annotated[Scope | None, Field(strict=False)] = None

    @model_validator(mode="after")
    def _either(self) -> Self:
        is_one = self.id is not None and self.updated_at is not None
        if is_one == (self.key is not None) or (self.id is None) != (self.updated_at is None):
            raise ValueError("give either id and updated_at of one entry, or a key of your own")
        return self

    def meant_by(self, person: str) -> Seen | Own:
        """Which entries that person means."""
        if self.id is not None and self.updated_at is not None:
            return Seen(self.id, self.updated_at)
        return Own(person, self.key or "", self.scope)


class PinBody(EntriesBody):
    """Whether they are to be kept from being pruned."""

    pinned: bool = True


class ShareBody(Body):
    """Which entry, as it was shown, and whose work is to recall it."""

    id: Annotated[str, Field(min_length=1, max_length=100)]
    updated_at: Annotated[
        int, Field(ge=0, description="of what was shown; another one is 409 `not_seen`")
    ]
    scope: Annotated[Scope, Field(strict=False)] = Scope.AGENT


class PruneBody(Body):
    """What to drop: everything with a standing below this that is not pinned."""

    below: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False, strict=False)]


class MemoryDocument(Document):
    id: str
    key: str
    content: str
    kind: Kind
    scope: Scope
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


class MemoryList(Document):
    agent: str
    total: int = Field(description="all that the agent has, whatever was asked for")
    memories: list[MemoryDocument]


class MemoryShared(Document):
    success: Literal[True]
    agent: str
    memory: MemoryDocument
    replaced: bool = Field(
        description="whether another entry of that person, key and scope had to give way"
    )


class MemoryChanged(Document):
    success: Literal[True]
    agent: str
    count: int = Field(description="how many entries were changed or dropped")


def _document(entry: Entry) -> dict[str, Any]:
    return {
        "id": entry.memory_id,
        "key": entry.key,
        "content": entry.content,
        "kind": entry.kind.value,
        "scope": entry.scope.value,
        "person": name_of_person(entry.person),
        "shared_by": entry.shared_by,
        "tags": list(entry.tags),
        "confidence": entry.confidence,
        "use_count": entry.use_count,
        "pinned": entry.pinned,
        "role": entry.role,
        "created_at": entry.created_at,
        "updated_at": entry.updated_at,
        "touched_at": entry.touched_at,
    }


def _memory(call: Call) -> AgentMemory:
    return AgentMemory(call.deps.web.database, call.deps.clock, call.deps.entropy)


async def listing(call: Call) -> web.Response:
    """What an agent has saved itself; what others share with it stands with them."""
    agent = call.deps.directory.lookup(call.named("name"))
    memory, query = _memory(call), call.query
    found, total = await memory.all_of(agent.agent_id, kind=query.kind, limit=query.limit)
    if query.key is not None:
        found = await memory.under_key(agent.agent_id, query.key)
    elif query.q is not None:
        found = await memory.search(
            Owner(agent.agent_id), query.q, kind=query.kind, limit=query.limit, own_only=True
        )
    return reply({"agent": agent.name, "total": total, "memories": [_document(e) for e in found]})


async def forget(call: Call) -> web.Response:
    """Drop an entry for good."""
    agent = call.deps.directory.lookup(call.named("name"))
    found = await _memory(call).forget(agent.agent_id, call.body.meant_by(call.by.person))
    return _changed(agent.name, len(found))


async def pin(call: Call) -> web.Response:
    """Keep an entry from being pruned, or no longer."""
    agent = call.deps.directory.lookup(call.named("name"))
    which = call.body.meant_by(call.by.person)
    found = await _memory(call).pin(agent.agent_id, which, pinned=call.body.pinned)
    return _changed(agent.name, len(found))


async def share(call: Call) -> web.Response:
    """Let one entry be recalled in more work than its person's, as the operator has seen it."""
    agent, body = call.deps.directory.lookup(call.named("name")), call.body
    seen = Seen(body.id, body.updated_at)
    entry, is_replacing = await _memory(call).share(agent.agent_id, seen, body.scope, call.by)
    return reply(
        {
            "success": True,
            "agent": agent.name,
            "memory": _document(entry),
            "replaced": is_replacing,
        }
    )


async def prune(call: Call) -> web.Response:
    """Drop what is worth little."""
    agent = call.deps.directory.lookup(call.named("name"))
    return _changed(agent.name, await _memory(call).prune(agent.agent_id, call.body.below))


def _changed(name: str, count: int) -> web.Response:
    return reply({"success": True, "agent": name, "count": count})


ROUTES: tuple[Route, ...] = (
    Route(
        "GET",
        "/agents/{name}/memory",
        listing,
        "What an agent remembers",
        {200: MemoryList},
        query=MemoryQuery,
        refusals=(404, 410),
    ),
    Route(
        "POST",
        "/agents/{name}/memory/forget",
        forget,
        "Let an agent forget one entry, or what is your own under a key",
        {200: MemoryChanged},
        body=EntriesBody,
        refusals=(404, 409, 410),
    ),
    Route(
        "POST",
        "/agents/{name}/memory/pin",
        pin,
        "Pin or unpin one entry, or what is your own under a key",
        {200: MemoryChanged},
        body=PinBody,
        refusals=(404, 409, 410),
    ),
    Route(
        "POST",
        "/agents/{name}/memory/share",
        share,
        "Let one entry be recalled in more work than its person's",
        {200: MemoryShared},
        body=ShareBody,
        refusals=(404, 409, 410),
    ),
    Route(
        "POST",
        "/agents/{name}/memory/prune",
        prune,
        "Let an agent forget what is worth little",
        {200: MemoryChanged},
        body=PruneBody,
        refusals=(404, 410),
    ),
)
