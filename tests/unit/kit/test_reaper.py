"""Programs that hide from their group, and what ends them all the same."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from agentsup.kit import procgroup, proctable
from agentsup.kit.childenv import child_env
from agentsup.kit.clock import SystemClock
from agentsup.kit.pipes import Stdio
from agentsup.kit.prctl import become_subreaper
from agentsup.kit.process_tracker import MARK, GroupRecord, sweep
from agentsup.kit.procgroup import ProcessGroup
from agentsup.kit.proctable import ProcessRow, environ_value
from agentsup.kit.reaper import OrphansStuck, Reaper, _Walk, reap_orphans
from agentsup.kit.tasks import TaskOwner
from tests.support import escapee
from tests.support.bound import BOUND_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="process groups by /proc")


@pytest.fixture(autouse=True)
def subreaper() -> Iterator[None]:
    """As in the daemon."""
    assert become_subreaper()
    yield
    reap_orphans(reap_orphans())
    ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)


@pytest.fixture
def tag(request: pytest.FixtureRequest) -> Iterator[str]:
    """For one test's escapees, which are gone after it whatever it found."""
    name = f"{request.node.name}.{os.getpid()}"
    yield name
    for _ in range(50):
        left = escapee.escaped(name)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not left:
            break


async def start(tag: str, *ways: str) -> ProcessGroup:
    argv = [*escapee.PROGRAM, tag, *ways]
    return await ProcessGroup.spawn(argv, env=child_env(), cwd="/", stdin=Stdio.PIPE)


async def until(condition: Callable[[], object], limit_s: float = BOUND_S) -> None:
    async with asyncio.timeout(limit_s):
        while not condition():
            await asyncio.sleep(0.002)


def orphans() -> set[int]:
    """What fell to this process, with children that tests before have left to others."""
    pids = proctable.adopted_pids(os.getpid())
    return {row.pid for row in procgroup.live_groups().orphans(pids)}


def has_left(tag: str) -> bool:
    """Whether somebody of the tag has left and fell to this process."""
    away = set(escapee.escaped(tag))
    return bool(away) and away <= set(proctable.adopted_pids(os.getpid()))


WAYS = ("hide", "hop", "closed")


@pytest.mark.parametrize("way", WAYS)
async def test_who_hides_is_killed_on_sight(tag: str, way: str) -> None:
    reaper, before = Reaper(SystemClock()), orphans()
    async with await start(tag, way) as group:
        assert group.stdout is not None
        assert await group.stdout.read() == b"they are away\n"
        # Until it has emptied its environment it is known by the mark. It may be another process at
        # each look.
        await until(lambda: any(environ_value(pid, MARK) is None for pid in orphans() - before))
        await reaper.clear()
        assert orphans() <= before
        assert escapee.escaped(tag) == []
        assert group.returncode is None, "its group goes on"


async def test_a_background_program_with_its_mark_lives_as_long_as_its_group(tag: str) -> None:
    reaper = Reaper(SystemClock())
    group = await start(tag, "marked")
    await until(lambda: has_left(tag))
    await reaper.clear()
    assert escapee.escaped(tag)
    await group.stop(term_grace_s=0)
    assert escapee.escaped(tag) == []


async def test_who_was_seen_as_a_descendant_belongs_to_its_group_and_counts(tag: str) -> None:
    """Its environment is empty by then, and its parents are gone."""
    reaper, live = Reaper(SystemClock()), procgroup.live_groups()
    group = await start(tag, "linked")
    await until(lambda: escapee.escaped(tag))
    (stray,) = escapee.escaped(tag)
    live.learn(proctable.table())
    assert stray in live.members(proctable.table())[group.pgid]
    assert [record.pgid for record in live.unrecorded()[group.pgid]] == [stray]
    live.are_recorded(live.unrecorded())
    assert live.unrecorded() == {}
    os.kill(group.pid, signal.SIGKILL)
    await group.wait()
    await reaper.clear()
    assert escapee.escaped(tag) == [stray]
    await group.stop(term_grace_s=0)
    assert escapee.escaped(tag) == []


async def test_the_mark_of_a_group_that_is_gone_or_a_guessed_one_saves_nobody(tag: str) -> None:
    reaper = Reaper(SystemClock())
    gone, live = await start(tag, "then:wait"), await start(tag, "then:wait")
    await gone.stop(term_grace_s=0)
    known = live._detached.mark.split(".")[:2]  # the daemon's number and a count
    for mark in (gone._detached.mark, ".".join(known), ".".join([*known, ""])):
        forged = ["/usr/bin/env", f"AGENTSUP_GROUP={mark}", *escapee.PROGRAM, tag, "marked"]
        async with await ProcessGroup.spawn(forged, env=child_env(), cwd="/"):
            await until(lambda: has_left(tag))
            await reaper.clear()
            assert escapee.escaped(tag) == []
    await live.stop(term_grace_s=0)


async def test_what_is_no_programs_is_left_alone(tag: str) -> None:
    """Children from before, those of our own session, and another group's."""
    argv = [*escapee.PROGRAM, tag]
    with subprocess.Popen([*argv, "away", "hide"], start_new_session=True) as before:
        reaper = Reaper(SystemClock())
        of_a_library = subprocess.Popen([*argv, "away", "hide"])
        async with await start(tag, "then:wait") as other:
            await reaper.clear()
            assert before.poll() is of_a_library.poll() is other.returncode is None
        before.kill()
        of_a_library.kill()
        of_a_library.wait()
    assert (before.returncode, of_a_library.returncode) == (-signal.SIGKILL, -signal.SIGKILL)


async def test_the_beat_ends_who_hides_and_records_who_left(tag: str) -> None:
    kept: list[dict[int, Sequence[GroupRecord]]] = []

    async def keep(found: Mapping[int, Sequence[GroupRecord]]) -> bool:
        kept.append(dict(found))
        return len(kept) > 1  # the first time the disk is full

    owner, before = TaskOwner("beat"), orphans()
    beat = owner.spawn(Reaper(SystemClock()).run(keep, every_s=0.02), name="run:reaper")
    async with await start(tag, "linked", *WAYS) as group:
        await until(lambda: escapee.escaped(tag, "linked"))
        (stray,) = escapee.escaped(tag, "linked")
        await until(lambda: len(kept) > 1)
        assert stray in {record.pgid for record in kept[-1][group.pgid]}
    await until(lambda: orphans() <= before)
    assert escapee.escaped(tag) == []
    await owner.close(1)
    assert beat.cancelled()


async def test_who_can_not_be_killed_is_told_until_it_is_gone(
    tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user's rights: the kernel refuses our signal."""
    reaper = Reaper(SystemClock())
    async with await start(tag, "hide"):
        await until(lambda: has_left(tag))
        (stray,) = escapee.escaped(tag)
        with monkeypatch.context() as patch:

            def refuse(pid: int, number: int) -> None:
                raise PermissionError

            patch.setattr(os, "kill", refuse)
            with pytest.raises(OrphansStuck, match=f"{stray}.*ps") as caught:
                await reaper.clear(0.05)
            assert caught.value.pids == [stray]
            await reaper._beat(0.05)
            assert str(stray) in (await reaper.probe() or "")
        await reaper._beat(2.0)
        assert await reaper.probe() is None
        assert escapee.escaped(tag) == []


async def test_those_who_wait_for_the_same_look_share_it(tag: str) -> None:
    reaper, looks = Reaper(SystemClock()), 0
    look = reaper._look

    def counted() -> list[int] | None:
        nonlocal looks
        looks += 1
        return look()

    reaper._look = counted  # type: ignore[method-assign]
    async with asyncio.TaskGroup() as group:
        for _ in range(50):
            group.create_task(reaper.clear())
    assert 2 <= looks <= 4


async def test_a_program_that_is_just_being_executed_is_not_taken_for_one_that_hides(
    tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then its environment is empty for a moment. Who stays so is killed."""
    reaper = Reaper(SystemClock())
    async with await start(tag, "marked"):
        await until(lambda: has_left(tag))
        with monkeypatch.context() as patch:
            patch.setattr(proctable, "environ_value", lambda pid, name: None)
            patch.setattr(proctable, "is_being_executed", lambda pid: True)
            with pytest.raises(OrphansStuck):
                await reaper.clear(0.03)
            assert escapee.escaped(tag)
            await reaper.clear()
            assert escapee.escaped(tag) == []


async def test_what_left_a_killed_daemons_group_is_swept_by_number_and_start(tag: str) -> None:
    group = await start(tag, "linked")
    await until(lambda: escapee.escaped(tag))
    (stray,) = escapee.escaped(tag)
    row = proctable.read_row(stray)
    assert row is not None
    assert await sweep([], [GroupRecord(stray, row.started_ticks - 1, "sh")]) == []
    assert escapee.escaped(tag) == [stray]
    record = GroupRecord(stray, row.started_ticks, "sh")
    assert await sweep([], [record]) == [record]
    await until(lambda: not escapee.escaped(tag))
    await group.stop(term_grace_s=0)


async def test_the_dead_are_collected_without_a_look_at_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Programs that start and end one another all the time must not make dead ones faster."""
    reaper, before = Reaper(SystemClock()), set(proctable.adopted_pids(os.getpid()))
    looks = list[int]()
    read = proctable.read_row

    def counted(pid: int) -> ProcessRow | None:
        looks.append(pid)
        return read(pid)

    script = "for i in $(seq 200); do (setsid true &); done; read line"
    async with await ProcessGroup.spawn(
        ["sh", "-c", script], env=child_env(), cwd="/", stdin=Stdio.PIPE
    ):
        await until(lambda: len(set(proctable.adopted_pids(os.getpid())) - before) == 200)
        monkeypatch.setattr(proctable, "read_row", counted)
        await reaper.clear()
        assert len(looks) < 100
        assert len(set(proctable.adopted_pids(os.getpid())) - before) < 20


class SlowClock(SystemClock):
    """Each look at it takes a millisecond."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        self.now_s += 0.001
        return self.now_s


async def test_no_look_at_very_many_dead_holds_up_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def dead() -> set[int]:
        return set(proctable.adopted_pids(os.getpid())) - before

    reaper, before = Reaper(SlowClock()), set(proctable.adopted_pids(os.getpid()))
    looks, read = list[int](), proctable.read_row

    def counted(pid: int) -> ProcessRow | None:
        looks.append(pid)
        return read(pid)

    script = "for i in $(seq 100); do (setsid true &); done; read line"
    async with await ProcessGroup.spawn(
        ["sh", "-c", script], env=child_env(), cwd="/", stdin=Stdio.PIPE
    ) as group:
        await until(lambda: len(dead()) == 100)
        with monkeypatch.context() as patch:
            patch.setattr(proctable, "read_row", counted)
            reap_orphans()
            group._find_detached()
            orphans()
            assert len(looks) < 20, "dead ones are not read"
        reaper._look()
        assert len(dead()) > 90, "one look collects as many as its time allows"
        await reaper._until_clean()
        assert len(dead()) < 20, "and the next ones the rest"


async def test_a_long_list_of_children_is_read_beside_the_loop_and_looked_at_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reaper, before = Reaper(SlowClock()), set(proctable.adopted_pids(os.getpid()))
    on_loop, read, peeks = list[int](), proctable.adopted_pids, list[int]()

    def noted(pid: int, most: int | None = None) -> list[int]:
        if threading.current_thread() is threading.main_thread():
            on_loop.append(most or sys.maxsize)
        return read(pid, most)

    def looked(pid: int) -> int:
        peeks.append(pid)
        return 0

    script = "for i in $(seq 100); do (setsid true &); done; read line"
    async with await ProcessGroup.spawn(
        ["sh", "-c", script], env=child_env(), cwd="/", stdin=Stdio.PIPE
    ):
        await until(lambda: len(set(read(os.getpid())) - before) == 100)
        monkeypatch.setattr("agentsup.kit.reaper.MANY", 50)
        with monkeypatch.context() as patch:
            patch.setattr(proctable, "adopted_pids", noted)
            patch.setattr("agentsup.kit.process_tracker.peek_exit", looked)
            reaper._look_at(_Walk(read(os.getpid())))
            assert len(peeks) < 20, "one part looks at as many as its time allows"
            await reaper._until_clean()
        assert set(on_loop) == {50}
        left = set(read(os.getpid())) - before
        assert len(left) < 20
        for pid in left:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


class ForkedAndNotTold:
    """A program that runs and whose starter has not told of it yet; its child has left the group."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pids: list[int] = []
        self.is_told = threading.Event()
        self._popen = subprocess.Popen
        monkeypatch.setattr(subprocess, "Popen", self._fork)

    def _fork(self, *args: Any, **options: Any) -> subprocess.Popen[bytes]:
        popen = self._popen(*args, **options)
        self.pids.append(popen.pid)
        assert self.is_told.wait(30)
        return popen


@pytest.fixture(params=["lists", "no lists"])
def children(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a kernel without lists of children, where a new program looks like an orphan."""
    if request.param == "no lists":
        rows = proctable.table
        monkeypatch.setattr(proctable, "has_lists", lambda: False)
        monkeypatch.setattr(
            proctable,
            "adopted_pids",
            lambda pid, most=None: [row.pid for row in rows() if row.parent == pid][:most],
        )


@pytest.mark.usefixtures("children")
async def test_a_program_that_is_being_started_is_spared_with_what_it_started(
    tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reaper, new, owner = Reaper(SystemClock()), ForkedAndNotTold(monkeypatch), TaskOwner("starts")
    starting = owner.spawn(start(tag, "marked"), name="start")
    await until(lambda: has_left(tag))
    await reaper.clear()
    assert escapee.escaped(tag)
    new.is_told.set()
    async with await starting as group:
        await reaper.clear()
        assert group.returncode is None
        assert escapee.escaped(tag)
    assert not escapee.escaped(tag)


@pytest.mark.usefixtures("children")
async def test_a_program_before_its_exec_is_spared(
    tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leads its session already, and has the environment of this process still."""
    held, let_go = os.pipe()

    def before_exec(**_: object) -> Callable[[], object]:
        return lambda: os.read(held, 1)

    def born() -> list[ProcessRow]:
        rows = proctable.descendants({os.getpid()})
        return [row for row in rows if row.session == row.pid and row.parent == os.getpid()]

    before = {row.pid for row in born()}
    monkeypatch.setattr(procgroup, "before_exec", before_exec)
    reaper, owner = Reaper(SystemClock()), TaskOwner("starts")
    starting = owner.spawn(start(tag, "then:wait"), name="start")
    await until(lambda: any(row.pid not in before for row in born()))
    await reaper.clear()
    os.write(let_go, b"x")
    async with await starting as group:
        assert group.returncode is None
        assert group.pid in {row.pid for row in born()}
    for descriptor in (held, let_go):
        os.close(descriptor)
