"""What a turn lends to its engine: tools through the journal, and its child processes.

Calls are numbered by content: the n-th call of one tool with the same arguments has the same
``call_id`` in every segment of the turn. A segment that starts again after a crash therefore meets
its finished calls whatever else changed, and a call whose outcome is unknown stays the same call.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from agentsup.agents.processes import ProcessTable
from agentsup.kit import faults
from agentsup.kit.procgroup import GroupRecord
from agentsup.mailbox.journal import Journal
from agentsup.mailbox.pump import Work
from agentsup.model.engine import Permission, PermissionRequest
from agentsup.model.errors import AgentsupError, LeaseLost, StoreUnavailable
from agentsup.model.ids import AgentId, CallId
from agentsup.model.tool import Effect, Tool, ToolContext, ToolRegistry, ToolResult
from agentsup.observe.logging import get_logger

_log = get_logger(__name__)


def call_key(name: str, args: dict[str, Any]) -> str:
    """A short digest of a call's content."""
    canonical = json.dumps([name, args], sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


class TurnHost:
    """Implements ``model.engine.EngineHost`` for one segment of one turn."""

    def __init__(
        self,
        *,
        work: Work,
        agent_id: AgentId,
        agent_name: str,
        tools: ToolRegistry,
        allowed: tuple[str, ...] | None,
        journal: Journal,
        processes: ProcessTable,
        counts: dict[str, int],
        on_tool: Callable[[str, str], None],
    ) -> None:
        """``counts`` are the calls made before this segment's checkpoint; ``on_tool(name, state)``
        hears of each call for people who watch."""
        self._work = work
        self._agent_id = agent_id
        self._agent_name = agent_name
        self._tools = tools
        self._allowed = allowed
        self._journal = journal
        self._processes = processes
        self._counts = Counter(counts)
        self._on_tool = on_tool

    @property
    def counts(self) -> dict[str, int]:
        """How often each call was made so far; kept in a checkpoint."""
        return dict(self._counts)

    def tools(self) -> tuple[Tool, ...]:
        allowed = self._allowed
        return tuple(t for t in self._tools.all() if allowed is None or t.name in allowed)

    async def call(self, name: str, args: dict[str, Any]) -> ToolResult:
        tool = next((t for t in self.tools() if t.name == name), None)
        if tool is None:
            known = ", ".join(sorted(t.name for t in self.tools())) or "none"
            return ToolResult(False, f"there is no tool {name!r}; available: {known}", "not_found")
        message = self._work.lease.message
        call_id = self._next_id(name, args)
        context = ToolContext(
            agent_id=self._agent_id,
            agent_name=self._agent_name,
            message_id=message.message_id,
            session_id=message.session_id,
            fence=self._work.lease.fence,
            call_id=call_id,
            waiting=self._work.slot,
        )
        return await self._journaled(
            call_id, name, tool.effect, args, lambda: tool.run(context, args)
        )

    async def perform(
        self, name: str, effect: Effect, args: dict[str, Any], run: Callable[[], Awaitable[str]]
    ) -> ToolResult:
        return await self._journaled(self._next_id(name, args), name, effect, args, run)

    async def permit(self, request: PermissionRequest) -> Permission:
        """Deny by default: what an engine would do by itself nobody has allowed."""
        return Permission(False, f"{request.tool} is not allowed for {self._agent_name}")

    async def spawned(self, pgid: int, started_ticks: int, argv0: str) -> None:
        await self._processes.record(
            self._agent_id,
            self._work.lease.message.message_id,
            GroupRecord(pgid, started_ticks, argv0),
        )

    async def reaped(self, pgid: int) -> None:
        await self._processes.forget(self._work.lease.message.message_id, pgid)

    def _next_id(self, name: str, args: dict[str, Any]) -> CallId:
        key = call_key(name, args)
        self._counts[key] += 1
        return CallId(f"{self._work.lease.message.message_id}:{key}:{self._counts[key]}")

    async def _journaled(
        self,
        call_id: CallId,
        name: str,
        effect: Effect,
        args: dict[str, Any],
        run: Callable[[], Awaitable[str]],
    ) -> ToolResult:
        lease = self._work.lease
        replay = await self._journal.begin(
            call_id, lease.message.message_id, lease.fence, name, effect, args
        )
        if replay is not None:
            return ToolResult(replay.ok, replay.text, replay.code, replayed=True)
        faults.point("journal.after_intent")
        self._on_tool(name, "started")
        self._work.note = f"tool {name}"
        result = await self._run(name, run)
        self._work.note = ""
        faults.point("journal.after_effect")
        kept = await self._journal.finish(call_id, result.ok, result.text, result.code)
        faults.point("journal.after_result")
        self._on_tool(name, "finished" if result.ok else "failed")
        return ToolResult(result.ok, kept, result.code)

    @staticmethod
    async def _run(name: str, run: Callable[[], Awaitable[str]]) -> ToolResult:
        try:
            return ToolResult(True, await run())
        except (LeaseLost, StoreUnavailable):
            raise
        except AgentsupError as error:
            return ToolResult(False, error.message, error.code)
        except Exception as error:  # noqa: BLE001 - supervision boundary: a tool's bug ends the call
            _log.exception("tool failed", tool=name)
            return ToolResult(
                False, f"the tool {name} failed: {type(error).__name__}: {error}", "tool_failed"
            )
