"""Programs that hide from their group, and what ends them all the same."""

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest

from agentsup.kit import procgroup, proctable
from agentsup.kit.clock import SystemClock
from agentsup.kit.leftovers import MARK
from agentsup.kit.prctl import become_subreaper
from agentsup.kit.procgroup import GroupRecord, ProcessGroup, Stdio, child_env, reap_orphans, sweep
from agentsup.kit.proctable import ProcessRow, environ_value
from agentsup.kit.reaper import OrphansStuck, Reaper
from agentsup.kit.tasks import TaskOwner
from agentsup.testing import escapee

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


async def until(condition: Callable[[], object], limit_s: float = 8.0) -> None:
    async with asyncio.timeout(limit_s):
        while not condition():
            await asyncio.sleep(0.002)


def orphans() -> set[int]:
    """What fell to this process, with children that tests before have left to others."""
    return {row.pid for row in procgroup.live_groups().orphans()}


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
    await until(lambda: escapee.escaped(tag))
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
    known = live._strays.mark.split(".")[:2]  # the daemon's number and a count
    for mark in (gone._strays.mark, ".".join(known), ".".join([*known, ""])):
        forged = ["/usr/bin/env", f"AGENTSUP_GROUP={mark}", *escapee.PROGRAM, tag, "marked"]
        async with await ProcessGroup.spawn(forged, env=child_env(), cwd="/"):
            await until(lambda: escapee.escaped(tag))
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
        await until(lambda: escapee.escaped(tag))
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
        await until(lambda: escapee.escaped(tag))
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
    assert sweep([], [GroupRecord(stray, row.started_ticks - 1, "sh")]) == []
    assert escapee.escaped(tag) == [stray]
    record = GroupRecord(stray, row.started_ticks, "sh")
    assert sweep([], [record]) == [record]
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
        await until(lambda: len(set(proctable.adopted_pids(os.getpid())) - before) > 200)
        monkeypatch.setattr(proctable, "read_row", counted)
        await reaper.clear()
        assert len(looks) < 100
        assert len(set(proctable.adopted_pids(os.getpid())) - before) < 20
