from __future__ import annotations

import asyncio
import gc
import logging
from typing import Any

import pytest

from agentsup.kit.tasks import OwnerClosed, TaskOwner, stop_task, time_limit


async def forever() -> None:
    await asyncio.Event().wait()


async def stubborn(release: asyncio.Event) -> None:
    """Ignores every cancellation until released."""
    while not release.is_set():
        try:
            await release.wait()
        except asyncio.CancelledError:
            continue


async def one_turn() -> None:
    await asyncio.sleep(0)


async def test_owner_keeps_tasks_that_nobody_else_holds() -> None:
    owner = TaskOwner("test")
    done = asyncio.Event()

    async def work() -> None:
        await one_turn()
        done.set()

    owner.spawn(work(), name="work:kept")
    gc.collect()
    assert [task.get_name() for task in owner.tasks] == ["work:kept"]
    await done.wait()
    await one_turn()
    assert not owner.tasks
    assert await owner.close(1) == []


async def test_an_escaping_exception_reaches_the_callback_or_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail() -> None:
        raise LookupError("lost")

    seen: list[tuple[str, BaseException]] = []

    def hear(task: asyncio.Task[Any], error: BaseException) -> None:
        seen.append((task.get_name(), error))

    heard, logged = TaskOwner("heard", on_error=hear), TaskOwner("logged")
    heard.spawn(fail(), name="work:one")
    with caplog.at_level(logging.ERROR):
        logged.spawn(fail(), name="work:two")
        while heard.tasks or logged.tasks:
            await one_turn()
    assert [(name, str(error)) for name, error in seen] == [("work:one", "lost")]
    assert "work:two" in caplog.text
    assert "lost" in caplog.text
    assert "work:one" not in caplog.text


async def test_close_is_bounded_and_names_the_abandoned() -> None:
    owner, release = TaskOwner("test"), asyncio.Event()
    owner.spawn(forever(), name="work:obeys")
    left = owner.spawn(stubborn(release), name="work:stubborn")
    await one_turn()
    assert await owner.close(0.01) == ["work:stubborn"]
    assert owner.tasks == {left}
    release.set()
    await asyncio.wait({left})


async def test_a_closed_owner_starts_nothing() -> None:
    owner = TaskOwner("test")
    await owner.close(1)
    with pytest.raises(OwnerClosed, match="late"):
        owner.spawn(forever(), name="work:late")


async def test_close_from_inside_leaves_the_caller_alone() -> None:
    owner = TaskOwner("test")

    async def closer() -> list[str]:
        return await owner.close(1)

    owner.spawn(forever(), name="work:other")
    closing = owner.spawn(closer(), name="work:closer")
    assert await closing == []


async def test_stop_task_ends_the_obedient_and_reports_the_stubborn() -> None:
    owner, release = TaskOwner("test"), asyncio.Event()
    obeys = owner.spawn(forever(), name="work:obeys")
    refuses = owner.spawn(stubborn(release), name="work:refuses")
    await one_turn()
    assert await stop_task(obeys, timeout_s=1) is True
    assert await stop_task(refuses, timeout_s=0.01) is False
    release.set()
    await asyncio.wait({refuses})
    assert await stop_task(refuses, timeout_s=1) is True


async def test_stop_task_does_not_swallow_the_callers_own_cancel() -> None:
    owner, release = TaskOwner("test"), asyncio.Event()
    refuses = owner.spawn(stubborn(release), name="work:refuses")
    stopper = owner.spawn(stop_task(refuses, timeout_s=60), name="work:stopper")
    await one_turn()
    stopper.cancel()
    await asyncio.wait({stopper})
    assert stopper.cancelled()
    release.set()
    await asyncio.wait({refuses})


async def test_stop_task_does_not_raise_what_the_task_raised() -> None:
    seen: list[BaseException] = []
    owner = TaskOwner("test", on_error=lambda _task, error: seen.append(error))

    async def fails_at_the_end() -> None:
        try:
            await forever()
        finally:
            raise LookupError("while closing")

    task = owner.spawn(fails_at_the_end(), name="work:fails")
    await one_turn()
    assert await stop_task(task, timeout_s=1) is True
    await one_turn()
    assert [type(error) for error in seen] == [LookupError]


async def test_a_task_cannot_stop_itself() -> None:
    me = asyncio.current_task()
    assert me is not None
    with pytest.raises(RuntimeError, match="own end"):
        await stop_task(me, timeout_s=1)


@pytest.mark.parametrize("is_cancelled_first", [False, True])
async def test_a_time_limit_is_told_also_in_a_clean_up_after_a_cancellation(
    is_cancelled_first: bool,
) -> None:
    """Python 3.11.0 to 3.11.3 raise ``CancelledError`` in a task that was cancelled before."""
    outcomes = []

    async def work() -> None:
        try:
            await asyncio.sleep(1 if is_cancelled_first else 0)
        finally:
            try:
                async with time_limit(0.01):
                    await asyncio.sleep(1)
            except TimeoutError:
                outcomes.append("timed out")

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    if is_cancelled_first:
        task.cancel()
    await asyncio.wait({task})
    assert outcomes == ["timed out"]
    assert task.cancelled() is is_cancelled_first


async def test_a_cancellation_within_a_time_limit_is_no_timeout() -> None:
    async def work() -> None:
        async with time_limit(30):
            await asyncio.sleep(30)

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
