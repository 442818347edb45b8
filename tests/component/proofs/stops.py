"""P5: stop means stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest

from agentsup.engines.guard import guard
from agentsup.engines.guard.guard import open_guarded
from agentsup.engines.guard.rules import SegmentLimits
from agentsup.kit import orphan_sweep, procgroup, proctable
from agentsup.kit.clock import Clock
from agentsup.kit.orphan_sweep import GroupRecord
from agentsup.kit.process_tracker import ProcessTracker
from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox.mailbox import Mailbox
from agentsup.mailbox.messages.values import StopCounts
from agentsup.model.engine import (
    EngineCaps,
    EngineDone,
    EngineEvent,
    EngineHost,
    EngineSession,
    EngineSpec,
    Segment,
    TextDelta,
)
from agentsup.model.principal import Principal
from tests.component.proofs.house import EVA, ProofDaemon, agent
from tests.component.proofs.proof import Claim, Proof, Removal
from tests.support.bound import BOUND_S
from tests.support.daemon_process import group_members
from tests.support.engine_host import MemoryHost, segment

claim = Claim("P5")
TREE = [
    {"match": "spawn", "steps": [{"spawn": 60}]},
    {"match": "(.*)", "steps": [{"say": "answer to $1"}]},
]
SLOW = [{"match": "(.*)", "steps": [{"sleep": 5}, {"say": "answer to $1"}]}]


async def a_stop_ends_whole_process_groups(home: Path) -> None:
    """Two engines with children that ignore TERM; then everything is stopped."""
    groups: list[int] = []
    try:
        async with ProofDaemon(
            home, [agent("main", TREE), agent("ann", TREE)], is_real=True
        ) as house:
            for name in ("main", "ann"):
                await house.say(name, "spawn")
            async with asyncio.timeout(BOUND_S):
                while len(groups) < 2 or any(len(group_members(g)) < 2 for g in groups):
                    await asyncio.sleep(0.02)
                    groups = [row[0] for row in await house.sql("SELECT pgid FROM processes")]
            report = await claim.within(5, house.daemon.control.stop("all", EVA), "no report")
            left = [pid for group in groups for pid in group_members(group)]
            claim.holds(not left, f"{len(left)} processes live on after the stop")
            claim.holds(
                (report.running, report.agents) == (2, 2) and report.processes >= 4,
                f"the report counts otherwise: {report}",
            )
            await house.say("main", "still there?", "c2")
            await claim.comes(lambda: house.heard("answer to still"), 5, "the agent is gone, too")
    finally:
        for group in groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)


async def what_was_stopped_stays_stopped(home: Path) -> None:
    """A running turn and a queue are stopped; time passes, and the daemon starts anew."""
    async with ProofDaemon(home, [agent("main", SLOW)]) as house:
        for number in range(4):
            await house.say("main", f"{number}")
        await asyncio.sleep(1)
        await house.daemon.control.stop("all", EVA)
        await asyncio.sleep(60)
        await house.close()
        await house.open()
        await asyncio.sleep(60)
        answers = [text for text in house.channel.texts() if text.startswith("answer")]
        claim.holds(not answers, f"stopped work came back: {answers}")
        await house.say("main", "next")
        await claim.comes(lambda: house.heard("answer to next"), 30, "the agent does not answer")


class Deaf:
    """An engine that hears no request to end for a while, and then works on. Both parts in one."""

    name = "deaf"
    caps = EngineCaps()

    def __init__(self) -> None:
        self.works_on = False

    async def open(self, spec: EngineSpec, host: EngineHost) -> EngineSession:
        return self

    async def close(self) -> None:
        return None

    async def run(self, segment: Segment) -> AsyncIterator[EngineEvent]:
        yield TextDelta("begun")
        loop = asyncio.get_running_loop()
        until = loop.time() + 1.2
        while (left_s := until - loop.time()) > 0:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(left_s)
        await asyncio.sleep(60)
        self.works_on = True
        yield EngineDone("ok", text="too late")


async def who_was_left_behind_does_nothing_more(home: Path) -> None:
    """It ignores both requests, and hears again once its turn has been given up."""
    engine = Deaf()
    session = await open_guarded(
        engine, EngineSpec("deaf"), MemoryHost(), limits=SegmentLimits(cancel_s=0.5)
    )
    async with contextlib.aclosing(session.run(segment())) as running:
        await anext(running)
    await session.close()
    await asyncio.sleep(100)
    claim.holds(not engine.works_on, "it worked on beside the turn that got its slot")


# -- removals --------------------------------------------------------------------------------------


def _leader_only(patch: pytest.MonkeyPatch) -> None:
    async def sweep(
        records: Iterable[GroupRecord],
        detached: Iterable[GroupRecord] = (),
        *,
        clock: Clock | None = None,
    ) -> list[GroupRecord]:
        return []

    patch.setattr(os, "killpg", os.kill)
    patch.setattr(procgroup, "members", lambda pgid: [])
    patch.setattr(ProcessTracker, "orphans_of", lambda self, detached, goes_on: [])
    patch.setattr(proctable, "descendants", lambda roots: [])
    patch.setattr(orphan_sweep, "sweep", sweep)


def _left_to_itself(patch: pytest.MonkeyPatch) -> None:
    class Owner(TaskOwner):
        """Tells of nothing that is left."""

        @property
        def tasks(self) -> frozenset[asyncio.Task[Any]]:
            return frozenset()

    patch.setattr(guard, "TaskOwner", Owner)


def _unwritten_stop(patch: pytest.MonkeyPatch) -> None:
    """Turns are ended, and neither rows nor epoch are written."""

    async def stop(self: Mailbox, scope: str, by: Principal, **more: object) -> StopCounts:
        return StopCounts(scope, 0)

    patch.setattr(Mailbox, "stop", stop)


PROOFS = (
    Proof(
        "a stop ends whole process groups",
        "P5",
        a_stop_ends_whole_process_groups,
        Removal("kill the leader only", _leader_only),
        is_real=True,
    ),
    Proof(
        "what was stopped stays stopped",
        "P5",
        what_was_stopped_stays_stopped,
        Removal("a stop that is not written", _unwritten_stop),
    ),
    Proof(
        "who was left behind does nothing more",
        "P5",
        who_was_left_behind_does_nothing_more,
        Removal("an engine left to itself", _left_to_itself),
    ),
)
