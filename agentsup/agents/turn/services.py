"""The services that turns use, and the endpoints at which programs of engines call our tools.

An endpoint is found by the token of its turn and is open exactly as long as its segment. Closing it
stops the calls that still run, so nothing is done in the name of a turn that has ended.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from agentsup.agents.budget.spending import BudgetReservations, StoredBudget
from agentsup.agents.media import MediaReader
from agentsup.agents.memory.preparation import TurnPreparer, TurnStart
from agentsup.agents.persona.context import AgentContext, RunTokens
from agentsup.agents.pipeline import Pipeline
from agentsup.agents.recovery.breakers import Breakers
from agentsup.agents.recovery.tiers import EngineProblems
from agentsup.agents.roles.limits import RoleLimits, Roles
from agentsup.agents.tools.daemon_tools import Restarts
from agentsup.agents.workspace.processes import ProcessTable
from agentsup.kit.clock import Clock
from agentsup.kit.pool import BoundedPool
from agentsup.kit.tasks import OwnerClosed, TaskOwner
from agentsup.mailbox import Mailbox
from agentsup.mailbox.work import Journal, Work
from agentsup.model.agent import AgentSpec
from agentsup.model.errors import Unauthorised
from agentsup.model.hook import Approver
from agentsup.model.ids import AgentId
from agentsup.model.message import Lease, Message
from agentsup.model.tool import Tool, ToolRegistry, ToolResult
from agentsup.observe import LiveHub, Redactor
from agentsup.observe.traces import OtelTracer
from agentsup.store import Database
from agentsup.tasks import Briefing, StoredRun

CLOSE_S = 2.0
"""Seconds in which a call must obey when its turn ends."""

ServeCall = Callable[[str, dict[str, Any]], Coroutine[Any, Any, ToolResult]]


class TurnEndpoint:
    """The open endpoint of one segment. ``tools()`` returns the tools that its program is offered,
    ``serve`` answers a call."""

    def __init__(self, tools: Callable[[], tuple[Tool, ...]], serve: ServeCall) -> None:
        self.tools = tools
        self._serve = serve
        self._owner = TaskOwner("tools", on_error=lambda task, error: None)  # ``call`` raises it
        self._under_way: dict[str, asyncio.Task[ToolResult]] = {}

    async def call(self, name: str, args: dict[str, Any], request_id: str) -> ToolResult:
        """Call a tool through the pipeline. If a person is asked first, the call waits.

        ``request_id`` is the program's own id, for ``cancel``. Raises ``Unauthorised`` if the turn
        has ended or ends meanwhile, or the call is cancelled, and what the pipeline raises.
        """
        try:
            task = self._owner.spawn(self._serve(name, args), name=f"tools:{name[:64]}")
        except OwnerClosed:
            raise _ended() from None
        self._under_way[request_id] = task
        try:
            await asyncio.wait({task})
        finally:
            task.cancel()
            if self._under_way.get(request_id) is task:
                del self._under_way[request_id]
        if task.cancelled():
            raise _ended()
        return task.result()

    def cancel(self, request_id: str) -> None:
        """Cancel a call that the program gave up."""
        task = self._under_way.get(request_id)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """Stop the running calls, within ``CLOSE_S``, and accept no more."""
        await self._owner.close(CLOSE_S)


class TurnEndpoints:
    """The open endpoints by the digests of their tokens; the tokens are not held."""

    def __init__(self) -> None:
        self._open: dict[bytes, TurnEndpoint] = {}

    @asynccontextmanager
    async def serving(
        self, token: str, tools: Callable[[], tuple[Tool, ...]], serve: ServeCall
    ) -> AsyncIterator[None]:
        """Calls with ``token`` go to ``serve`` inside the block, and nowhere after it."""
        key, turn = _digest(token), TurnEndpoint(tools, serve)
        self._open[key] = turn
        try:
            yield
        finally:
            del self._open[key]
            await turn.close()

    def find(self, token: str) -> TurnEndpoint | None:
        """The running turn for which a token was issued, or None."""
        return self._open.get(_digest(token))


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _ended() -> Unauthorised:
    return Unauthorised(
        "the turn that this token was made for has ended, or the call was cancelled"
    )


@dataclass(frozen=True, slots=True)
class HostServices:
    """The services that the hosts of all turns share."""

    tools: ToolRegistry
    pipeline: Pipeline
    approver: Approver
    journal: Journal
    processes: ProcessTable
    files: BoundedPool
    tracer: OtelTracer = field(default_factory=OtelTracer)
    """Makes spans of calls."""

    def documents(self) -> list[dict[str, Any]]:
        """The stages of the pipeline as they are now."""
        return [
            {
                "phase": hook.phase.value,
                "priority": hook.priority,
                "name": hook.name,
                "on": hook.is_on,
                "fixed": hook.is_fixed,
                "about": hook.about,
            }
            for hook in self.pipeline.hooks.rows()
        ]


@dataclass(frozen=True, slots=True)
class StoredTurn:
    """The result of a turn's one read. None: it was not read."""

    memory: TurnStart | None = None
    run: StoredRun | None = None
    budget: StoredBudget | None = None


@dataclass(frozen=True, slots=True)
class TurnServices:
    """The services that all turns of the daemon share."""

    database: Database
    mailbox: Mailbox
    journal: Journal
    live: LiveHub
    clock: Clock
    calls: HostServices
    tokens: RunTokens
    before_turn: TurnPreparer
    """Recalls memories and shortens long sessions."""
    brief: Briefing
    """Makes the extra instructions, environment and folders of a run's turn."""
    roles: Roles
    """Finds the limits of a turn's role."""
    spending: BudgetReservations
    """Reserves what turns will use and ends turns that use too much."""
    zone_of: Callable[[str, str], str] = lambda agent_id, person: "UTC"
    """The name of the time zone of a person, as an agent is to see it."""
    media: MediaReader = field(default_factory=MediaReader)
    """Reads the files that come with messages."""
    served: TurnEndpoints = field(default_factory=TurnEndpoints)
    """The turns whose programs call our tools over MCP."""
    restarts: Restarts = field(default_factory=Restarts)
    """Turns after which the agent's stack is rebuilt."""
    breakers: Breakers = field(init=False)
    """The circuit breakers of all providers."""
    problems: EngineProblems = field(default_factory=EngineProblems)
    """Why models could not answer last."""
    redactor: Redactor = field(default_factory=Redactor)
    """Masks the daemon's secrets in the output of engines: a program knows its own key."""
    tracer: OtelTracer = field(default_factory=OtelTracer)
    """Makes spans of segments, engine runs and requests to models."""
    turn_ended: Callable[[str, str, float], None] = lambda agent, outcome, seconds: None
    """Called when the work on a lease ends, with the agent's name, ok | failed | parked | retry |
    cancelled, and the duration in seconds."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "breakers", Breakers(self.clock))


@dataclass(frozen=True, slots=True)
class TurnContext:
    """One turn: whose message it is, who works on it, and under which lease."""

    services: TurnServices
    agent_id: AgentId
    """The agent that owns the message."""
    agent: AgentContext
    """The agent that does the turn."""
    bounds: Callable[[AgentSpec], Awaitable[RoleLimits]]
    """Returns what the turn may use, from the spec of the agent that does it."""
    work: Work

    @property
    def lease(self) -> Lease:
        return self.work.lease

    @property
    def message(self) -> Message:
        return self.work.lease.message
