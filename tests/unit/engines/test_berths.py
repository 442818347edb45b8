"""Who may run a program now, and in which order."""

from __future__ import annotations

import asyncio

import pytest

from agentsup.engines.failures import EnginesBusy
from agentsup.engines.process import ProcessSlotLimits, ProcessSlots


async def ask(berths: ProcessSlots, agents: str) -> dict[str, asyncio.Task]:
    """One waiting start for each letter, in this order; the letter and a number name it."""
    found: dict[str, asyncio.Task] = {}
    for agent in agents:
        name = f"{agent}{sum(key[0] == agent for key in found)}"
        found[name] = asyncio.create_task(berths.take(agent))
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    return found


def served(tasks: dict[str, asyncio.Task]) -> set[str]:
    return {name for name, task in tasks.items() if task.done() and not task.cancelled()}


async def settle(tasks: dict[str, asyncio.Task]) -> None:
    for task in tasks.values():
        task.cancel()
    await asyncio.wait(tasks.values())


async def test_no_more_run_than_allowed_in_all_and_for_one_agent() -> None:
    berths = ProcessSlots(lambda: ProcessSlotLimits(total=3, per_agent=2))
    tasks = await ask(berths, "aaabb")
    assert served(tasks) == {"a0", "a1", "b0"}
    assert (berths.running, berths.waiting) == (3, 2)
    (await tasks["b0"]).release()
    await asyncio.sleep(0)
    assert served(tasks) == {"a0", "a1", "b0", "b1"}
    await settle(tasks)


async def test_the_agent_with_the_fewest_comes_first() -> None:
    berths = ProcessSlots(lambda: ProcessSlotLimits(total=2, per_agent=2))
    tasks = await ask(berths, "aaaab")
    (await tasks["a0"]).release()
    await asyncio.sleep(0)
    assert "b0" in served(tasks)
    await settle(tasks)


async def test_a_cancelled_start_leaves_the_queue_and_takes_nothing() -> None:
    berths = ProcessSlots(lambda: ProcessSlotLimits(total=1))
    tasks = await ask(berths, "abc")
    tasks["b0"].cancel()
    await asyncio.sleep(0)
    (await tasks["a0"]).release()
    tasks["c0"].cancel()  # in the same moment in which its turn has come
    await asyncio.wait(tasks.values())
    assert (berths.running, berths.waiting) == (0, 0)
    (await berths.take("d")).release()


async def test_too_many_waiting_are_refused() -> None:
    berths = ProcessSlots(lambda: ProcessSlotLimits(total=1, waiting=2))
    tasks = await ask(berths, "abc")
    with pytest.raises(EnginesBusy, match="2 engine programs wait"):
        await berths.take("d")
    assert berths.waiting == 2
    await settle(tasks)


async def test_a_held_program_gives_its_place_and_comes_back_at_once() -> None:
    berths = ProcessSlots(lambda: ProcessSlotLimits(total=1))
    tasks = await ask(berths, "abc")
    first = await tasks["a0"]
    assert first.pause()
    await asyncio.sleep(0)
    assert served(tasks) == {"a0", "b0"}
    assert (berths.running, berths.paused) == (1, 1)
    first.resume()
    assert (berths.running, berths.paused) == (2, 0)
    (await tasks["b0"]).release()
    await asyncio.sleep(0)
    assert "c0" not in served(tasks)  # one more runs than allowed: the next start waits
    first.release()
    await asyncio.sleep(0)
    assert "c0" in served(tasks)
    await settle(tasks)


async def test_only_so_many_are_held() -> None:
    berths = ProcessSlots(lambda: ProcessSlotLimits(total=2, paused=1))
    one, two = await berths.take("a"), await berths.take("a")
    assert one.pause()
    assert not two.pause()
    assert (berths.running, berths.paused) == (1, 1)
    one.release()
    one.release()
    assert (berths.running, berths.paused) == (1, 0)
    assert two.pause()
    two.release()
    assert (berths.running, berths.paused) == (0, 0)


async def test_a_changed_limit_holds_for_the_next_start() -> None:
    limits = [ProcessSlotLimits(total=1)]
    berths = ProcessSlots(lambda: limits[0])
    tasks = await ask(berths, "ab")
    assert served(tasks) == {"a0"}
    limits[0] = ProcessSlotLimits(total=3)
    tasks |= {"c0": asyncio.create_task(berths.take("c"))}
    for _ in range(3):
        await asyncio.sleep(0)
    assert served(tasks) == {"a0", "b0", "c0"}
    await settle(tasks)
