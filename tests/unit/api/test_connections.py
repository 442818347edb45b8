"""What is open is counted, bounded and ended."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from agentsup.api.http import ApiLimits
from agentsup.api.http.connections import Connections, Once
from agentsup.kit.tasks import TaskOwner
from agentsup.model.errors import Conflict, NotReady, Overloaded


async def test_a_wait_gives_its_result_or_its_own_error() -> None:
    connections = Connections(ApiLimits())

    async def answer() -> str:
        return "yes"

    async def refuse() -> str:
        raise Conflict("no")

    assert await connections.wait(answer, name="t") == "yes"
    with pytest.raises(Conflict):
        await connections.wait(refuse, name="t")
    assert connections.counts["waits"] == 0
    await connections.close(1.0)


async def test_over_the_limit_nothing_is_begun() -> None:
    connections = Connections(ApiLimits(waiting=1))
    begun: list[str] = []

    async def work() -> None:
        begun.append("work")

    with connections.admit("waits"), pytest.raises(Overloaded):
        await connections.wait(work, name="t")
    assert begun == []
    await connections.wait(work, name="t")
    assert begun == ["work"]


async def test_one_person_has_a_share_and_operators_keep_places() -> None:
    connections = Connections(ApiLimits(sockets=8))
    with contextlib.ExitStack() as held:

        def take(who: str, *, is_operator: bool = False) -> None:
            held.enter_context(connections.admit("sockets", who, is_operator=is_operator))

        for who in ("uwe", "ute", "una"):
            take(who)
            take(who)
            with pytest.raises(Overloaded, match=r"you have 2 sockets open|kept for operators"):
                take(who)
        with pytest.raises(Overloaded, match="kept for operators"):
            take("vera")
        take("otto", is_operator=True)
        take("olga", is_operator=True)
        with pytest.raises(Overloaded, match="8 sockets are open"):
            take("", is_operator=True)
    assert connections.counts["sockets"] == 0
    with contextlib.ExitStack() as held:
        for _ in range(4):
            held.enter_context(connections.admit("sockets", "otto"))
        with pytest.raises(Overloaded, match="you have 4 sockets open"):
            held.enter_context(connections.admit("sockets", "otto"))
        for _ in range(2):
            held.enter_context(connections.admit("sockets", "uwe", is_operator=False))
        for _ in range(2):
            held.enter_context(connections.admit("sockets"))


async def test_closing_ends_waits_and_refuses_new_ones() -> None:
    connections = Connections(ApiLimits())
    forever = asyncio.Event()
    waiting = connections.work.spawn(
        connections.wait(forever.wait, name="t"),
        name="test:waiting",
    )
    while not connections.counts["waits"]:
        await asyncio.sleep(0)
    assert await connections.close(1.0) == []
    with pytest.raises(NotReady):
        waiting.result()
    with pytest.raises(NotReady), connections.admit("sockets"):
        pass


async def test_work_under_way_may_finish_within_the_time_given() -> None:
    connections = Connections(ApiLimits())
    go, done = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        await go.wait()
        done.set()

    connections.work.spawn(work(), name="say:main")

    async def ending() -> None:
        go.set()

    with connections.ended_by(ending):
        assert await connections.close(1.0) == []
    assert done.is_set()


async def test_work_that_does_not_end_is_cancelled() -> None:
    connections = Connections(ApiLimits())
    task = connections.work.spawn(asyncio.Event().wait(), name="say:main")
    assert await connections.close(0.01) == []
    assert task.cancelled()


async def test_a_cancelled_caller_ends_its_wait() -> None:
    connections = Connections(ApiLimits())
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await connections.wait(work, name="t")
    await ended.wait()
    assert connections.counts["waits"] == 0


async def test_once_remembers_results_and_not_failures() -> None:
    owner = TaskOwner("test", on_error=lambda task, error: None)
    once = Once(owner, remembered=2)
    runs: list[str] = []
    fails = True

    async def work() -> int:
        runs.append("run")
        if fails:
            raise Conflict("not now")
        return len(runs)

    with pytest.raises(Conflict):
        await once.run("a", work)
    fails = False
    assert await once.run("a", work) == await once.run("a", work) == 2
    assert [await once.run(key, work) for key in "bca"] == [3, 4, 5]


async def test_once_goes_on_without_its_caller_and_never_forgets_what_runs() -> None:
    owner = TaskOwner("test")
    once = Once(owner, remembered=0)
    go = asyncio.Event()
    runs: list[str] = []

    async def work() -> str:
        runs.append("run")
        await go.wait()
        return "done"

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await once.run("a", work)
    go.set()
    assert await once.run("a", work) == "done"
    assert runs == ["run"]
