"""The fleet: every agent's supervised child and its present stack.

One child per agent, one stack per life. Children know nothing of each other: one that hangs, fails
or is rebuilt delays no other (P3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from agentsup.agents.stack import AgentStack
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox.bus import Asker
from agentsup.model.agent import AgentSpec
from agentsup.model.errors import LeaseLost
from agentsup.model.health import AgentState
from agentsup.model.ids import AgentId, InstanceId
from agentsup.supervision.board import Board, ChildStatus
from agentsup.supervision.child import SupervisedChild
from agentsup.supervision.policy import EndKind, RestartPolicy
from agentsup.supervision.spec import ChildContext, ChildSpec, Grace, Restart

MAIN_PATIENCE = 5
"""A main agent that is slow to start is reported and left alone; only after this many times the
usual limit is its start a failure, since that ends the daemon."""
FIRST_ATTEMPT_S = 10.0
"""How long an agent's readiness waits for the first attempt of its channel to connect."""
StackMaker = Callable[[AgentSpec, AgentId, InstanceId], AgentStack]


@dataclass(slots=True)
class Unit:
    """One agent as the daemon runs it. ``spec`` is the wanted one; the stack may lag behind it."""

    agent_id: AgentId
    spec: AgentSpec
    child: SupervisedChild
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    stack: AgentStack | None = None
    built: AgentSpec | None = None
    """What the present life was built from."""
    instance_id: str = ""
    engine: str = ""
    """The engine that the present life thinks with."""
    last_crash_error: str = ""
    pending: str = ""
    ctx: ChildContext | None = None
    """The present life, to tell it how its channel fares."""


class Fleet:
    """The units by ``agent_id``."""

    def __init__(
        self,
        *,
        clock: Clock,
        entropy: Entropy,
        board: Board,
        make_stack: StackMaker,
        on_main_exit: Callable[[int], None],
        grace: Grace,
        ready_timeout_s: float,
        main_restarts: Callable[[], bool],
        channel_untried: Callable[[str], asyncio.Event | None] = lambda _: None,
        trouble: Callable[[str], str | None] = lambda _: None,
    ) -> None:
        """``channel_untried(agent_id)`` is set once the agent's channel has tried to connect (None:
        nothing to wait for); ``trouble(agent_id)`` is what it works on without."""
        self._clock = clock
        self._entropy = entropy
        self._board = board
        self._make_stack = make_stack
        self._on_main_exit = on_main_exit
        self._grace = grace
        self._ready_timeout_s = ready_timeout_s
        self._main_restarts = main_restarts
        self._channel_untried = channel_untried
        self._trouble = trouble
        self._units: dict[str, Unit] = {}

    def add(self, agent_id: AgentId, spec: AgentSpec) -> Unit:
        """A unit for a new agent, not started yet."""

        async def life(ctx: ChildContext) -> None:
            await self._live(agent_id, ctx)

        child = SupervisedChild(
            ChildSpec(
                child_id=agent_id,
                factory=life,
                restart=Restart.PERMANENT,
                significant=spec.is_main,
                ready_timeout_s=self._ready_timeout_s * (MAIN_PATIENCE if spec.is_main else 1),
                grace=self._grace,
                policy=self._policy(spec),
            ),
            clock=self._clock,
            entropy=self._entropy,
            record=self._record,
            on_exit=self._on_main_exit,
        )
        unit = Unit(agent_id, spec, child)
        self._units[agent_id] = unit
        return unit

    def update(self, unit: Unit, spec: AgentSpec) -> None:
        """Take over an edited spec: live fields at once, the rest with the next life."""
        unit.spec = spec
        unit.child.spec = replace(unit.child.spec, policy=self._policy(spec))
        if unit.stack is not None:
            unit.stack.apply(spec)

    def remove(self, agent_id: str) -> None:
        """Forget a unit whose child is down."""
        self._units.pop(agent_id, None)
        self._board.forget(agent_id)

    def get(self, agent_id: str) -> Unit | None:
        return self._units.get(agent_id)

    def units(self) -> tuple[Unit, ...]:
        return tuple(self._units.values())

    def stacks(self) -> Iterable[AgentStack]:
        """The stacks that live now."""
        return [unit.stack for unit in self._units.values() if unit.stack is not None]

    def asker(self, message_id: str) -> Asker | None:
        """Implements ``agents.tools.peers.Askers``."""
        for stack in self.stacks():
            found = stack.asker(message_id)
            if found is not None:
                return found
        return None

    def turn_behind(self, message_id: str) -> Asker | None:
        """The turn in whose name a token asks; None for a token of no turn. Raises ``LeaseLost``
        where the turn is left behind: nothing that still lives of it has anything done."""
        found = self.asker(message_id) if message_id else None
        if message_id and found is None:
            raise LeaseLost("the turn that asks is over", message_id=message_id)
        return found

    def status(self, agent_id: str) -> tuple[str, str]:
        """State and last reason, for the directory."""
        unit = self._units.get(agent_id)
        if unit is None:
            return AgentState.STOPPED.value, ""
        return unit.child.state.value, unit.child.status.reason

    def look_again(self, agent_id: str = "") -> None:
        """Something that an agent (or, without an id, each) works on without may have changed; it is
        degraded meanwhile."""
        for unit in self.units():
            if unit.ctx is not None and agent_id in ("", unit.agent_id):
                unit.ctx.degraded(self._trouble(unit.agent_id))

    async def stop_all(self, grace: Grace | None, *, main_last: bool = True) -> None:
        """Stop the sub-agents together, then main; bounded by twice the grace."""
        subs = [u for u in self._units.values() if not (main_last and u.spec.is_main)]
        mains = [u for u in self._units.values() if main_last and u.spec.is_main]
        for group in (subs, mains):
            if group:
                async with asyncio.TaskGroup() as stops:
                    for unit in group:
                        stops.create_task(unit.child.stop(grace), name=f"stop:{unit.agent_id}")

    # -- inside ------------------------------------------------------------------------------------

    async def _live(self, agent_id: AgentId, ctx: ChildContext) -> None:
        """One life of an agent: a fresh stack from the spec as it is now."""
        unit = self._units[agent_id]
        instance_id = InstanceId(self._entropy.new_id("ins"))
        stack = self._make_stack(unit.spec, agent_id, instance_id)
        unit.instance_id, unit.stack, unit.built = instance_id, stack, stack.spec
        unit.engine = stack.engine.name

        owner = TaskOwner(f"agent {unit.spec.name}")

        def ready() -> None:
            unit.pending = ""
            untried = self._channel_untried(agent_id)
            if untried is None:
                ctx.ready()
            else:
                owner.spawn(_ready_after(untried, ctx), name=f"first-attempt:{agent_id}")

        unit.ctx = ctx
        ctx.degraded(self._trouble(agent_id))
        try:
            await stack.run(ready, ctx.draining)
        finally:
            if unit.stack is stack:
                unit.stack, unit.ctx = None, None
            await owner.close(0.1)

    def _record(self, status: ChildStatus) -> None:
        unit = self._units.get(status.child_id)
        end = status.last_end
        if unit is not None and end is not None and not end.wanted:
            if end.kind in (EndKind.CRASHED, EndKind.START_FAILED):
                unit.last_crash_error = end.reason
            elif end.kind is EndKind.EXIT_REQUESTED:
                unit.last_crash_error = ""
        self._board.record(status)

    def _policy(self, spec: AgentSpec) -> RestartPolicy:
        r = spec.restart
        return RestartPolicy(
            base_s=r.base_s,
            factor=r.factor,
            cap_s=r.cap_s,
            jitter=r.jitter,
            max_restarts=r.max_restarts,
            window_s=r.window_s,
            stable_s=r.stable_s,
            exit42_max=r.exit42_max,
            exit42_window_s=r.exit42_window_s,
            main_restarts=self._main_restarts() and spec.is_main,
        )


async def _ready_after(tried: asyncio.Event, ctx: ChildContext) -> None:
    """Ready once the channel has tried; one that hangs in its attempt is not waited for."""
    try:
        async with asyncio.timeout(FIRST_ATTEMPT_S):
            await tried.wait()
    except TimeoutError:
        pass
    ctx.ready()
