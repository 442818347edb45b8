"""The services of a turn for its engine: calls through the pipeline, and process records."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from agentsup.agents.pipeline.ceiling import is_offered
from agentsup.agents.pipeline.marking import TURN_CHARS
from agentsup.agents.pipeline.pipeline import Execute
from agentsup.agents.tools.declaring import with_unknown_arguments
from agentsup.agents.tools.exec import command_lines
from agentsup.agents.turn.calls import CallContext, SegmentCalls
from agentsup.agents.turn.own_calls import (
    call_key,
    classified,
    classify,
    essence,
    is_own_kind,
    our_tool,
)
from agentsup.agents.turn.services import HostServices
from agentsup.agents.turn.usage import SuspendedTurn
from agentsup.kit.process_tracker import GroupRecord
from agentsup.model.engine import Permission, PermissionRequest
from agentsup.model.errors import AgentsupError, LeaseLost
from agentsup.model.hook import (
    Allow,
    CallFacts,
    CallOrigin,
    CallSuspended,
    Deny,
    Suspend,
)
from agentsup.model.ids import CallId
from agentsup.model.message import MessageKind
from agentsup.model.tool import (
    Effect,
    ReleasableSlot,
    Safety,
    Tool,
    ToolContext,
    ToolResult,
)
from agentsup.model.tool_names import wire_name
from agentsup.model.trace import by_turn_of

_OF_TOOLS = (
    *("is_optional", "is_essential", "is_outside", "is_paged"),
    *("version", "check", "commands"),
)
"""Fields that the facts of a call have from its tool."""
_MOST_TO = 64
"""Characters that are shown of the name of an agent that is asked."""
_OWN_CHARS = 2_000
"""Characters that are stored of the result of a CLI's own call."""
_CLOSED = "This turn is at its limit of steps: no tool is used any more. Sum up instead."
_NO_OUTPUT = "(The turn ended after it; its output was not told.)"


Deciding = Callable[[], AbstractContextManager[None]]


class TurnHost:
    """Implements ``model.engine.EngineHost`` for one segment of one turn."""

    def __init__(
        self,
        services: HostServices,
        context: CallContext,
        suspended: SuspendedTurn | None = None,
        answer: str | None = None,
    ) -> None:
        """``suspended`` is the state that the earlier segment saved, ``answer`` the answer to its
        question."""
        self._s = services
        self._context = context
        self._work = context.work
        self._calls = SegmentCalls(context, services.journal, suspended or SuspendedTurn(), answer)
        self.suspended = self._calls.suspended
        self._answered: dict[str, Permission] = {}
        """The answers to requests of the engine, by the request."""
        self._asked: dict[str, asyncio.Lock] = {}
        self._own: dict[CallId, CallFacts] = {}
        """The calls that the engine makes itself and that have not ended."""
        self._is_closed = False
        self._is_run = context.work.lease.message.kind is MessageKind.TASK
        self._reaches = (context.bounds.reach(context.spec.name), *context.bounds.callers)

    def again(self, *, is_last: bool) -> None:
        """Prepare for an engine that is asked once more in this segment: a call that it repeats is
        answered from the journal. ``is_last``: every further call is refused."""
        self._calls.begin_again()
        self._is_closed = self._is_closed or is_last

    def tools(self) -> tuple[Tool, ...]:
        return tuple(tool for tool in self._offered() if not tool.is_for_programs)

    def offered_of(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those of the names that tools of the daemon in ``tools`` have."""
        if self._is_closed:
            return ()
        known = map(self._s.tools.get, names)
        return tuple(
            tool.name
            for tool in known
            if tool is not None and not tool.is_for_programs and self._may_use(tool)
        )

    def _offered(self) -> tuple[Tool, ...]:
        if self._is_closed:
            return ()
        servers = self._context.own_tools
        own = servers.all() if servers is not None else ()
        return tuple(tool for tool in (*self._s.tools.all(), *own) if self._may_use(tool))

    def _may_use(self, tool: Tool) -> bool:
        if tool.is_for_runs and not self._is_run:
            return False
        return all(is_offered(tool, each.patterns, each.role_patterns) for each in self._reaches)

    # -- calls -------------------------------------------------------------------------------------

    async def call(self, name: str, args: dict[str, Any]) -> ToolResult:
        return await self._registered(name, args)

    def served(self) -> tuple[Tool, ...]:
        """The tools for a program over MCP: all but the kinds that coding CLIs bring along."""
        return tuple(tool for tool in self._offered() if not is_own_kind(tool.name))

    async def serve(self, name: str, args: dict[str, Any], deciding: Deciding) -> ToolResult:
        """Carry out a call over MCP. The segment can't end for it: if a person is asked, the call
        waits here, inside the block of ``deciding()``."""
        if is_own_kind(name):
            return ToolResult(False, f"there is no tool {name!r} here", "not_found")
        return await self._registered(name, args, deciding=deciding)

    async def _registered(
        self, name: str, args: dict[str, Any], *, deciding: Deciding | None = None
    ) -> ToolResult:
        if self._is_closed:
            return ToolResult(False, _CLOSED, "turn_limit")
        tool, servers = self._s.tools.get(name), self._context.own_tools
        try:
            if tool is None and servers is not None:
                tool = servers.get(name) or await servers.wait_for_tool(name)
        except AgentsupError as error:
            # Before any gate, so that no approval is used up and nobody is asked in vain.
            return ToolResult(False, error.message, error.code)
        if tool is None:
            known = ", ".join(sorted(t.name for t in self.tools())) or "none"
            return ToolResult(False, f"there is no tool {name!r}; available: {known}", "not_found")
        call = self._calls.facts(
            name,
            args,
            tool.effect,
            tool.safety,
            CallOrigin.TOOL,
            **{name: getattr(tool, name) for name in _OF_TOOLS},
        )
        context = self._tool_context(call.call_id)
        return await self._through(
            call, partial(with_unknown_arguments, tool, context), deciding=deciding
        )

    async def perform(
        self, name: str, effect: Effect, args: dict[str, Any], run: Callable[[], Awaitable[str]]
    ) -> ToolResult:
        # An operator set up what an engine does by its own code: moderate, and under no ceiling.
        call = self._calls.facts(name, args, effect, Safety.MODERATE, CallOrigin.ENGINE)
        return await self._through(call, lambda admitted: run())

    async def _through(
        self, call: CallFacts, execute: Execute, *, deciding: Deciding | None = None
    ) -> ToolResult:
        """Pass a call of ours through all stages. Raises ``CallSuspended`` if a person must be
        asked, unless the call waits here (with ``deciding``, or an engine that can't suspend)."""
        replay = await self._calls.made_before(call, call.name)
        if replay is not None:
            return self._calls.count(self._s.pipeline.recalled(call, replay))
        admitted, stopped = await self._s.pipeline.admit(call)
        if isinstance(stopped, Suspend):
            if self._context.can_suspend and deciding is None:
                self._calls.postpone(call)
                raise CallSuspended(call.call_id, call.permission, stopped)
            with (deciding or nullcontext)():
                admitted, stopped = await self._wait_for_answer(admitted, stopped)
        if stopped is not None:
            return self._calls.count(await self._s.pipeline.denied(admitted, stopped))
        name = call.name
        to = str(call.args.get("to", ""))[:_MOST_TO] if name.startswith("ask_agent") else ""

        def began() -> None:
            self._context.on_tool(name, "started", to)
            self._work.note = f"tool {name}"

        self._work.busy += 1
        try:
            with self._s.tracer.span(f"tool {name}", by_turn_of(self._work.lease.message)) as sent:
                result = await self._s.pipeline.carry_out(
                    admitted, execute, asked=call.args, fence=self._work.lease.fence, began=began
                )
                sent.facts = {"gen_ai.tool.name": name, "agentsup.effect": call.effect.value}
                sent.error = "" if result.ok else result.code or "failed"
                if self._s.tracer.is_on:
                    sent.text = json.dumps(call.args, ensure_ascii=False, default=str)
        finally:
            self._work.note = ""
            self._work.busy -= 1
        if not result.replayed:
            self._context.on_tool(name, "finished" if result.ok else "failed", to)
            notes = self._context.notes
            if notes is not None:
                result = replace(result, text=await notes.behind(result.text))
        return self._calls.count(result)

    async def _wait_for_answer(
        self, call: CallFacts, ask: Suspend
    ) -> tuple[CallFacts, Deny | None]:
        """Wait for the answer here, with the slot released. Raises ``LeaseLost`` if the turn was
        ended meanwhile."""
        async with self._work.slot.released():
            with self._work.asking():
                verdict = await self._s.approver.wait(call, ask)
        if self._work.is_suspended:
            raise LeaseLost(f"the turn on {call.message_id} was ended", message_id=call.message_id)
        if isinstance(verdict, Allow):
            return self._s.pipeline.edited(call, verdict)
        return call, verdict

    # -- calls of the engine's own -------------------------------------------------------------------

    async def permit(self, request: PermissionRequest) -> Permission:
        """Whether the engine may make a call itself. An allowed call is journaled as begun. The
        same request gets the same answer again; another call under its id is decided anew."""
        if self._is_closed:
            return Permission(False, _CLOSED)
        if not request.request_id:
            return await self._permitted(request)
        same = f"{request.request_id}:{call_key(request.tool, request.args)}"
        async with self._asked.setdefault(same, asyncio.Lock()):
            known = self._answered.get(same)
            if known is None:
                known = self._answered[same] = await self._permitted(request)
        return known

    async def _permitted(self, request: PermissionRequest) -> Permission:
        ours = our_tool(request.tool)
        if ours is not None and any(wire_name(tool.name) == ours for tool in self.served()):
            # The call comes to ``serve`` and passes every stage there, under its own name.
            return Permission(True)
        workspace, name = self._context.workspace, self._context.spec.name
        kind = await classified(request, workspace, self._s.files, name)
        known_by = essence(kind.name, request.args)
        call = self._calls.facts(
            kind.name,
            request.args,
            kind.effect,
            kind.safety,
            CallOrigin.OWN,
            own_name=request.tool,
            title=request.title,
            known_by=known_by,
            essence=known_by,
            commands=command_lines.of_own_call if kind.name == "exec" else None,
            check=lambda args: classify(request.tool, args, workspace, str).refused,
        )
        admitted, replay = call, await self._calls.made_before(call, request.tool, known_by)
        if replay is None:
            admitted, stopped = await self._s.pipeline.admit(call)
            if isinstance(stopped, Suspend):
                admitted, stopped = await self._wait_for_answer(admitted, stopped)
            if stopped is not None:
                await self._s.pipeline.denied(admitted, stopped)
                return Permission(False, stopped.reason, words=stopped.words)
            replay = await self._s.journal.begin(
                call.call_id,
                call.message_id,
                self._work.lease.fence,
                request.tool,
                call.effect,
                known_by,
            )
        if replay is not None:
            return Permission(
                False,
                "this was done before the turn was interrupted, so it is not done again unless you "
                f"ask for it once more; what came of it: {replay.text[:_OWN_CHARS]}",
            )
        if call.effect is not Effect.READ:
            self._own[call.call_id] = call
            self._work.busy += 1
        changed = None if admitted.args is call.args else admitted.args
        return Permission(True, args=changed)

    async def own_finished(self, name: str, ok: bool, preview: str) -> None:
        """Finish the oldest open call of that name: the engine's stream reported its end."""
        for call in self._own.values():
            if call.own_name == name:
                await self._finish_own(call, ok, preview[:_OWN_CHARS])
                return

    async def own_ended(self) -> None:
        """Finish all open calls of the engine: it ended its segment in order, and so did they."""
        while self._own:
            last = next(reversed(self._own.values()))
            await self._finish_own(last, True, _NO_OUTPUT)

    async def _finish_own(self, call: CallFacts, ok: bool, text: str) -> None:
        del self._own[call.call_id]
        self._work.busy -= 1
        # The model has seen it already, so it takes no room.
        call = replace(call, room_chars=lambda: TURN_CHARS)
        shown = await self._s.pipeline.shown(call, ToolResult(ok, text))
        await self._s.journal.finish(call.call_id, ok, shown.text)

    # -- process groups ----------------------------------------------------------------------------

    async def spawned(self, pgid: int, started_ticks: int, argv0: str) -> None:
        await self._s.processes.record(
            self._context.agent_id,
            self._work.lease.message.message_id,
            GroupRecord(pgid, started_ticks, argv0),
        )

    async def reaped(self, pgid: int) -> None:
        await self._s.processes.forget(self._work.lease.message.message_id, pgid)

    @property
    def slot(self) -> ReleasableSlot:
        return self._work.slot

    # -- inside --------------------------------------------------------------------------------------

    def _tool_context(self, call_id: CallId) -> ToolContext:
        context, work = self._context, self._context.work
        return ToolContext(
            lease=work.lease,
            slot=work.slot,
            agent_name=context.spec.name,
            call_id=call_id,
            workspace=context.workspace,
            children=self,
            acts_as=context.acts_as,
        )
