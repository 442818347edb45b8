"""The agent's tools as the model library sees them; each call goes to the host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.exceptions import ApprovalRequired, ToolFailed
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset
from pydantic_ai.toolsets.abstract import ToolsetTool
from pydantic_core import SchemaValidator, core_schema

from agentsup.model.engine import EngineHost
from agentsup.model.hook import CallSuspended
from agentsup.model.question import ASKED_BY_MODELS
from agentsup.model.wire_names import by_wire_name, wire_name

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


class HostToolset(AbstractToolset[None]):
    """Offers ``host.tools()``. Tools that change something are called one at a time, in the model's
    order; tools that only read or wait for others are called in parallel."""

    def __init__(self, host: EngineHost, *, ask_user: bool) -> None:
        self._host = host
        self._ask_user = ask_user
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

    def nearest(self, name: str) -> str | None:
        """Return the offered tool that a name with more around it means; None if none or itself."""
        if name in self._names or name == ASK_USER:
            return None
        bare = name.partition("<|")[0].strip().strip("\"'`")
        for each in (bare, bare.rpartition(".")[2], bare.rpartition(":")[2]):
            if each in self._names or each == ASK_USER:
                return each
        return None

    async def get_tools(self, ctx: RunContext[None]) -> dict[str, ToolsetTool[None]]:
        if self.is_closed:
            return {}
        offered = self._host.tools()
        self._names |= by_wire_name(tool.name for tool in offered)
        definitions = [
            ToolDefinition(
                name=wire_name(tool.name),
                description=tool.description,
                parameters_json_schema=tool.schema,
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
