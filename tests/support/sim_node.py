"""One life of a daemon in simulation: the real parts on a simulated ground.

Replaced are the clock, chance, the thread of the store, the engine and the channels; the mailbox,
the pump, turns, journal, bus, relay, supervision and the stopper are those of production.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any

from agentsup.agents import AgentStack, StackServices
from agentsup.agents.tools import peer_tools
from agentsup.agents.turn.run import TurnRun
from agentsup.agents.turn.services import TurnContext
from agentsup.agents.workspace import EngineSetup, ProcessTable, SharedKnowledge
from agentsup.daemon.assembly import children
from agentsup.daemon.assembly.tool_pipeline import CallSettings, host_services
from agentsup.daemon.runtime.fleet import Fleet
from agentsup.daemon.runtime.housekeeping import EXPIRE_EVERY_S, Chore, Housekeeper
from agentsup.daemon.runtime.roster import Roster, RosterDirectory
from agentsup.daemon.runtime.stop import Stopper
from agentsup.fakes.entropy import SeededEntropy
from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox import Mailbox
from agentsup.mailbox.delivery import Relay
from agentsup.mailbox.mail import InterAgentBus
from agentsup.mailbox.messages import Completion, MailboxLimits
from agentsup.mailbox.work import Journal, Work
from agentsup.model.agent import AgentSpec, Slots
from agentsup.model.errors import AgentsupError
from agentsup.model.health import AgentState
from agentsup.model.ids import AgentId, InstanceId
from agentsup.model.message import MessageOutcome
from agentsup.observe import LiveHub
from agentsup.store import Database, StoreOptions
from agentsup.supervision import Board, ChildContext, ChildSpec, Grace, Restart, SupervisedChild
from tests.support.inline_runner import InlineRunner
from tests.support.mode_approver import ModeApprover
from tests.support.sim_script import SimEngine, parse
from tests.support.sim_world import Life, SimChannel, World
from tests.support.simloop import SeededLoop
from tests.support.turns import NoOthers, own_limits, turn_services

AGENTS = ("ann", "bob", "cat", "dan")
LIMITS = MailboxLimits(queue_limit=12, max_depth=3, max_messages_per_root=8)
SLOTS = Slots(interactive=2, peer=1, background=1)
GRACE = Grace(drain_s=1.0, cancel_s=2.0, kill_s=0.5)
OPTIONS = StoreOptions(reserve_bytes=0, slow_ms=3_600_000, batch_hold_ms=3_600_000)
_END_S = 1.0


def agent_id(name: str) -> str:
    """The id of an agent, the same in every run."""
    return f"agt_{name}"


class _Handler:
    """The turn handler of production, and for late work one that comes back when it is ended.

    That is what a host's own handler, or a thread that can't be interrupted, may do.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self.inner: Callable[[Work], Awaitable[None]] | None = None

    async def handle(self, work: Work) -> None:
        assert self.inner is not None
        message = work.lease.message
        self._node.life.begin(message, getattr(SLOTS, message.lane))
        try:
            await self.inner(work)
        except asyncio.CancelledError:
            if parse(work.lease.message.text).late and not self._node.life.is_dead:
                await self._come_back(work)
            raise

    async def _come_back(self, work: Work) -> None:
        life, lease = self._node.life, work.lease
        self._node.coming_back += 1
        until = life.clock.monotonic() + life.world.rng.uniform(0.5, 5)
        while (left_s := until - life.clock.monotonic()) > 1e-6:
            try:
                await life.clock.sleep(left_s)
            except asyncio.CancelledError:
                continue
        completion = Completion(MessageOutcome.OK, "late")
        try:
            await self._node.mailbox.leases.complete(lease, completion)
        except AgentsupError:
            return
        finally:
            self._node.coming_back -= 1
        life.touch(lease.message.message_id)
        life.world.late[lease.message.message_id] = lease.fence


class Node:
    """The parts of one life, from ``open`` to ``close`` or ``crash``."""

    def __init__(self, world: World, loop: SeededLoop, number: int) -> None:
        self.world = world
        self.life = Life(world, number)
        self._loop = loop
        self._runner = InlineRunner(
            world.path,
            clock=world.clock,
            entropy=SeededEntropy(world.clock, world.rng.getrandbits(32)),
            max_delay_s=world.rng.choice((0.0, 0.004)),
        )
        self.tasks = TaskOwner("world", on_error=self._actor_failed)
        self.coming_back = 0
        """Turns that were ended and go on all the same."""
        self._stacks: list[AgentStack] = []
        self.relay: Relay | None = None

    async def open(self) -> None:
        """Open the store and start every part, as the daemon does."""
        world, clock, entropy = self.world, self.world.clock, self.world.entropy
        boot_id = f"boot-{self.life.number}"
        self.database = database = await Database.open(
            world.path, clock=clock, runner=self._runner, options=OPTIONS
        )
        self.mailbox = Mailbox(database, clock, entropy, boot_id=boot_id, limits=LIMITS)
        await self.mailbox.load()
        self.roster = Roster(database, clock, entropy)
        await self.roster.load()
        self.directory = RosterDirectory(
            self.roster,
            status=lambda agent_id: self.fleet.status(agent_id),  # noqa: PLW0108 - later
        )
        self.bus = InterAgentBus(
            mailbox=self.mailbox,
            directory=self.directory,
            hex_digits=lambda count: "a" * count,
        )
        self.engine = SimEngine(self.life)
        self.knowledge = SharedKnowledge(world.path.with_name("absent.md"), tuple)
        self.fleet = Fleet(
            clock=clock,
            entropy=entropy,
            board=Board(),
            make_stack=self._make_stack,
            on_main_exit=lambda code: None,
            grace=GRACE,
            ready_timeout_s=60.0,
            main_restarts=lambda: True,
        )
        processes = ProcessTable(database, clock, boot_id)
        self._services = turn_services(
            database=database,
            mailbox=self.mailbox,
            journal=Journal(database, clock),
            live=LiveHub(),
            clock=clock,
            calls=host_services(
                database,
                clock,
                entropy,
                processes,
                peer_tools(self.bus, self.directory),
                CallSettings(ModeApprover()),
            ),
            tokens=_NoTokens(),
        )
        self._daemon_tasks = TaskOwner("daemon", on_error=self._actor_failed)
        self.stopper = Stopper(
            mailbox=self.mailbox,
            processes=processes,
            clock=clock,
            stacks=self.fleet.stacks,
            name_of=self.roster.name_of,
            tasks=self._daemon_tasks,
        )
        self._beside = [self._child(self._relay_spec(boot_id)), self._child(self._chores_spec())]
        for child in self._beside:
            child.start()
        for name in AGENTS:
            spec = AgentSpec(name, slots=SLOTS)
            self.fleet.add(AgentId(agent_id(name)), spec).child.start()

    def spawn(self, coro: Coroutine[Any, Any, None], name: str) -> None:
        """Somebody in the world does something during this life."""
        self.tasks.spawn(coro, name=name)

    def crash(self) -> None:
        """``kill -9``."""
        if not self.life.is_dead:
            self.life.is_dead = True
            self._runner.kill()
            self._loop.set_exception_handler(
                lambda loop, context: None
            )  # the dead retrieve nothing
            self._loop.crash()

    def lay_out(self) -> None:
        """The life is over: close its files, take what a dying step started to the dead tasks."""
        self.life.is_dead = True
        self._runner.kill()  # also where the life ended by a finding
        self._count_lost_wakes()
        if self._loop.crashed:
            self._loop._graves |= asyncio.all_tasks(self._loop)

    async def close(self) -> None:
        """An orderly end, as on SIGTERM: nobody comes in any more, then the parts stop."""
        await self.tasks.close(_END_S)
        await self.fleet.stop_all(GRACE, main_last=False)
        for child in reversed(self._beside):
            await child.stop(GRACE)
        while self.coming_back:
            await self.world.clock.sleep(0.5)
        await self._daemon_tasks.close(_END_S)
        await self.database.close()
        self.life.is_dead = True

    def revive(self) -> None:
        """A person starts what was given up."""
        for unit in self.fleet.units():
            if unit.child.state is AgentState.FAILED:
                unit.child.start()

    # -- parts -------------------------------------------------------------------------------------

    def _make_stack(
        self, spec: AgentSpec, agent_id: AgentId, instance_id: InstanceId
    ) -> AgentStack:
        home = self.world.path.parent
        handler, services = _Handler(self), self._services
        setup = EngineSetup(home, home / "workspace", lambda: "", {})
        shared = StackServices(services, self.engine, self.directory, self.knowledge, NoOthers())
        stack = AgentStack(spec, agent_id, instance_id, setup, shared, handler)

        async def run_turn(work: Work) -> None:
            await TurnRun(TurnContext(services, agent_id, stack, own_limits, work)).handle()

        handler.inner = run_turn
        self._stacks.append(stack)
        return stack

    def _relay_spec(self, boot_id: str) -> ChildSpec:
        channels = {
            name: SimChannel(name, self.life, idempotent=idempotent, on_question=self._asked)
            for name, idempotent in (("console", True), ("blind", False))
        }
        self.relay = Relay(
            self.database,
            self.world.clock,
            self.world.entropy,
            channels,
            boot_id=boot_id,
            steady=self.mailbox.context.steady,
        )
        return replace(children.relay_spec(self.relay), grace=GRACE)

    def _chores_spec(self) -> ChildSpec:
        chores = (Chore("expire", EXPIRE_EVERY_S, 0.5, self.mailbox.deadlines.expire),)
        keeper = Housekeeper(chores, self.world.clock)

        async def life(ctx: ChildContext) -> None:
            await keeper.run(ctx.ready, ctx.draining)

        return ChildSpec("housekeeping", life, Restart.PERMANENT, grace=GRACE)

    def _child(self, spec: ChildSpec) -> SupervisedChild:
        return SupervisedChild(
            spec, clock=self.world.clock, entropy=self.world.entropy, record=lambda status: None
        )

    def _asked(self, question_id: str, options: tuple[str, ...]) -> None:
        self.world.questions[question_id] = options

    def _count_lost_wakes(self) -> None:
        lost = sum(stack.lost_wakes for stack in self._stacks)
        if self.relay is not None:
            lost += self.relay.stats.lost_wakes
        if lost:
            self.world.fail("no-lost-wake", f"the nets found {lost} pieces of work")

    def _actor_failed(self, task: asyncio.Task[Any], error: BaseException) -> None:
        if not self.life.is_dead:
            self.world.fail("typed-errors", f"{task.get_name()} met {error!r}")


class _NoTokens:
    def issue_run(self, agent_id: str, agent_name: str, message_id: str) -> str:
        return ""

    def revoke(self, token: str) -> None:
        return None
