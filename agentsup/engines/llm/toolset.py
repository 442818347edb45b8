"""The agent's tools as the model library and providers take them; each call goes to the host.

Some providers take schemas only as an object at the top, without alternatives. A model may then send
what the schema forbids; the host checks arguments against the tool's own.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.exceptions import ApprovalRequired, ToolFailed
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset
from pydantic_ai.toolsets.abstract import ToolsetTool
from pydantic_core import SchemaValidator, core_schema

from agentsup.model.engine import EngineHost, RefusedTool
from agentsup.model.hook import CallSuspended
from agentsup.model.question import ASKED_BY_MODELS
from agentsup.model.tool import Tool
from agentsup.model.tool_names import by_wire_name, wire_name

_ALTERNATIVES = ("oneOf", "anyOf", "allOf")
_REFUSED = (
    *(*_ALTERNATIVES, "not", "enum", "const", "if", "then", "else", "items", "format", "pattern"),
    *("dependentRequired", "dependentSchemas"),
)
_MOST_DEPTH = 32
_MOST_STEPS = 8
ASK_USER = "ask_user"
_ASK_USER = ToolDefinition(
    name=ASK_USER,
    description=(
        "Ask the person a question and wait for the answer, which may take hours. Only for a "
        "decision without which the work can't go on; otherwise just answer."
    ),
    parameters_json_schema=dict(ASKED_BY_MODELS),
    kind="external",
)
# The host checks arguments against the tool's own schema; here anything that is JSON passes.
_ANYTHING = SchemaValidator(schema=core_schema.dict_schema(core_schema.str_schema()))
_ARGUMENT_RETRIES = 2
_OF_SERVERS = "mcp:"
_MOST_REFUSED = 1000
_WORD = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_TAKES_NONE = re.compile(
    r"(?:does not|doesn't) support (?:tool|function)|tool choice requires|support tool use"
    r"|\b(?:tools?|tool use|function calling|functions) (?:is|are) not supported",
    re.IGNORECASE,
)
_ALL = "*"
"""In the place of a digest: the model takes no tools."""
_POSITION = re.compile(r"\btools[.\[](\d{1,4})\b", re.ASCII)


def accepted(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema as providers take it; itself if it is so already."""
    top = schema
    for _ in range(_MOST_STEPS):
        target = _target(top, schema)
        if target is None:
            break
        top = {**target, **{key: value for key, value in top.items() if key != "$ref"}}
    found = _without_lost(_flat(top, schema), schema, 0)
    return found if isinstance(found, dict) else {"type": "object"}


def _flat(top: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    """Return an object schema with the properties of all alternatives at its top."""
    is_object = top.get("type") == "object" and isinstance(top.get("properties", {}), dict)
    if is_object and not any(key in top for key in _REFUSED):
        return top
    properties: dict[str, Any] = {}
    branches = [each for key in _ALTERNATIVES for each in _list(top.get(key))]
    for each in (*branches, top):
        if isinstance(each, dict):
            own = (_target(each, root) or each).get("properties")
            properties |= own if isinstance(own, dict) else {}
    left = {key: value for key, value in top.items() if key not in _REFUSED}
    return {**left, "type": "object", "properties": properties}


def _without_lost(value: Any, root: dict[str, Any], depth: int) -> Any:
    """Return the value with references to nowhere replaced by what takes anything."""
    if depth > _MOST_DEPTH:
        return {}
    if isinstance(value, list):
        found = [_without_lost(each, root, depth + 1) for each in value]
        return found if any(a is not b for a, b in zip(found, value, strict=True)) else value
    if not isinstance(value, dict):
        return value
    if isinstance(value.get("$ref"), str) and _target(value, root) is None:
        value = {key: each for key, each in value.items() if key != "$ref"}
    changed = {key: _without_lost(each, root, depth + 1) for key, each in value.items()}
    return changed if any(changed[key] is not value[key] for key in value) else value


def _target(part: dict[str, Any], root: dict[str, Any]) -> dict[str, Any] | None:
    """Return the schema inside ``root`` to which a part refers; None if to none there."""
    ref = part.get("$ref")
    if not isinstance(ref, str) or not ref.startswith("#"):
        return None
    at: Any = root
    for step in ref.removeprefix("#").strip("/").split("/"):
        if step:
            name = step.replace("~1", "/").replace("~0", "~")
            at = at.get(name) if isinstance(at, dict) else None
    return at if isinstance(at, dict) else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _digest(tool: Tool) -> str:
    """Return what tells a tool from another one, or from itself with another schema."""
    text = json.dumps([tool.name, tool.schema], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def takes_no_tools(text: str) -> bool:
    """Whether a refusal says that the model, or its server, takes no tools at all."""
    return _TAKES_NONE.search(text) is not None


class HostToolset(AbstractToolset[None]):
    """Offers ``host.tools()``. Tools that change something are called one at a time, in the model's
    order; tools that only read or wait for others are called in parallel."""

    def __init__(
        self, host: EngineHost, *, ask_user: bool, most: int, refused: dict[str, RefusedTool]
    ) -> None:
        """``most``: how many tools a request may have; ``refused``: tools that are left out, by
        digest, to be added to."""
        self._host = host
        self._ask_user = ask_user
        self._most = most
        self._refused = refused
        self._sent: list[Tool] = []
        self.left_out: tuple[str, ...] = ()
        """The tools for which the last request had no room."""
        self.is_closed = False
        """Whether no tool is offered any more."""
        self.waiting: dict[str, CallSuspended] = {}
        """Calls of this run that wait for an approval, by the model's ids."""
        self._names: dict[str, str] = {}
        self._expected: set[str] = set()

    def expect(self, names: Mapping[str, str]) -> None:
        """Accept calls of these tools (our names, by the model's names) even if they are not
        offered now: the host decides about them."""
        self._names |= names
        self._expected |= set(names)

    @property
    def id(self) -> str | None:
        return "agentsup"

    def real_name(self, name: str) -> str:
        """Return our name of a tool, by the model's name."""
        return self._names.get(name, name)

    def is_tool(self, name: str) -> bool:
        """Whether a tool of that name is offered to the model."""
        return name in self._names or name in self._names.values() or name == ASK_USER

    def nearest(self, name: str) -> str | None:
        """Return the offered tool that a name with more around it means; None if none or itself."""
        if name in self._names or name == ASK_USER:
            return None
        bare = name.partition("<|")[0].strip().strip("\"'`")
        for each in (bare, bare.rpartition(".")[2], bare.rpartition(":")[2]):
            if each in self._names or each == ASK_USER:
                return each
        return None

    def exclude(self, tool: Tool | None, why: str) -> None:
        """Offer a tool no more, until it is another one; None: offer none at all."""
        if len(self._refused) >= _MOST_REFUSED:
            self._refused.clear()
        key, name = (_ALL, "") if tool is None else (_digest(tool), tool.name)
        self._refused[key] = RefusedTool(name, why)

    @property
    def offers_any(self) -> bool:
        """Whether the last request had tools."""
        return bool(self._sent or self._ask_user) and _ALL not in self._refused

    def refused_in(self, text: str) -> Tool | None:
        """Return the tool that a provider's refusal is about, if it names one or its place."""
        names = {wire_name(tool.name): tool for tool in self._sent}
        for word in _WORD.findall(text):
            if word in names:
                return names[word]
        position = _POSITION.search(text)
        at = int(position[1]) if position else -1
        return self._sent[at] if 0 <= at < len(self._sent) else None

    async def get_tools(self, ctx: RunContext[None]) -> dict[str, ToolsetTool[None]]:
        if self.is_closed or _ALL in self._refused:
            return {}
        offered = self._offered()
        self._names |= by_wire_name(tool.name for tool in offered)
        definitions = [
            ToolDefinition(
                name=wire_name(tool.name),
                description=tool.description,
                parameters_json_schema=(
                    accepted(tool.schema) if tool.name.startswith(_OF_SERVERS) else tool.schema
                ),
                # The others are barriers: calls before one have ended, and calls after it wait.
                sequential=not tool.may_overlap,
            )
            for tool in offered
        ]
        offered_names = {definition.name for definition in definitions}
        definitions += [
            ToolDefinition(name=name, parameters_json_schema={"type": "object"}, sequential=True)
            for name in sorted(self._expected - offered_names)
        ]
        if self._ask_user and all(d.name != ASK_USER for d in definitions):
            definitions.append(_ASK_USER)
        return {
            definition.name: ToolsetTool(
                toolset=self,
                tool_def=definition,
                max_retries=_ARGUMENT_RETRIES,
                args_validator=_ANYTHING,
            )
            for definition in definitions
        }

    def _offered(self) -> list[Tool]:
        """The tools of the next request: our own first, in an order that does not change, so that
        the provider can cache them."""
        room = self._most - len(self._expected) - self._ask_user
        tools = self._host.tools()
        own = [tool for tool in tools if not tool.name.startswith(_OF_SERVERS)]
        of_servers = [tool for tool in tools if tool.name.startswith(_OF_SERVERS)]
        found = [*own, *sorted(of_servers, key=lambda tool: tool.name)]
        if self._refused:
            found = [tool for tool in found if _digest(tool) not in self._refused]
        self.left_out = tuple(tool.name for tool in found[room:])
        self._sent = found[:room]
        return self._sent

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[None], tool: ToolsetTool[None]
    ) -> str:
        try:
            result = await self._host.call(self.real_name(name), tool_args)
        except CallSuspended as waits:
            self.waiting[ctx.tool_call_id or ""] = waits
            raise ApprovalRequired from waits
        if not result.ok:
            # The model reads the text and may react; the run goes on.
            raise ToolFailed(result.text)
        return result.text
