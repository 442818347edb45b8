"""The record of the programs of turns, and the end of what hides from it."""

from __future__ import annotations

import asyncio
import ctypes
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from agentsup.agents.workspace import ProcessTable
from agentsup.kit import process_tracker, proctable
from agentsup.kit.childenv import child_env
from agentsup.kit.clock import SystemClock
from agentsup.kit.pipes import Stdio
from agentsup.kit.prctl import become_subreaper
from agentsup.kit.procgroup import ProcessGroup, live_groups
from agentsup.kit.reaper import Reaper, reap_orphans
from agentsup.store import Database
from tests.support.bound import BOUND_S
from tests.support.empty_store import lay_store
from tests.support.escapee import PROGRAM, escaped

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="process groups by /proc")


@pytest.fixture(autouse=True)
def subreaper() -> Iterator[None]:
    assert become_subreaper()
    yield
    reap_orphans(reap_orphans())
    ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Database]:
    database = await Database.open(lay_store(tmp_path / "state.db"), clock=SystemClock())
    yield database
    await database.close()


async def started(tag: str, *ways: str) -> ProcessGroup:
    group = await ProcessGroup.spawn(
        [*PROGRAM, tag, *ways], env=child_env(), cwd="/", stdin=Stdio.PIPE
    )
    assert group.stdout is not None
    async with aclosing(group.stdout.lines(100)) as lines:
        assert await anext(lines) == b"they are away"
    # Until they have a session of their own and an empty environment, it is known whose they are.
    async with asyncio.timeout(BOUND_S):
        while not all(escaped(tag, way) for way in ways if way != "hop"):
            await asyncio.sleep(0.01)
    return group


async def test_the_end_of_a_group_and_a_stop_end_who_hides(store: Database, tmp_path: Path) -> None:
    """At once: no beat runs here."""
    processes = ProcessTable(store, SystemClock(), "boot-1", Reaper(SystemClock()))
    one, two = f"{tmp_path}/one", f"{tmp_path}/two"
    async with await started(one, "hide", "hop") as group:
        await processes.record("agt", "msg_1", group.record)
    await processes.forget("msg_1", group.pgid)
    assert escaped(one) == []
    async with await started(two, "hide", "marked") as group:
        await processes.record("agt", "msg_2", group.record)
        await processes.kill([])
        assert escaped(two) == escaped(two, "marked") != []
    await processes.forget("msg_2", group.pgid)


async def test_who_left_a_group_is_ended_by_the_next_boot(store: Database, tmp_path: Path) -> None:
    processes = ProcessTable(store, SystemClock(), "boot-1")
    group = await started(f"{tmp_path}", "linked")
    await processes.record("agt", "msg_1", group.record)
    live_groups().learn(proctable.table())
    assert await processes.record_detached(live_groups().unrecorded())
    assert await ProcessTable(store, SystemClock(), "boot-1").sweep_earlier_boots() == []
    (stray,) = escaped(f"{tmp_path}")
    ended = await ProcessTable(store, SystemClock(), "boot-2").sweep_earlier_boots()
    assert {record.pgid for record in ended} == {group.pgid, stray}
    await group.stop(term_grace_s=0)
    assert escaped(f"{tmp_path}") == []
    assert await ProcessTable(store, SystemClock(), "boot-2").sweep_earlier_boots() == []


async def test_what_a_group_left_is_forgotten_with_it(store: Database, tmp_path: Path) -> None:
    processes = ProcessTable(store, SystemClock(), "boot-1")
    async with await started(f"{tmp_path}", "linked") as group:
        await processes.record("agt", "msg_1", group.record)
        live_groups().learn(proctable.table())
        found = live_groups().unrecorded()
        assert await processes.record_detached(found)
    await processes.forget("msg_1", group.pgid)
    assert await processes.record_detached(found), "its group is gone: there is nothing to keep"
    rows = await store.read(lambda r: r.all("SELECT * FROM strays"))
    assert rows == []
    assert await process_tracker.sweep([], found[group.pgid]) == []
