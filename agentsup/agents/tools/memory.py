"""``memory_save``, ``memory_recall`` and ``memory_forget``: what an agent keeps beyond a session."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from agentsup.agents.memory.entry import Entry, Kind, Own, Owner, Scope, kind_of, scope_of
from agentsup.agents.memory.service import MAX_RECALLED, RECALL_LIMIT, AgentMemory
from agentsup.agents.tools import arguments
from agentsup.model.errors import BadRequest
from agentsup.model.principal import name_of_person
from agentsup.model.tool import Effect, Safety, Tool, ToolContext

_KIND = {"type": "string", "enum": [kind.value for kind in Kind]}
_SCOPE = {
    "type": "string",
    "enum": [scope.value for scope in Scope],
    "description": "Whose work may recall it: instance (of the person you work for now, the default); "
    "once an operator shares it, agent (of everybody, by you), type (by agents of your role) or "
    "global (by every agent).",
}
_TAGS = {"type": "array", "items": {"type": "string"}}
_KEY = {"type": "string", "description": "A short name; saving it again replaces the content."}
_SAVE = {
    "type": "object",
    "properties": {
        "key": _KEY,
        "content": {"type": "string", "description": "What to remember, in full sentences."},
        "kind": {**_KIND, "description": "Default fact."},
        "scope": _SCOPE,
        "tags": _TAGS,
        "confidence": {"type": "number", "description": "How sure you are, 0 to 1; default 0.5."},
    },
    "required": ["key", "content"],
    "additionalProperties": False,
}
_RECALL = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "Words to look for; any of them is enough."},
        "limit": {"type": "integer", "description": f"Default {RECALL_LIMIT}."},
        "kind": _KIND,
        "tags": {**_TAGS, "description": "Only entries that have any of these."},
    },
    "required": ["query"],
    "additionalProperties": False,
}
_FORGET = {
    "type": "object",
    "properties": {"key": _KEY, "scope": {**_SCOPE, "description": "Without it, in any scope."}},
    "required": ["key"],
    "additionalProperties": False,
}


def memory_tools(memory: AgentMemory, owner_of: Callable[[str], Owner]) -> tuple[Tool, ...]:
    """The three tools. ``owner_of`` tells who an agent is now, by its id; whose work it does, the
    call tells."""
    run = _Memory(memory, owner_of)
    return (
        Tool(
            "memory_save",
            "Remember something beyond this conversation: a fact, a preference, a pattern, a skill.",
            _SAVE,
            run.save,
            Effect.IDEMPOTENT,
            Safety.MODERATE,
        ),
        Tool(
            "memory_recall",
            "Recall what you know about something from earlier conversations.",
            _RECALL,
            run.recall,
            Effect.READ,
            Safety.SAFE,
        ),
        Tool(
            "memory_forget",
            "Forget what you saved under a key.",
            _FORGET,
            run.forget,
            Effect.IDEMPOTENT,
            Safety.MODERATE,
        ),
    )


class _Memory:
    """What the tools do, for the agent whose turn calls them."""

    def __init__(self, memory: AgentMemory, owner_of: Callable[[str], Owner]) -> None:
        self._memory = memory
        self._owner_of = owner_of

    async def save(self, context: ToolContext, args: dict[str, Any]) -> str:
        saved = await self._memory.save(
            self._owner(context),
            arguments.text(args, "key"),
            arguments.text(args, "content"),
            kind=arguments.text(args, "kind", default=Kind.FACT.value),
            scope=arguments.text(args, "scope", default=Scope.INSTANCE.value),
            confidence=arguments.number(args, "confidence", default=0.5),
            tags=_texts(args, "tags"),
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

    def _owner(self, context: ToolContext) -> Owner:
        return replace(self._owner_of(context.self_id), person=context.person)

    async def recall(self, context: ToolContext, args: dict[str, Any]) -> str:
        limit = arguments.number(args, "limit", default=RECALL_LIMIT)
        if not 1 <= limit <= MAX_RECALLED:
            raise BadRequest(f"the argument 'limit' must be 1 to {MAX_RECALLED}", field="limit")
        kind = kind_of(arguments.text(args, "kind")) if args.get("kind") is not None else None
        found = await self._memory.recall(
            self._owner(context),
            arguments.text(args, "query"),
            limit=int(limit),
            kind=kind,
            tags=_texts(args, "tags"),
        )
        results = [_result(entry, context) for entry in found]
        return _json(results=results, count=len(results), agent=context.agent_name)

    async def forget(self, context: ToolContext, args: dict[str, Any]) -> str:
        scope = scope_of(arguments.text(args, "scope")) if args.get("scope") is not None else None
        key = arguments.text(args, "key")
        own = Own(context.person, key, scope)
        found = await self._memory.forget(context.self_id, own)
        return _json(status="forgotten", key=key, count=len(found), agent=context.agent_name)


def _result(entry: Entry, context: ToolContext) -> dict[str, Any]:
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


def _texts(args: dict[str, Any], name: str) -> tuple[str, ...]:
    value = args.get(name)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise BadRequest(f"the argument {name!r} must be a list of strings", field=name)
    return tuple(value)


def _json(**document: Any) -> str:
    return json.dumps(document, ensure_ascii=False)
