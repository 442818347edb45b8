"""What a turn lends to its engine: calls through the pipeline, and its child processes.

Calls are numbered by content: the n-th call of one tool with the same arguments has the same
``call_id`` in every segment of the turn. A segment that starts again after a crash therefore meets
its finished calls whatever else changed, a call whose outcome is unknown stays the same call, and
one that waited for a person meets the answer when it is made again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from agentsup.agents.calling import OwnCalls, call_key, classified
from agentsup.agents.carried import Carried
from agentsup.agents.pipeline import Pipeline
from agentsup.agents.pipeline.ceiling import is_offered
from agentsup.agents.pipeline.own_calls import classify, essence, is_own_kind, our_tool
from agentsup.agents.pipeline.pipeline import Execute
from agentsup.agents.pipeline.shortening import TURN_CHARS
from agentsup.agents.processes import ProcessTable
from agentsup.agents.roles.bounds import Bounds
from agentsup.agents.steering import Notes
from agentsup.agents.tools import command_lines
from agentsup.agents.tools.arguments import carried_out
from agentsup.kit.pool import BoundedPool
from agentsup.kit.procgroup import GroupRecord
from agentsup.mailbox.journal import Journal, Replay
from agentsup.mailbox.pump import Work
from agentsup.model.agent import AgentSpec
from agentsup.model.engine import Permission, PermissionRequest
from agentsup.model.errors import AgentsupError, LeaseLost
from agentsup.model.hook import Allow, Approver, CallFacts, CallSuspended, Deny, Origin, Suspend
from agentsup.model.ids import AgentId, CallId
from agentsup.model.message import Kind
from agentsup.model.tool import (
    Effect,
    Safety,
    Tool,
    ToolContext,
    ToolRegistry,
    ToolResult,
    TurnPlace,
)
from agentsup.model.wire_names import wire_name

_OWN_CHARS = 2_000
"""Kept of what a CLI tells about a call of its own."""
_CLOSED = "This turn is at its limit of steps: no tool is used any more. Sum up instead."
_UNTOLD = "(The turn ended after it; its output was not told.)"


Deciding = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class HostServices:
    """What the hosts of all turns share."""

    tools: ToolRegistry
    pipeline: Pipeline
    approver: Approver
    journal: Journal
    processes: ProcessTable
    files: BoundedPool

    def documents(self) -> list[dict[str, Any]]:
        """The stages of the pipeline as they are now."""
        return [row.to_json() for row in self.pipeline.hooks.rows()]


class TurnHost:
    """Implements ``model.engine.EngineHost`` for one segment of one turn."""

    def __init__(
        self,
        services: HostServices,
        *,
        work: Work,
        agent_id: AgentId,
        spec: AgentSpec,
        workspace: str,
        can_suspend: bool,
        carried: Carried,
        answer: str | None,
        on_tool: Callable[[str, str], None],
        bounds: Bounds | None = None,
        own_tools: ToolRegistry | None = None,
        acts_as: AgentId | None = None,
        notes: Notes | None = None,
    ) -> None:
        """``carried`` is what the segment before left, ``answer`` what was said to its question;
        ``acts_as`` is the agent in whose place it is done, ``notes`` are what it is told meanwhile,
        ``bounds`` those of its role (without them: its own tools), ``own_tools`` of its servers."""
        self._s = services
        self._work = work
        self._agent_id = agent_id
        self._spec = spec
        self._bounds = bounds or Bounds(spec.tools)
        self._own_tools = own_tools
        self._acts_as = acts_as
        self._notes = notes
        self._workspace = workspace
        self._can_suspend = can_suspend
        self._counts = Counter(carried.counts)
        self._shown = carried.shown
        self._answers = {carried.held: answer or ""} if carried.held else {}
        self._on_tool = on_tool
        self._own = OwnCalls()
        self._is_closed = False
        self._is_run = work.lease.message.kind is Kind.TASK
        self._before: frozenset[str] | None = None if work.lease.resumed else frozenset()

    def carried(self, *, files: tuple[Any, ...], checkpoint: bytes, held: str) -> Carried:
        """What the next segment needs; ``held`` is the call that waits."""
        return Carried(dict(self._counts), files, checkpoint, held=held, shown=self._shown)

    def again(self, *, is_last: bool) -> None:
        """The engine is asked once more in this segment: a call that it makes again is met in the
        journal, not made. ``is_last``: no call is made any more."""
        self._counts, self._before = Counter(), None
        self._is_closed = self._is_closed or is_last

    def tools(self) -> tuple[Tool, ...]:
        return tuple(tool for tool in self._offered() if not tool.is_for_programs)

    def _offered(self) -> tuple[Tool, ...]:
        if self._is_closed:
            return ()
        reaches = (self._bounds.reach(self._spec.name), *self._bounds.callers)
        own = self._own_tools.all() if self._own_tools is not None else ()
        return tuple(
            tool
            for tool in (*self._s.tools.all(), *own)
            if (self._is_run or not tool.is_for_runs)
            and all(is_offered(tool, each.patterns, each.role_patterns) for each in reaches)
        )

    # -- calls -------------------------------------------------------------------------------------

    async def call(self, name: str, args: dict[str, Any]) -> ToolResult:
        return await self._registered(name, args)

    def served(self) -> tuple[Tool, ...]:
        """What a program is offered over MCP: all but what a coding CLI does by itself."""
        return tuple(tool for tool in self._offered() if not is_own_kind(tool.name))

    async def serve(self, name: str, args: dict[str, Any], deciding: Deciding) -> ToolResult:
        """A call over MCP. Its segment can't end for it: where a person is asked, it waits, with
        ``deciding`` around the wait."""
        if is_own_kind(name):
            return ToolResult(False, f"there is no tool {name!r} here", "not_found")
        return await self._registered(name, args, deciding=deciding)

    async def _registered(
        self, name: str, args: dict[str, Any], *, deciding: Deciding | None = None
    ) -> ToolResult:
        if self._is_closed:
            return ToolResult(False, _CLOSED, "turn_limit")
        tool = self._s.tools.get(name)
        try:
            if tool is None and self._own_tools is not None:
                tool = self._own_tools.get(name) or await self._own_tools.coming(name)
        except AgentsupError as error:
            # Before any gate: leave that it has is not used up, and nobody is asked in vain.
            return ToolResult(False, error.message, error.code)
        if tool is None:
            known = ", ".join(sorted(t.name for t in self.tools())) or "none"
            return ToolResult(False, f"there is no tool {name!r}; available: {known}", "not_found")
        call = self._facts(
            name,
            args,
            tool.effect,
            tool.safety,
            Origin.TOOL,
            is_optional=tool.is_optional,
            is_essential=tool.is_essential,
            version=tool.version,
            is_outside=tool.is_outside,
            is_paged=tool.is_paged,
            check=tool.check,
            commands=tool.commands,
        )
        context = self._context(call.call_id)
        return await self._through(call, partial(carried_out, tool, context), deciding=deciding)

    async def perform(
        self, name: str, effect: Effect, args: dict[str, Any], run: Callable[[], Awaitable[str]]
    ) -> ToolResult:
        # What an engine does by its own code its operator has set up: moderate, and in no ceiling.
        call = self._facts(name, args, effect, Safety.MODERATE, Origin.ENGINE)
        return await self._through(call, lambda admitted: run())

    async def _through(
        self, call: CallFacts, execute: Execute, *, deciding: Deciding | None = None
    ) -> ToolResult:
        """The whole way of a call that we carry out. Raises ``CallSuspended``, but for one that
        waits for a person here (with ``deciding``)."""
        replay = await self._made_before(call, call.name)
        if replay is not None:
            return self._count(self._s.pipeline.recalled(call, replay))
        admitted, stopped = await self._s.pipeline.admit(call)
        if isinstance(stopped, Suspend):
            if self._can_suspend and deciding is None:
                # It is made again, as the same call.
                self._counts[call_key(call.name, call.args)] -= 1
                raise CallSuspended(call.call_id, call.leave, stopped)
            with (deciding or nullcontext)():
                admitted, stopped = await self._held(admitted, stopped)
        if stopped is not None:
            return self._count(await self._s.pipeline.denied(admitted, stopped))
        name = call.name

        def began() -> None:
            self._on_tool(name, "started")
            self._work.note = f"tool {name}"

        self._work.busy += 1
        try:
            result = await self._s.pipeline.carry_out(
                admitted, execute, asked=call.args, fence=self._work.lease.fence, began=began
            )
        finally:
            self._work.note = ""
            self._work.busy -= 1
        if not result.replayed:
            self._on_tool(name, "finished" if result.ok else "failed")
            if self._notes is not None:
                result = replace(result, text=await self._notes.behind(result.text))
        return self._count(result)

    async def _held(self, call: CallFacts, ask: Suspend) -> tuple[CallFacts, Deny | None]:
        """Wait for the answer here, the slot given back meanwhile."""
        async with self._work.slot.released():
            with self._work.asking():
                verdict = await self._s.approver.wait(call, ask)
        if self._work.is_left:
            raise LeaseLost(f"the turn on {call.message_id} was ended", message_id=call.message_id)
        if isinstance(verdict, Allow):
            return self._s.pipeline.edited(call, verdict)
        return call, verdict

    # -- calls of the engine's own -------------------------------------------------------------------

    async def permit(self, request: PermissionRequest) -> Permission:
        """Whether the engine may make a call itself. What is allowed is journaled as begun; the
        same request gets the same answer, and nothing else does that comes under its id."""
        if self._is_closed:
            return Permission(False, _CLOSED)
        if not request.request_id:
            return await self._permitted(request)
        same = f"{request.request_id}:{call_key(request.tool, request.args)}"
        async with self._own.asked.setdefault(same, asyncio.Lock()):
            known = self._own.answered.get(same)
            if known is None:
                known = self._own.answered[same] = await self._permitted(request)
        return known

    async def _permitted(self, request: PermissionRequest) -> Permission:
        ours = our_tool(request.tool)
        if ours is not None and any(wire_name(tool.name) == ours for tool in self.served()):
            # It comes to ``serve`` and passes every stage there, under its own name.
            return Permission(True)
        kind = await classified(request, self._workspace, self._s.files, self._spec.name)
        known_by = essence(kind.name, request.args)
        call = self._facts(
            kind.name,
            request.args,
            kind.effect,
            kind.safety,
            Origin.OWN,
            own_name=request.tool,
            title=request.title,
            known_by=known_by,
            essence=known_by,
            commands=command_lines.of_own_call if kind.name == "exec" else None,
            check=lambda args: classify(request.tool, args, self._workspace, str).refused,
        )
        admitted, replay = call, await self._made_before(call, request.tool, known_by)
        if replay is None:
            admitted, stopped = await self._s.pipeline.admit(call)
            if isinstance(stopped, Suspend):
                admitted, stopped = await self._held(admitted, stopped)
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
            self._own.under_way[call.call_id] = request.tool
            self._work.busy += 1
        changed = None if admitted.args is call.args else admitted.args
        return Permission(True, args=changed)

    async def own_finished(self, name: str, ok: bool, preview: str) -> None:
        """The engine's stream tells that a call of its own has ended: the oldest of that name."""
        self._s.pipeline.tracer.own_ended(self._work.lease.message.message_id, name, ok)
        found = next((i for i, tool in self._own.under_way.items() if tool == name), None)
        if found is not None:
            del self._own.under_way[found]
            self._work.busy -= 1
            await self._finish_own(found, ok, preview[:_OWN_CHARS])

    async def own_ended(self) -> None:
        """The engine ended its segment in order, so whatever it had begun has ended too."""
        while self._own.under_way:
            call_id, _ = self._own.under_way.popitem()
            self._work.busy -= 1
            await self._finish_own(call_id, True, _UNTOLD)

    async def _finish_own(self, call_id: CallId, ok: bool, text: str) -> None:
        call = self._facts_of_own(call_id)
        shown = await self._s.pipeline.shown(call, ToolResult(ok, text))
        await self._s.journal.finish(call_id, ok, shown.text)

    # -- children ------------------------------------------------------------------------------------

    async def spawned(self, pgid: int, started_ticks: int, argv0: str) -> None:
        await self._s.processes.record(
            self._agent_id,
            self._work.lease.message.message_id,
            GroupRecord(pgid, started_ticks, argv0),
        )

    async def reaped(self, pgid: int) -> None:
        await self._s.processes.forget(self._work.lease.message.message_id, pgid)

    @property
    def slot(self) -> TurnPlace:
        return self._work.slot

    # -- inside --------------------------------------------------------------------------------------

    def _facts(
        self,
        name: str,
        args: dict[str, Any],
        effect: Effect,
        safety: Safety,
        origin: Origin,
        known_by: dict[str, Any] | None = None,
        **more: Any,
    ) -> CallFacts:
        message = self._work.lease.message
        key = call_key(name, args if known_by is None else known_by)
        self._counts[key] += 1
        call_id = CallId(f"{message.message_id}:{key}:{self._counts[key]}")
        return CallFacts(
            call_id=call_id,
            name=name,
            args=args,
            effect=effect,
            safety=safety,
            origin=origin,
            agent_id=self._agent_id,
            agent_name=self._spec.name,
            message_id=message.message_id,
            session_id=message.session_id,
            ordinal=self._counts.total(),
            patterns=self._bounds.tools,
            role=self._bounds.role,
            role_patterns=self._bounds.ceiling,
            callers=self._bounds.callers,
            permission_mode=self._spec.permission_mode or "",
            answer=self._answers.get(call_id),
            room_chars=lambda: TURN_CHARS - self._shown,
            **more,
        )

    def _facts_of_own(self, call_id: CallId) -> CallFacts:
        message = self._work.lease.message
        return CallFacts(
            call_id=call_id,
            name="own",
            args={},
            effect=Effect.BLIND,
            safety=Safety.DANGEROUS,
            origin=Origin.OWN,
            agent_id=self._agent_id,
            agent_name=self._spec.name,
            message_id=message.message_id,
            session_id=message.session_id,
        )

    def _context(self, call_id: CallId) -> ToolContext:
        message = self._work.lease.message
        return ToolContext(
            agent_id=self._agent_id,
            agent_name=self._spec.name,
            message_id=message.message_id,
            session_id=message.session_id,
            fence=self._work.lease.fence,
            call_id=call_id,
            waiting=self._work.slot,
            workspace=self._workspace,
            children=self,
            acts_as=self._acts_as,
            person=message.person,
        )

    def _count(self, result: ToolResult) -> ToolResult:
        self._shown += len(result.text)
        return result

    async def _made_before(
        self, call: CallFacts, name: str, known_by: dict[str, Any] | None = None
    ) -> Replay | None:
        """The result of the same call in an earlier segment: no stage is asked about it again.

        Raises ``LeaseLost`` for a turn that was stopped: an engine that did not obey gets nothing.
        """
        message_id, fence = call.message_id, self._work.lease.fence
        if self._work.stopped:
            raise LeaseLost(f"the turn on {message_id} was stopped", message_id=message_id)
        if self._before is None:
            ended, calls = ("done", "failed", "skipped"), await self._s.journal.calls(message_id)
            self._before = frozenset(each.call_id for each in calls if each.state in ended)
        if call.call_id not in self._before:
            return None
        # The journal looks at the lease, too. A recorded call was no mere reading when it was made.
        return await self._s.journal.begin(
            call.call_id, message_id, fence, name, Effect.BLIND, known_by or call.args
        )
