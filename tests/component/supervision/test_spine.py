"""Many children: apart from each other, and in order on the spine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from agentsup.kit.tasks import TaskOwner
from agentsup.model.health import AgentState
from agentsup.supervision import (
    ChildContext,
    ChildSpec,
    Grace,
    Restart,
    RestForOneFailed,
    RestForOneSupervisor,
)
from tests.component.supervision.lives import MiddleDice, SupervisorFixture, after

pytestmark = pytest.mark.virtual

S = AgentState


async def test_a_hung_child_delays_no_other(context: SupervisorFixture) -> None:
    hung = context.child(context.swallows_cancel, child_id="hung")
    hung.start()
    await hung.until(S.RUNNING)
    owner = TaskOwner("test")
    owner.spawn(hung.stop(), name="stop:hung")
    await asyncio.sleep(1)
    began = context.now()
    for name in ("a", "b", "c"):
        child = context.child(context.obeys, child_id=name)
        child.start()
        await child.until(S.RUNNING)
        await child.restart()
        await child.until(S.RUNNING)
        await child.stop()
    assert context.now() - began < 0.1
    assert hung.state is S.STOPPING


async def test_stopping_fifty_costs_as_much_as_the_slowest(context: SupervisorFixture) -> None:
    kinds = ["obeys", "drains_slowly", "ignores_drain", "swallows_one_cancel", "swallows_cancel"]
    grace = Grace(30, 5, 2)
    children = [
        context.child(getattr(context, kinds[n % 5]), child_id=f"c{n}", grace=grace)
        for n in range(50)
    ]
    for child in children:
        child.start()
    for child in children:
        await child.until(S.RUNNING)
    began = context.now()
    await context.stop_all()
    assert context.now() - began == pytest.approx(grace.total_s, abs=0.01)
    assert {child.state for child in children} == {S.STOPPED}
    for child in children:
        child.start()
    for child in children:
        await child.until(S.RUNNING, S.DEGRADED)
    began = context.now()
    await context.stop_all(Grace(0, 0.2, 0.5))
    assert context.now() - began == pytest.approx(0.7, abs=0.01)


async def test_a_changed_spec_is_a_new_life(context: SupervisorFixture) -> None:
    child = context.child(context.obeys)
    child.start()
    await child.until(S.RUNNING)
    child.replace(replace(child.spec, factory=context.drains_slowly))
    await child.until(S.STOPPING)
    await child.until(S.RUNNING)
    assert child.status.life == 2


# -- the spine ---------------------------------------------------------------------------------


class Parts:
    """Builds spine parts that write down when they come and go."""

    def __init__(self, context: SupervisorFixture) -> None:
        self.bench = context
        self.log: list[str] = []
        self.breaks: dict[str, asyncio.Event] = {}

    def spec(self, name: str, delay_s: float = 1.0, **options: Any) -> ChildSpec:
        async def life(ctx: ChildContext) -> None:
            self.log.append(f"+{name}")
            broken = self.breaks[name] = asyncio.Event()
            await asyncio.sleep(delay_s)
            ctx.ready()
            self.log.append(f"={name}")
            waits = TaskOwner(name)
            ends = {
                waits.spawn(wait(), name=f"wait:{name}")
                for wait in (broken.wait, ctx.draining.wait)
            }
            try:
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await waits.close(1)
            self.log.append(f"-{name}")
            if broken.is_set():
                raise LookupError(f"{name} broke")

        options.setdefault("restart", Restart.PERMANENT)
        return ChildSpec(name, life, **options)

    def spine(self, *specs: ChildSpec) -> RestForOneSupervisor:
        bench = self.bench
        return RestForOneSupervisor(
            specs, clock=bench.clock, entropy=MiddleDice(), board=bench.board
        )


@pytest.fixture
def parts(context: SupervisorFixture) -> Parts:
    return Parts(context)


async def within(owner: TaskOwner, work: Callable[[], Awaitable[int]]) -> asyncio.Task[int]:
    async def run() -> int:
        return await work()

    return owner.spawn(run(), name="run:spine")


async def test_stop_is_the_reverse_of_start(parts: Parts) -> None:
    spine = parts.spine(*(parts.spec(name) for name in "abcd"))
    await spine.start()
    assert parts.log == ["+a", "=a", "+b", "=b", "+c", "=c", "+d", "=d"]
    parts.log.clear()
    await spine.stop()
    assert parts.log == ["-d", "-c", "-b", "-a"]
    assert await spine.run() == 0


async def test_a_failure_restarts_the_tail_only(parts: Parts) -> None:
    spine = parts.spine(*(parts.spec(name) for name in "abcd"))
    await spine.start()
    owner = TaskOwner("test")
    running = await within(owner, spine.run)
    parts.log.clear()
    parts.breaks["b"].set()
    await asyncio.sleep(10)
    assert parts.log == ["-b", "-d", "-c", "+b", "=b", "+c", "=c", "+d", "=d"]
    assert [child.status.life for child in spine._children] == [1, 2, 2, 2]
    await spine.stop()
    assert await running == 0


async def test_the_fourth_failure_within_a_minute_is_the_end(parts: Parts) -> None:
    spine = parts.spine(*(parts.spec(name) for name in "ab"))
    await spine.start()
    owner = TaskOwner("test")
    running = await within(owner, spine.run)
    for _ in range(4):
        parts.breaks["b"].set()
        await asyncio.sleep(5)
    await asyncio.wait({running})
    error = running.exception()
    assert isinstance(error, RestForOneFailed)
    assert "b failed again after 3 restarts" in str(error)
    assert "b broke" in str(error)
    await spine.stop()


async def test_failures_far_apart_are_borne(parts: Parts) -> None:
    spine = parts.spine(*(parts.spec(name) for name in "ab"))
    await spine.start()
    owner = TaskOwner("test")
    running = await within(owner, spine.run)
    for _ in range(12):
        parts.breaks["a"].set()
        await asyncio.sleep(30)
    assert not running.done()
    await spine.stop()
    assert await running == 0


async def test_a_restart_that_fails_counts_as_a_failure(parts: Parts) -> None:
    async def starts_once(ctx: ChildContext) -> None:
        if ctx.life > 1:
            raise LookupError("port in use")
        ctx.ready()
        await asyncio.sleep(100)
        raise LookupError("broke")

    spine = parts.spine(parts.spec("a"), ChildSpec("b", starts_once, restart=Restart.PERMANENT))
    await spine.start()
    with pytest.raises(RestForOneFailed, match="port in use"):
        await spine.run()
    assert spine._children[1].status.life == 4
    await spine.stop()


async def test_a_part_that_cannot_start_takes_the_started_down(parts: Parts) -> None:
    bad = ChildSpec("port", after(1, OSError("address in use"), is_ready=False))
    spine = parts.spine(parts.spec("a"), bad, parts.spec("c"))
    with pytest.raises(RestForOneFailed, match=r"port could not be started.*address in use"):
        await spine.start()
    assert parts.log == ["+a", "=a", "-a"]


async def test_a_cancelled_start_leaves_nothing_running(parts: Parts) -> None:
    spine = parts.spine(parts.spec("a"), parts.spec("b", 1000))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(10):
            await spine.start()
    assert parts.log == ["+a", "=a", "+b", "-a"]


async def test_the_significant_end_is_the_spines_end(
    parts: Parts, context: SupervisorFixture
) -> None:
    main = ChildSpec("main", after(50, None), significant=True)
    spine = parts.spine(parts.spec("a"), main)
    await spine.start()
    assert await spine.run() == 0
    await spine.stop()
    assert parts.log == ["+a", "=a", "-a"]


async def test_a_finished_part_that_may_finish_is_left_alone(parts: Parts) -> None:
    once = ChildSpec("once", after(5, None), restart=Restart.TRANSIENT)
    spine = parts.spine(once, parts.spec("b"))
    await spine.start()
    owner = TaskOwner("test")
    running = await within(owner, spine.run)
    await asyncio.sleep(100)
    assert not running.done()
    assert parts.log == ["+b", "=b"]
    await spine.stop()
    assert await running == 0
