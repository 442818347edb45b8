"""Programs of engines killed at any instant, with a family that holds their output open: each run ends
once, in words, and nothing of it is left.

``TEST_KILL_SEED`` replays a schedule; ``TEST_ENGINE_KILLS`` says how many kills of each (5).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from contextlib import aclosing
from pathlib import Path

import pytest

from agentsup.kit import proctable
from agentsup.model.engine import EngineDone, EngineEvent, Suspended
from tests.contract.engines.conftest import AcpRig, ProgramRig, Say
from tests.support.bound import BOUND_S
from tests.support.engine_host import MemoryHost, segment

KILLS = int(os.environ.get("TEST_ENGINE_KILLS", "5"))
SEED = int(os.environ.get("TEST_KILL_SEED") or random.SystemRandom().randrange(1 << 32))
TALK = Say(("tick ",) * 60, every_s=0.01)


def living() -> set[int]:
    """Processes below this one."""
    return {row.pid for row in proctable.descendants([os.getpid()]) if row.is_alive}


def prepared(name: str, place: Path) -> ProgramRig | AcpRig:
    """An engine whose program talks for a while, with descendants."""
    if name == "acp":
        agent = AcpRig(place)
        agent._turns[0].append({"grandchild": 60})
        agent.play(TALK)
        return agent
    program = ProgramRig(name, place)
    program.play({"do": "family"}, TALK)
    return program


async def killed(host: MemoryHost, wait_s: float, chance: random.Random) -> None:
    """Wait for a program, then for a while, and kill one of its group at once."""
    while not host.groups:
        await asyncio.sleep(0.005)
    await asyncio.sleep(wait_s)
    for group in list(host.groups):
        members = sorted(row.pid for row in proctable.descendants([group]) if row.is_alive)
        victim = group if chance.random() < 0.7 or not members else chance.choice(members)
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)


@pytest.mark.timeout(60 + 4 * KILLS)
@pytest.mark.parametrize("name", ["command", "claude", "acp"])
async def test_a_kill_at_any_instant_is_one_end_and_leaves_nothing(
    name: str, tmp_path: Path
) -> None:
    print("seed", SEED)
    chance, before = random.Random(f"{SEED}.{name}"), living()
    rig = prepared(name, tmp_path)
    outcomes = set()
    for number in range(KILLS):
        for leftover in (Path(f"{tmp_path / 'scenes.json'}.at"), tmp_path / "script.kept"):
            leftover.unlink(missing_ok=True)
        host = MemoryHost()
        session = await rig.open(host)
        # The first comes at once, before any program can have said its result.
        wait_s = chance.uniform(0, 0.9) if number else 0.0
        killing = asyncio.create_task(killed(host, wait_s, chance))
        events: list[EngineEvent] = []
        async with aclosing(session.run(segment())) as run, asyncio.timeout(BOUND_S):
            events.extend([event async for event in run])
        await session.close()
        killing.cancel()
        await asyncio.wait({killing})
        ends = [event for event in events if isinstance(event, EngineDone | Suspended)]
        assert ends == events[-1:], "one end, and it comes last"
        (end,) = ends
        assert isinstance(end, EngineDone)
        assert end.outcome in ("ok", "failed")
        assert end.outcome == "ok" or (end.error and end.code), end
        outcomes.add(end.outcome)
        assert host.groups == {}, "a group is still on record"
        assert rig.children.process_slots.running == rig.children.process_slots.paused == 0
        assert living() <= before, "a process of the run lives on"
    assert "failed" in outcomes, "no kill hit a program at work"
    await rig.close()
