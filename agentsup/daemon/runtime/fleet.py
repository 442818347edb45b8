"""The fleet: every agent's supervised child and its current stack.

One child per agent, one stack per life. Children share nothing: one that hangs, fails or is rebuilt
delays no other (P3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace

from agentsup.agents import AgentStack
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.kit.tasks import TaskOwner, is_set_within
from agentsup.mailbox.mail import Asker
from agentsup.model.agent import AgentSpec
from agentsup.model.errors import LeaseLost
from agentsup.model.health import AgentState
from agentsup.model.ids import AgentId, InstanceId
from agentsup.supervision import (
    Board,
    ChildContext,
    ChildSpec,
    ChildStatus,
    EndKind,
    Grace,
    Restart,
    RestartPolicy,
    SupervisedChild,
)

MAIN_PATIENCE = 5
"""The factor on the ready limit for main. A slow start of main is only reported; it counts as
failed after this many times the limit, since that ends the daemon."""
FIRST_ATTEMPT_S = 10.0
"""The time in seconds for which an agent's readiness waits for its channels' first attempt to
connect."""
StackMaker = Callable[[AgentSpec, AgentId, InstanceId], AgentStack]


@dataclass(slots=True)
class FleetUnit:
    """One agent as the daemon runs it. ``spec`` is the wanted one; the stack may be older."""

    agent_id: AgentId
    spec: AgentSpec
    child: SupervisedChild
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    stack: AgentStack | None = None
    built: AgentSpec | None = None
    """The spec from which the current life was built."""
    instance_id: str = ""
    engine: str = ""
    """The name of the engine of the current life."""
    last_crash_error: str = ""
    pending: str = ""
    ctx: ChildContext | None = None
    """The context of the current life, by which it is reported as ready or degraded."""


@dataclass(slots=True, eq=False)
class Fleet:
    """The units by ``agent_id``."""

    clock: Clock
    entropy: Entropy
    board: Board
    make_stack: StackMaker
    on_main_exit: Callable[[int], None]
    grace: Grace
    ready_timeout_s: float
    main_restarts: Callable[[], bool]
    channel_untried: Callable[[str], asyncio.Event | None] = lambda _: None
    """Returns an event that is set once the agent's channels have tried to connect; None if there
    is nothing to wait for."""
    degraded_reason: Callable[[str], str | None] = lambda _: None
    """Returns why the agent is degraded, or None."""
    _units: dict[str, FleetUnit] = field(init=False, default_factory=dict)

    def add(self, agent_id: AgentId, spec: AgentSpec) -> FleetUnit:
        """A unit for a new agent, not started yet."""

        async def life(ctx: ChildContext) -> None:
            await self._live(agent_id, ctx)

        child = SupervisedChild(
            ChildSpec(
                child_id=agent_id,
                factory=life,
                restart=Restart.PERMANENT,
                significant=spec.is_main,
                ready_timeout_s=self.ready_timeout_s * (MAIN_PATIENCE if spec.is_main else 1),
                grace=self.grace,
                policy=self._policy(spec),
            ),
            clock=self.clock,
            entropy=self.entropy,
            record=self._record,
            on_exit=self.on_main_exit,
        )
        unit = FleetUnit(agent_id, spec, child)
        self._units[agent_id] = unit
        return unit

    def update(self, unit: FleetUnit, spec: AgentSpec) -> None:
        """Take an edited spec: live fields take effect at once, the others with the next life."""
        unit.spec = spec
        unit.child.spec = replace(unit.child.spec, policy=self._policy(spec))
        if unit.stack is not None:
            unit.stack.apply(spec)

    def remove(self, agent_id: str) -> None:
        """Forget a unit whose child has stopped."""
        self._units.pop(agent_id, None)

    def get(self, agent_id: str) -> FleetUnit | None:
        return self._units.get(agent_id)

    def units(self) -> tuple[FleetUnit, ...]:
        return tuple(self._units.values())

    def stacks(self) -> Iterable[AgentStack]:
        """The stacks that run now."""
        return [unit.stack for unit in self._units.values() if unit.stack is not None]

    def asker(self, message_id: str) -> Asker | None:
        """The running turn of a message, of any agent."""
        for stack in self.stacks():
            found = stack.asker(message_id)
            if found is not None:
                return found
        return None

    def turn_behind(self, message_id: str) -> Asker | None:
        """The turn for which a run token was issued; None for a token without a turn.

        Raises ``LeaseLost`` if the turn is over, so that a program that outlived it can do nothing.
        """
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

    def check_again(self, agent_id: str = "") -> None:
        """Ask again why the agent (or, without an id, each agent) is degraded, after a change."""
        for unit in self.units():
            if unit.ctx is not None and agent_id in ("", unit.agent_id):
                unit.ctx.degraded(self.degraded_reason(unit.agent_id))

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
        """One life of an agent: a new stack from the current spec."""
        unit = self._units[agent_id]
        instance_id = InstanceId(self.entropy.new_id("ins"))
        stack = self.make_stack(unit.spec, agent_id, instance_id)
        unit.instance_id, unit.stack, unit.built = instance_id, stack, stack.spec
        unit.engine = stack.engine.name

        owner = TaskOwner(f"agent {unit.spec.name}")

        def ready() -> None:
            unit.pending = ""
            untried = self.channel_untried(agent_id)
            if untried is None:
                ctx.ready()
            else:
                owner.spawn(_ready_after(untried, ctx), name=f"first-attempt:{agent_id}")

        unit.ctx = ctx
        ctx.degraded(self.degraded_reason(agent_id))
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
        self.board.record(status)

    def _policy(self, spec: AgentSpec) -> RestartPolicy:
        is_rebuilt = self.main_restarts() and spec.is_main
        return RestartPolicy(**asdict(spec.restart), main_restarts=is_rebuilt)


async def _ready_after(tried: asyncio.Event, ctx: ChildContext) -> None:
    """Report the agent as ready once its channels have tried to connect, or ``FIRST_ATTEMPT_S`` are
    over."""
    await is_set_within(tried, FIRST_ATTEMPT_S)
    ctx.ready()
