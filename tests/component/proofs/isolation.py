"""P3: one agent's trouble stays its own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentsup.channels.core.receiving import ChatOrigin
from agentsup.daemon.assembly import tool_pipeline
from agentsup.daemon.runtime.fleet import Fleet, FleetUnit
from agentsup.engines.process import Fencing
from agentsup.mailbox.delivery import Relay
from agentsup.mailbox.delivery.attempt import RelayLimits
from agentsup.mailbox.messages import MailboxContext
from agentsup.mailbox.queue import admission
from agentsup.mailbox.work import pump
from agentsup.mailbox.work.slots import SharedSlots, SlotPool
from agentsup.model.agent import AgentSpec
from agentsup.model.errors import Overloaded
from agentsup.model.ids import AgentId
from agentsup.model.message import LaneName
from agentsup.store import Reader
from agentsup.supervision import ChildContext, child
from agentsup.supervision.policy import Decision, Rebuild, Settle, decide
from tests.component.proofs.house import EVA, ProofDaemon, agent
from tests.component.proofs.proof import Claim, Proof, Removal

claim = Claim("P3")
QUIET_S = 0.25
"""In virtual time a turn takes what the inline store draws for its commits: some 30 ms."""
GOOD = [{"match": "(.*)", "steps": [{"say": "good $1"}]}]
BAD: list[dict[str, Any]] = [
    {"match": "hang", "steps": [{"hang": True}]},
    {"match": "crash", "steps": [{"crash": "boom"}]},
    {"match": "slow", "steps": [{"sleep": 30}, {"say": "slow"}]},
]


async def answers_in_time(house: ProofDaemon, number: str) -> None:
    """The neighbour answers as if it were alone."""
    await house.say("good", number, f"good-{number}")
    await claim.comes(
        lambda: house.heard(f"good {number}"), QUIET_S, f"the neighbour was held up at {number}"
    )


async def a_hang_delays_no_other(home: Path) -> None:
    """Every slot of one agent is held by turns that never end."""
    async with ProofDaemon(home, [agent("main"), agent("bad", BAD), agent("good", GOOD)]) as house:
        for number in range(6):
            await house.say("bad", "hang", f"bad-{number}")
        await asyncio.sleep(2)
        for number in range(5):
            await answers_in_time(house, str(number))


async def a_crash_loop_delays_no_other(home: Path) -> None:
    """Every message of one agent brings its stack down."""
    async with ProofDaemon(home, [agent("main"), agent("bad", BAD), agent("good", GOOD)]) as house:
        instance = house.unit("good").instance_id
        for number in range(4):
            await house.say("bad", "crash", f"bad-{number}")
        for number in range(20):
            await answers_in_time(house, str(number))
            await asyncio.sleep(1)
        claim.holds(house.unit("bad").child.status.life > 1, "nothing crashed")
        claim.holds(house.unit("good").instance_id == instance, "the neighbour was rebuilt, too")


class Fuse:
    """An engine factory that fails until it is mended, and notes when it was asked."""

    def __init__(self) -> None:
        self.asked_at_s: list[float] = []
        self.house: ProofDaemon | None = None
        self.is_mended = False

    def __call__(self) -> Any:
        self.asked_at_s.append(asyncio.get_running_loop().time())
        if not self.is_mended:
            raise RuntimeError("no such binary")
        assert self.house is not None
        return self.house.daemon.engines.get("scripted")


async def a_broken_agent_is_given_up_and_revived(home: Path) -> None:
    """An agent that can't start: ever slower tries, an end of them, word of it, a revival."""
    fuse = Fuse()
    agents = [agent("main"), agent("good", GOOD), {"name": "bad", "engine": "command"}]
    async with ProofDaemon(home, agents, engines={"command": fuse}) as house:
        fuse.house = house
        await claim.comes(
            lambda: house.state("bad") == "failed", 600, "it is never given up, and tries for ever"
        )
        await answers_in_time(house, "1")
        gaps = [b - a for a, b in zip(fuse.asked_at_s, fuse.asked_at_s[1:], strict=False)]
        claim.holds(len(gaps) == 5, f"{len(gaps)} restarts before it was given up, not 5")
        claim.holds(sum(gaps) > 15 and gaps[-1] > 4 * gaps[0], f"the tries do not back off: {gaps}")
        await claim.comes(lambda: house.heard("bad has failed"), 10, "nobody was told")
        fuse.is_mended = True
        reply = await house.daemon.inbox.say(
            agent_name="main",
            where=ChatOrigin("console", "c1"),
            text="/agent_start bad",
            principal=EVA,
            external_id="revive",
        )
        claim.holds(reply.ok, f"it can't be revived from chat: {reply.text}")
        await claim.comes(lambda: house.state("bad") == "running", 10, "it stays down")


async def a_flood_is_refused_at_its_own_limit(home: Path) -> None:
    """One agent is sent more than its queue takes; the other's queue stays open."""
    agents = [agent("main"), agent("bad", BAD, queue_limit=20), agent("good", GOOD, queue_limit=20)]
    async with ProofDaemon(home, agents) as house:
        refused = 0
        for number in range(50):
            try:
                await house.say("bad", "slow", f"bad-{number}")
            except Overloaded:
                refused += 1
        try:
            await answers_in_time(house, "1")
        except Overloaded as error:
            claim.broken(f"the neighbour's mail was refused: {error}")
        claim.holds(refused == 30, f"{refused} of 50 messages were refused at a limit of 20")


async def a_stuck_send_delays_no_other(home: Path) -> None:
    """A send to one person's conversation hangs; others get their answers."""
    async with ProofDaemon(home, [agent("main"), agent("bad", GOOD), agent("good", GOOD)]) as house:
        house.channel.plan_for("stuck", asyncio.Event())
        await house.say("bad", "0", "stuck")
        await claim.comes(lambda: house.channel.attempts, 10, "nothing was delivered")
        for number in range(1, 4):
            await answers_in_time(house, str(number))


# -- removals --------------------------------------------------------------------------------------


def _one_slot_table(patch: pytest.MonkeyPatch) -> None:
    pools: list[SlotPool] = []
    wakes: list[Callable[[], None]] = []

    def wake_all() -> None:
        for wake in wakes:
            wake()

    def slots(
        limits: Mapping[LaneName, int],
        on_free: Callable[[], None],
        shared: Mapping[LaneName, SharedSlots] | None = None,
        *,
        on_shared: Callable[[], None] | None = None,
    ) -> SlotPool:
        wakes.append(on_shared or on_free)
        if not pools:
            pools.append(SlotPool(limits, wake_all, shared))
        return pools[0]

    patch.setattr(pump, "SlotPool", slots)


def _one_fate(patch: pytest.MonkeyPatch) -> None:
    """A stack's crash ends all stacks, as in one shared task group."""
    original, lives = Fleet.add, dict[AgentId, asyncio.Task[Any] | None]()

    def add(self: Fleet, agent_id: AgentId, spec: AgentSpec) -> FleetUnit:
        unit = original(self, agent_id, spec)
        live = unit.child.spec.factory

        async def together(ctx: ChildContext) -> None:
            lives[agent_id] = asyncio.current_task()
            try:
                await live(ctx)
            except Exception:
                for whose, life in lives.items():
                    if whose != agent_id and life is not None:
                        life.cancel()
                raise
            finally:
                lives[agent_id] = None

        unit.child.spec = replace(unit.child.spec, factory=together)
        return unit

    patch.setattr(Fleet, "add", add)


def _decided(patch: pytest.MonkeyPatch, change: Callable[[Decision], Decision]) -> None:
    original = decide
    patch.setattr(child, "decide", lambda *args, **rest: change(original(*args, **rest)))


def _never_give_up(patch: pytest.MonkeyPatch) -> None:
    _decided(patch, lambda d: Rebuild(120.0) if isinstance(d, Settle) else d)


def _one_queue(patch: pytest.MonkeyPatch) -> None:
    def check(ctx: MailboxContext, reader: Reader, agent_id: str, size: int | None = None) -> None:
        size = reader.scalar(
            "SELECT SUM(count) FROM counts WHERE state IN ('queued', 'leased', 'parked')"
        )
        if (size or 0) >= ctx.limits.queue_limit_for(agent_id):
            raise Overloaded("the queue is full")

    patch.setattr(admission, "check_room", check)


async def what_one_runs_reaches_no_other(home: Path) -> None:
    """A program of one agent tries to read and to change what is another's, and the daemon's."""
    call = {"name": "exec", "args": {"argv": ["/bin/sh", "tries"]}}
    rules = [{"match": "go", "steps": [{"tool": call}, {"say": "$result"}]}]
    bad = agent("bad", rules, tools=["exec"], permission_mode="bypassPermissions")
    async with ProofDaemon(home, [agent("main"), bad, agent("good")], is_real=True) as house:
        place = house.home
        theirs = place.workspace("good") / "notes"
        await claim.comes(theirs.parent.exists, 10, "good is not up")
        theirs.write_text("of good")
        lines = (
            f"cat {theirs} {place.agents_json}",
            f"echo x >> {theirs}",
            f"kill -0 {os.getpid()}",
            "echo tried",
        )
        (place.workspace("bad") / "tries").write_text("\n".join(lines))
        await house.say("bad", "go")
        await claim.comes(lambda: house.heard("tried"), 10, "the program did not run")
        said = str(await house.sql("SELECT body FROM outbox"))
        claim.holds("of good" not in said, "it read another agent's file")
        claim.holds("engine_options" not in said, "it read the configuration")
        claim.holds(theirs.read_text() == "of good", "it wrote to another agent's file")
        claim.holds("kill" in said, "it may send the daemon a signal")


def _nothing_closed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tool_pipeline, "fencing_of", lambda *args, **more: Fencing)


def _one_delivery_at_a_time(patch: pytest.MonkeyPatch) -> None:
    original = Relay.__init__

    def init(self: Relay, *args: Any, **rest: Any) -> None:
        original(self, *args, **{**rest, "limits": RelayLimits(lanes=1)})

    patch.setattr(Relay, "__init__", init)


PROOFS = (
    Proof(
        "a hang delays no other",
        "P3",
        a_hang_delays_no_other,
        Removal("one slot table for all agents", _one_slot_table),
    ),
    Proof(
        "a crash loop delays no other",
        "P3",
        a_crash_loop_delays_no_other,
        Removal("one fate for all stacks", _one_fate),
    ),
    Proof(
        "a broken agent is given up and revived",
        "P3",
        a_broken_agent_is_given_up_and_revived,
        Removal("restarts for ever", _never_give_up),
    ),
    Proof(
        "a flood is refused at its own limit",
        "P3",
        a_flood_is_refused_at_its_own_limit,
        Removal("one queue limit for all agents", _one_queue),
    ),
    Proof(
        "a stuck send delays no other",
        "P3",
        a_stuck_send_delays_no_other,
        Removal("one delivery at a time", _one_delivery_at_a_time),
    ),
    Proof(
        "what one runs reaches no other",
        "P3",
        what_one_runs_reaches_no_other,
        Removal("nothing is closed to programs", _nothing_closed),
        is_real=True,
    ),
)
