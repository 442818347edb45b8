"""A pool for work that blocks: what hangs in it stays its key's own trouble."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from functools import partial

import pytest

from agentsup.kit.pool import (
    BoundedPool,
    NoThread,
    PoolFull,
    PoolTimeout,
    TimedSteps,
    _Threads,
    in_time,
)
from tests.support.bound import BOUND_S

SHORT_S = 0.05


@pytest.fixture
async def hanging() -> AsyncIterator[Callable[[], str]]:
    """A step that hangs until the test has ended."""
    over = threading.Event()

    def step() -> str:
        over.wait()
        return "late"

    yield step
    over.set()


async def test_a_step_runs_in_a_thread_of_its_own() -> None:
    pool = BoundedPool("files")
    assert await pool.run(lambda: threading.current_thread().name) == "pool:files"
    assert await pool.run(lambda: threading.current_thread().daemon)
    with pytest.raises(ZeroDivisionError):
        await pool.run(lambda: 1 // 0)
    assert await pool.probe() is None


async def test_one_keys_hanging_steps_delay_no_other(hanging: Callable[[], str]) -> None:
    pool = BoundedPool("files", threads=2, per_key=2)
    for _ in range(2):
        with pytest.raises(PoolTimeout, match="within"):
            await pool.run(hanging, key="ada", limit_s=SHORT_S)
    assert pool.stuck == {"ada": 2}
    with pytest.raises(PoolTimeout, match="still hang"):
        await pool.run(lambda: 1, key="ada")
    # Both threads hang, both places are free again.
    assert await asyncio.gather(*(pool.run(lambda: 1, key=f"b{n}") for n in range(20))) == [1] * 20
    assert await pool.probe() is None


class Shortage:
    """The next starts of threads that fail, as they do where the system has none left."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 0
        start = threading.Thread.start

        def starting(thread: threading.Thread) -> None:
            if self.left:
                self.left -= 1
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", starting)


@pytest.fixture
def shortage(monkeypatch: pytest.MonkeyPatch) -> Shortage:
    return Shortage(monkeypatch)


async def test_a_thread_that_can_not_be_started_takes_no_place_for_good(
    shortage: Shortage,
) -> None:
    pool = BoundedPool("files", threads=2, per_key=1, limit_s=1.0)
    shortage.left = 1000
    for _ in range(3):
        with pytest.raises(match="no thread can be started now"):
            await pool.run(lambda: 1, key="ada")
    told = await pool.probe()
    assert told is not None
    assert "no thread" in told
    with pytest.raises(NoThread):
        in_time(lambda: 1, 1.0)
    shortage.left = 0
    assert await pool.run(lambda: 1, key="ada") == 1
    assert await asyncio.gather(*(pool.run(lambda: 1, key=f"b{n}") for n in range(5))) == [1] * 5


async def test_what_is_made_in_the_moment_of_a_cancellation_is_undone() -> None:
    pool, undone = BoundedPool("files"), asyncio.Event()
    loop, made = asyncio.get_running_loop(), threading.Event()
    caller = asyncio.ensure_future(
        pool.run(made.set, undo=lambda made: loop.call_soon_threadsafe(undone.set))
    )
    await asyncio.sleep(0)
    made.wait(BOUND_S)
    await asyncio.sleep(0)  # the step's end may have arrived, and its waiter was not told of it
    caller.cancel()
    await asyncio.wait({caller})
    assert caller.cancelled()
    async with asyncio.timeout(BOUND_S):
        await undone.wait()


async def test_a_key_gets_its_places_back_when_its_steps_end() -> None:
    pool = BoundedPool("files", per_key=1)
    over = threading.Event()
    with pytest.raises(PoolTimeout):
        await pool.run(over.wait, key="ada", limit_s=SHORT_S)
    over.set()
    async with asyncio.timeout(BOUND_S):
        while pool.stuck:
            await asyncio.get_running_loop().run_in_executor(None, lambda: None)
    assert await pool.run(lambda: 1, key="ada") == 1


async def test_a_pool_whose_threads_are_all_taken_says_so(
    hanging: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = BoundedPool("files", threads=1, limit_s=BOUND_S)
    monkeypatch.setattr("agentsup.kit.pool._PROBE_S", SHORT_S)
    task = asyncio.ensure_future(pool.run(hanging, key="ada"))
    await asyncio.sleep(0)
    told = await pool.probe()
    assert told is not None
    assert "waited" in told
    task.cancel()
    await asyncio.wait({task})
    assert await pool.probe() is None


async def test_so_many_steps_may_wait(hanging: Callable[[], str]) -> None:
    pool = BoundedPool("files", threads=1, per_key=1, queued=1, limit_s=BOUND_S)
    first = asyncio.ensure_future(pool.run(hanging))
    second = asyncio.ensure_future(pool.run(lambda: 2))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    with pytest.raises(PoolFull):
        await pool.run(lambda: 3)
    for task in (first, second):
        task.cancel()
    await asyncio.wait({first, second})


async def test_a_cancelled_caller_does_not_wait_and_what_is_made_is_undone() -> None:
    pool = BoundedPool("files", limit_s=2 * BOUND_S)
    begun, over, undone = threading.Event(), threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def step() -> str:
        begun.set()
        over.wait()
        return "made"

    def undo(made: str) -> None:
        assert made == "made"
        loop.call_soon_threadsafe(undone.set)

    task = asyncio.ensure_future(pool.run(step, undo=undo))
    await loop.run_in_executor(None, begun.wait)
    task.cancel()
    await asyncio.wait({task}, timeout=BOUND_S)
    assert task.cancelled()
    over.set()
    async with asyncio.timeout(BOUND_S):
        await undone.wait()


async def test_a_step_whose_caller_has_gone_holds_a_place_of_its_key_alone(
    hanging: Callable[[], str],
) -> None:
    pool = BoundedPool("files", threads=1, per_key=1, limit_s=SHORT_S)
    begun = threading.Event()

    def step() -> str:
        begun.set()
        return hanging()

    task = asyncio.ensure_future(pool.run(step, key="ada"))
    await asyncio.to_thread(begun.wait, BOUND_S)
    task.cancel()
    assert await pool.run(lambda: 1, key="ben", limit_s=BOUND_S) == 1
    with pytest.raises(PoolTimeout, match="waited"):
        await pool.run(lambda: 1, key="ada")


async def test_what_ends_late_is_undone() -> None:
    pool = BoundedPool("files", limit_s=SHORT_S)
    over, undone = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    with pytest.raises(PoolTimeout):
        await pool.run(over.wait, undo=lambda made: loop.call_soon_threadsafe(undone.set))
    over.set()
    async with asyncio.timeout(BOUND_S):
        await undone.wait()


@pytest.mark.virtual
async def test_steps_take_no_time_where_time_is_virtual() -> None:
    pool = BoundedPool("files")
    began = asyncio.get_running_loop().time()
    assert await asyncio.gather(*(pool.run(lambda: 1) for _ in range(50))) == [1] * 50
    assert asyncio.get_running_loop().time() == began


def test_what_hangs_is_asked_once_and_again_when_it_has_ended() -> None:
    steps, over, asked = TimedSteps("reads", stuck=2), threading.Event(), list[int]()

    def step() -> None:
        asked.append(1)
        over.wait()

    try:
        for said in ("within", "still hangs", "still hangs"):
            with pytest.raises(PoolTimeout, match=said):
                steps.run(step, SHORT_S, key="a")
        assert steps.run(lambda: 1, BOUND_S, key="b") == 1
        with pytest.raises(ZeroDivisionError):
            steps.run(lambda: 1 // 0, BOUND_S, key="b")
        with pytest.raises(PoolTimeout, match="within"):
            steps.run(step, SHORT_S, key="c")
        with pytest.raises(PoolTimeout, match="still hangs"):
            steps.run(lambda: 1, BOUND_S, key="b")
        assert len(asked) == 2
        hanging = [each for each in threading.enumerate() if each.name == "pool:reads"]
    finally:
        over.set()
    for each in hanging:
        each.join(BOUND_S)
    assert steps.run(lambda: 1, BOUND_S, key="a") == 1


async def test_steps_one_after_another_share_a_thread() -> None:
    pool = BoundedPool("files")
    threads = {await pool.run(threading.get_ident) for _ in range(50)}
    assert len(threads) == 1
    both = threading.Barrier(2, timeout=BOUND_S)
    found = await asyncio.gather(*(pool.run(both.wait, key=key) for key in "ab"))
    assert sorted(found) == [0, 1], "a second thread for a step beside another"


async def test_a_thread_without_steps_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentsup.kit.pool.IDLE_S", 0.01)
    thread = await BoundedPool("files").run(threading.current_thread)
    await asyncio.to_thread(thread.join, BOUND_S)
    assert not thread.is_alive()


def test_steps_and_ends_of_idle_threads_race(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step is put down for a thread that has just ended, and none is carried out twice."""
    monkeypatch.setattr("agentsup.kit.pool.IDLE_S", 0.0005)
    threads, done = _Threads("race"), list[int]()
    for number in range(2_000):
        threads.submit(partial(done.append, number)).result(BOUND_S)
        if number % 3 == 0:
            time.sleep(0.0005)
    assert done == list(range(2_000))
