"""P5: stop means stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterable
from pathlib import Path

import pytest

from agentsup.kit import process_tracker, procgroup, proctable
from agentsup.kit.clock import Clock
from agentsup.kit.process_tracker import GroupRecord, ProcessTracker
from agentsup.mailbox.lifecycle.control import WorkControl
from agentsup.mailbox.messages import StopCounts
from agentsup.model.principal import Principal
from tests.component.proofs.house import EVA, ProofDaemon, agent
from tests.component.proofs.proof import Claim, Proof, Removal
from tests.support.bound import BOUND_S
from tests.support.daemon_process import group_members

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
    patch.setattr(process_tracker, "sweep", sweep)


def _unwritten_stop(patch: pytest.MonkeyPatch) -> None:
    """Turns are ended, and neither rows nor epoch are written."""

    async def stop(self: WorkControl, scope: str, by: Principal, **more: object) -> StopCounts:
        return StopCounts(scope, 0)

    patch.setattr(WorkControl, "stop", stop)


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
)
