"""An in-memory ``EngineHost``: tools as functions, a journal as a dict, everything recorded."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from agentsup.model.engine import Permission, PermissionRequest, Segment
from agentsup.model.hook import CallSuspended
from agentsup.model.tool import Effect, ReleasableSlot, Safety, Tool, ToolContext, ToolResult

ToolFunction = Callable[[dict[str, Any]], Awaitable[str]]


class MemoryHost:
    """Calls are journaled by their ordinal in the turn: ``rewind`` and run again to replay them.

    A tool function that raises gives a failed result with the exception's text; exceptions whose
    types are in ``fatal`` pass through, as a lost lease does.
    """

    def __init__(
        self,
        tools: Mapping[str, ToolFunction] | None = None,
        *,
        fatal: tuple[type[Exception], ...] = (),
        permit: Callable[[PermissionRequest], Awaitable[Permission]] | None = None,
        slot: ReleasableSlot | None = None,
    ) -> None:
        """``permit`` decides about calls of the engine's own; without it all are denied."""
        self._slot = slot
        self._permit = permit or _denied
        self.permission_requests: list[PermissionRequest] = []
        self._functions = dict(tools or {})
        self.schemas: dict[str, dict[str, Any]] = {}
        """Schemas of tools that have another than the usual one."""
        self._fatal = fatal
        self._ordinal = 0
        self.journal: dict[int, tuple[str, ToolResult]] = {}
        self.executed: list[tuple[str, dict[str, Any]]] = []
        self.groups: dict[int, str] = {}
        self.reaped_groups: list[int] = []

    def rewind(self) -> None:
        """A crash: the next run of the turn meets the journal from its start."""
        self._ordinal = 0

    def tools(self) -> tuple[Tool, ...]:
        return tuple(_tool(name, self.schemas.get(name)) for name in self._functions)

    async def call(self, name: str, args: dict[str, Any]) -> ToolResult:
        async def run() -> str:
            function = self._functions.get(name)
            if function is None:
                raise LookupError(f"there is no tool {name!r}")
            return await function(args)

        return await self._journaled(name, args, run)

    async def perform(
        self, name: str, effect: Effect, args: dict[str, Any], run: Callable[[], Awaitable[str]]
    ) -> ToolResult:
        return await self._journaled(name, args, run)

    async def permit(self, request: PermissionRequest) -> Permission:
        self.permission_requests.append(request)
        return await self._permit(request)

    async def spawned(self, pgid: int, started_ticks: int, argv0: str) -> None:
        self.groups[pgid] = argv0

    async def reaped(self, pgid: int) -> None:
        self.groups.pop(pgid)
        self.reaped_groups.append(pgid)

    @property
    def slot(self) -> ReleasableSlot | None:
        return self._slot

    async def _journaled(
        self, name: str, args: dict[str, Any], run: Callable[[], Awaitable[str]]
    ) -> ToolResult:
        self._ordinal += 1
        ordinal, key = self._ordinal, f"{name} {json.dumps(args, sort_keys=True)}"
        known = self.journal.get(ordinal)
        if known is not None and known[0] == key:
            return ToolResult(known[1].ok, known[1].text, known[1].code, replayed=True)
        self.executed.append((name, args))
        try:
            result = ToolResult(ok=True, text=await run())
        except CallSuspended:
            self._ordinal -= 1
            self.executed.pop()
            raise
        except self._fatal:
            raise
        except Exception as error:  # noqa: BLE001 - supervision boundary: a tool is anyone's code
            result = ToolResult(ok=False, text=str(error), code="tool_failed")
        self.journal[ordinal] = (key, result)
        return result


async def _denied(request: PermissionRequest) -> Permission:
    return Permission(False, f"{request.tool} was denied")


def _tool(name: str, schema: dict[str, Any] | None = None) -> Tool:
    async def unused(context: ToolContext, args: dict[str, Any]) -> str:
        raise NotImplementedError("MemoryHost runs its own functions")

    return Tool(
        name=name,
        description=f"the tool {name}",
        parameters=schema or {"type": "object", "properties": {}, "additionalProperties": True},
        run=unused,
        effect=Effect.BLIND,
        safety=Safety.SAFE,
    )


def segment(text: str = "hi", **more: Any) -> Segment:
    """A segment with defaults for everything but its text."""
    given = {"message_id": "msg_1", "session_id": "ses_1", "prompt": text, "system": "", **more}
    return Segment(text=text, **given)
