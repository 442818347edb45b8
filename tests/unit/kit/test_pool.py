"""A pool for work that blocks: what hangs in it stays its key's own trouble."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable

import pytest

from agentsup.kit.pool import BoundedPool, NoAnswer, PoolFull

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
        with pytest.raises(NoAnswer, match="within"):
            await pool.run(hanging, key="ada", limit_s=SHORT_S)
    assert pool.stuck == {"ada": 2}
    with pytest.raises(NoAnswer, match="still hang"):
        await pool.run(lambda: 1, key="ada")
    # Both threads hang, both places are free again.
    assert await asyncio.gather(*(pool.run(lambda: 1, key=f"b{n}") for n in range(20))) == [1] * 20
    assert await pool.probe() is None


async def test_a_key_gets_its_places_back_when_its_steps_end() -> None:
    pool = BoundedPool("files", per_key=1)
    over = threading.Event()
    with pytest.raises(NoAnswer):
        await pool.run(over.wait, key="ada", limit_s=SHORT_S)
    over.set()
    async with asyncio.timeout(5):
        while pool.stuck:
            await asyncio.get_running_loop().run_in_executor(None, lambda: None)
    assert await pool.run(lambda: 1, key="ada") == 1
    assert not pool._keys


async def test_a_dead_pool_is_seen_by_its_probe(hanging: Callable[[], str]) -> None:
    """With more hanging steps than it leaves behind, the pool is dead, and says what hangs."""
    pool = BoundedPool("files", threads=2, per_key=1, limit_s=SHORT_S, stuck=2)
    for number in range(4):
        with pytest.raises(NoAnswer):
            await pool.run(hanging, key=f"agent{number}")
    told = await pool.probe()
    assert told is not None
    assert "4 steps hang (agent0, agent1, agent2, agent3)" in told


async def test_so_many_steps_may_wait(hanging: Callable[[], str]) -> None:
    pool = BoundedPool("files", threads=1, per_key=1, queued=1, limit_s=1.0)
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
    pool = BoundedPool("files", limit_s=5.0)
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
    await asyncio.wait({task}, timeout=1)
    assert task.cancelled()
    over.set()
    async with asyncio.timeout(5):
        await undone.wait()


async def test_a_step_whose_caller_has_gone_still_counts_as_hanging(
    hanging: Callable[[], str],
) -> None:
    pool = BoundedPool("files", threads=1, per_key=1, limit_s=SHORT_S)
    task = asyncio.ensure_future(pool.run(hanging, key="ada"))
    await asyncio.sleep(0.01)
    task.cancel()
    assert await pool.run(lambda: 1, key="ben", limit_s=5.0) == 1
    assert pool.stuck == {"ada": 1}


async def test_what_ends_late_is_undone() -> None:
    pool = BoundedPool("files", limit_s=SHORT_S)
    over, undone = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    with pytest.raises(NoAnswer):
        await pool.run(over.wait, undo=lambda made: loop.call_soon_threadsafe(undone.set))
    over.set()
    async with asyncio.timeout(5):
        await undone.wait()


@pytest.mark.virtual
async def test_steps_take_no_time_where_time_is_virtual() -> None:
    pool = BoundedPool("files")
    began = asyncio.get_running_loop().time()
    assert await asyncio.gather(*(pool.run(lambda: 1) for _ in range(50))) == [1] * 50
    assert asyncio.get_running_loop().time() == began
