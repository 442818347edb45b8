"""``memory_save``, ``memory_recall`` and ``memory_forget``: memory beyond a session."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import Field

from agentsup.agents.memory.entry import (
    MemoryEntry,
    MemoryKind,
    MemoryOwner,
    MemoryScope,
    PersonKey,
    kind_of,
    scope_of,
)
from agentsup.agents.memory.service import MAX_RECALLED, RECALL_LIMIT, AgentMemory
from agentsup.agents.tools.declaring import (
    Arguments,
    Check,
    Number,
    Text,
    Texts,
    between,
    offered,
    tool,
    tools_of,
)
from agentsup.model.principal import name_of_person
from agentsup.model.tool import Effect, Safety, Tool, ToolContext

_limit = Check(
    lambda value: int(between(1, MAX_RECALLED, f"must be 1 to {MAX_RECALLED}").run(value)),
    {"type": "integer"},
)
_Kind = Annotated[str, offered(*MemoryKind)]
_Scope = Annotated[str, offered(*MemoryScope)]
_KEY = "A short name; saving it again replaces the content."


class Save(Arguments):
    """The arguments of ``memory_save``."""

    key: Text = Field(description=_KEY)
    content: Text = Field(description="What to remember, in full sentences.")
    kind: _Kind = Field(MemoryKind.FACT.value, description="Default fact.")
    scope: _Scope = Field(
        MemoryScope.INSTANCE.value,
        description="Whose work may recall it: instance (of the person you work for now, the "
        "default); once an operator shares it, agent (of everybody, by you), type (by agents of "
        "your role) or global (by every agent).",
    )
    tags: Texts = ()
    confidence: Number = Field(0.5, description="How sure you are, 0 to 1; default 0.5.")


class Recall(Arguments):
    """The arguments of ``memory_recall``."""

    query: Text = Field(description="Words to look for; any of them is enough.")
    limit: Annotated[int, _limit] = Field(RECALL_LIMIT, description=f"Default {RECALL_LIMIT}.")
    kind: _Kind | None = None
    tags: Texts = Field((), description="Only entries that have any of these.")


class Forget(Arguments):
    """The arguments of ``memory_forget``."""

    key: Text = Field(description=_KEY)
    scope: _Scope | None = Field(None, description="Without it, in any scope.")


def memory_tools(memory: AgentMemory, owner_of: Callable[[str], MemoryOwner]) -> tuple[Tool, ...]:
    """The three tools.

    ``owner_of`` gives an agent's current owner by its id; the person comes from the call.
    """
    return tools_of(_Memory(memory, owner_of))


@dataclass(frozen=True, slots=True)
class _Memory:
    """The functions of the tools, for the agent whose turn calls them."""

    memory: AgentMemory
    owner_of: Callable[[str], MemoryOwner]

    @tool("memory_save", Effect.IDEMPOTENT, Safety.MODERATE)
    async def save(self, context: ToolContext, args: Save) -> str:
        """Remember something beyond this conversation: a fact, a preference, a pattern, a skill."""
        saved = await self.memory.save(
            self._owner(context),
            args.key,
            args.content,
            kind=args.kind,
            scope=args.scope,
            confidence=args.confidence,
            tags=args.tags,
        )
        if saved.entry.waits:
            return _json(
                status="saved",
                key=saved.entry.key,
                agent=context.agent_name,
                note="It is recalled for the person you work for now. An operator can share it: "
                f"/memory show {saved.entry.key}",
            )
        return _json(status="saved", key=saved.entry.key, agent=context.agent_name)

    def _owner(self, context: ToolContext) -> MemoryOwner:
        return replace(self.owner_of(context.self_id), person=context.person)

    @tool("memory_recall", Effect.READ, Safety.SAFE)
    async def recall(self, context: ToolContext, args: Recall) -> str:
        """Recall what you know about something from earlier conversations."""
        found = await self.memory.recall(
            self._owner(context),
            args.query,
            limit=args.limit,
            kind=None if args.kind is None else kind_of(args.kind),
            tags=args.tags,
        )
        results = [_result(entry, context) for entry in found]
        return _json(results=results, count=len(results), agent=context.agent_name)

    @tool("memory_forget", Effect.IDEMPOTENT, Safety.MODERATE)
    async def forget(self, context: ToolContext, args: Forget) -> str:
        """Forget what you saved under a key."""
        scope = None if args.scope is None else scope_of(args.scope)
        own = PersonKey(context.person, args.key, scope)
        found = await self.memory.forget(context.self_id, own)
        return _json(status="forgotten", key=args.key, count=len(found), agent=context.agent_name)


def _result(entry: MemoryEntry, context: ToolContext) -> dict[str, Any]:
    whose = "" if entry.person == context.person else name_of_person(entry.person)
    found = {
        "key": entry.key,
        "content": entry.content,
        "kind": entry.kind.value,
        "scope": entry.scope.value,
        "confidence": entry.confidence,
        "tags": list(entry.tags),
        "own": entry.agent_id == context.self_id,
    }
    return {**found, "from_work_for": whose} if whose else found


def _json(**document: Any) -> str:
    return json.dumps(document, ensure_ascii=False)
