"""Real processes: each test starts what the engines of the world start, and looks in /proc."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentsup.kit import process_tracker, procgroup, proctable
from agentsup.kit.childenv import child_env
from agentsup.kit.pipes import TAIL_BYTES, LineTooLong, Stdio
from agentsup.kit.prctl import become_subreaper
from agentsup.kit.process_tracker import GroupRecord, sweep
from agentsup.kit.procgroup import Output, ProcessGroup
from agentsup.kit.proctable import members
from agentsup.kit.reaper import reap_orphans
from agentsup.kit.starter import ProgramStarter
from agentsup.kit.tasks import TaskOwner
from tests.support.bound import BOUND_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="process groups by /proc")

POPEN = subprocess.Popen
IGNORES_TERM = "trap '' TERM; echo up; while :; do sleep 0.2; done"


@pytest.fixture(autouse=True)
def subreaper() -> Iterator[None]:
    """As in the daemon: an orphan falls to us, and cannot hide below a PID 1 that is no init."""
    assert become_subreaper()
    yield
    ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)


async def start(script: str, **options: Any) -> ProcessGroup:
    return await ProcessGroup.spawn(["sh", "-c", script], env=child_env(), cwd="/", **options)


async def first_line(group: ProcessGroup) -> bytes:
    assert group.stdout is not None
    async with contextlib.aclosing(lines_of(group)) as lines:
        return await anext(lines)


async def both_up(group: ProcessGroup) -> None:
    """Both programs of a group ignore TERM from now on."""
    async with contextlib.aclosing(lines_of(group)) as lines:
        assert [await anext(lines) for _ in range(2)] == [b"up", b"up"]


async def lines_of(group: ProcessGroup) -> AsyncGenerator[bytes, None]:
    assert group.stdout is not None
    async with contextlib.aclosing(group.stdout.lines(10_000)) as lines:
        async for line in lines:
            yield line


async def until(condition: Callable[[], bool], limit_s: float = BOUND_S) -> None:
    async with asyncio.timeout(limit_s):
        while not condition():
            await asyncio.sleep(0.002)


def is_alive(pid: int) -> bool:
    row = proctable.read_row(pid)
    return row is not None and row.is_alive


def fds() -> set[str]:
    return {entry.name for entry in Path("/proc/self/fd").iterdir()}


async def test_a_program_has_the_usual_effect_of_signals() -> None:
    """Whoever starts the daemon in the background or by nohup has some ignored or held back."""
    ignored = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in ignored}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    try:
        group = await start("grep -E '^Sig(Blk|Ign)' /proc/self/status")
        output = (await group.communicate(limit_bytes=1000)).stdout.decode().split()
        await group.stop(term_grace_s=0)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, effect in before.items():
            signal.signal(number, effect)
    blocked, not_effective = int(output[1], 16), int(output[3], 16)
    for number in (*ignored, signal.SIGUSR1):
        assert not (blocked | not_effective) & 1 << (number - 1), number.name


# -- running to the end -----------------------------------------------------------------------


async def test_a_program_runs_to_its_end() -> None:
    async with await start("echo one; printf two; echo trouble >&2; exit 3") as group:
        lines = [line async for line in lines_of(group)]
        assert await group.wait() == 3
        assert group.returncode == 3
        assert lines == [b"one", b"two"]
        assert group.stderr_tail == b"trouble\n"


async def test_a_signal_is_told_as_a_negative_code() -> None:
    async with await start("kill -9 $$") as group:
        assert await group.wait() == -signal.SIGKILL


async def test_a_program_that_cannot_start_leaves_nothing() -> None:
    before = fds()
    with pytest.raises(FileNotFoundError):
        await ProcessGroup.spawn(["/no/such/program"], env={}, cwd="/")
    with pytest.raises(FileNotFoundError):
        await ProcessGroup.spawn(["true"], env=child_env(), cwd="/no/such/directory")
    assert fds() == before


async def test_the_environment_is_the_given_one_and_a_mark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MY_SECRET", "hush")
    env = child_env(("PATH",), {"A": "1"}, source={"PATH": os.environ["PATH"]})
    async with await ProcessGroup.spawn(["env"], env=env, cwd="/") as group:
        names = {line.split(b"=")[0] async for line in lines_of(group)}
    assert names == {b"PATH", b"A", b"AGENTSUP_GROUP"}


def test_child_env_takes_listed_names_and_extras_only() -> None:
    source = {"PATH": "/bin", "TOKEN": "hush", "LANG": "C"}
    assert child_env(source=source) == {"PATH": "/bin", "LANG": "C"}
    assert child_env(("PATH",), {"X": "y"}, source=source) == {"PATH": "/bin", "X": "y"}


async def test_bytes_larger_than_a_pipe_go_in_and_come_out() -> None:
    payload = os.urandom(700_000)
    async with await start("cat", stdin=payload) as group:
        output = await group.communicate(limit_bytes=1_000_000)
    assert output == Output(0, payload, False, b"")


async def test_a_dialogue_over_pipes() -> None:
    async with await start("while read x; do echo got $x; done", stdin=Stdio.PIPE) as group:
        assert group.stdin is not None
        async with contextlib.aclosing(lines_of(group)) as lines:
            for word in (b"one", b"two"):
                await group.stdin.write(word + b"\n")
                assert await anext(lines) == b"got " + word
        group.stdin.close()
        assert await group.wait() == 0


async def test_writing_to_a_program_that_stopped_reading_is_an_error() -> None:
    async with await start("exec 0<&-; echo deaf; sleep 60", stdin=Stdio.PIPE) as group:
        assert await first_line(group) == b"deaf"
        assert group.stdin is not None
        with pytest.raises(BrokenPipeError):
            await group.stdin.write(b"x" * 200_000)
        with pytest.raises(BrokenPipeError):
            await group.stdin.write(b"again")


async def test_output_beyond_the_limit_is_read_and_dropped() -> None:
    async with await start("head -c 5000000 /dev/zero; exit 4") as group:
        output = await group.communicate(limit_bytes=1000)
    assert (output.code, len(output.stdout), output.is_truncated) == (4, 1000, True)


async def test_unread_output_is_held_back_in_the_child() -> None:
    async with await start("yes") as group:
        assert group.stdout is not None
        await until(lambda: group.stdout is not None and group.stdout._is_paused)
        assert len(group.stdout._unread) < 400_000


async def test_only_the_end_of_the_error_output_is_kept() -> None:
    async with await start("yes x | head -c 900000 >&2; echo end >&2") as one:
        await one.wait()
        assert len(one.stderr_tail) == TAIL_BYTES
        assert one.stderr_tail.endswith(b"x\nend\n")


async def test_merged_errors_arrive_with_the_output() -> None:
    async with await start("echo a; echo b >&2", stderr=Stdio.MERGE) as group:
        assert [line async for line in lines_of(group)] == [b"a", b"b"]


@pytest.mark.parametrize("size", [9, 10, 11, 500_000])
async def test_a_line_is_limited(size: int) -> None:
    async with await start(f"head -c {size} /dev/zero; echo; echo next") as group:
        assert group.stdout is not None
        lines = group.stdout.lines(10)
        if size <= 10:
            assert [line async for line in lines] == [b"\0" * size, b"next"]
        else:
            with pytest.raises(LineTooLong, match="10 bytes"):
                await anext(lines)


async def test_the_parent_of_a_program_is_a_thread_that_never_ends() -> None:
    """The kernel kills a program at the end of the thread that forked it."""
    async with await start("read x", stdin=Stdio.PIPE) as group:
        (parent,) = [
            thread
            for thread in threading.enumerate()
            if str(group.pid)
            in Path(f"/proc/self/task/{thread.native_id}/children").read_text().split()
        ]
        assert parent in procgroup.STARTER._threads
        assert parent.daemon


async def test_the_loop_goes_on_while_a_program_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    forked, asked = threading.Event(), threading.Event()

    def fork(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        asked.set()
        assert forked.wait(30)
        return POPEN(*args, **options)

    monkeypatch.setattr(subprocess, "Popen", fork)
    async with asyncio.TaskGroup() as tasks:
        starting = tasks.create_task(start("exit 5"), name="start")
        await until(asked.is_set)
        assert not starting.done()
        forked.set()
    async with starting.result() as group:
        assert await group.wait() == 5


# -- the traps ----------------------------------------------------------------------------------


async def test_a_grandchild_that_holds_the_pipes_delays_nothing() -> None:
    async with asyncio.timeout(BOUND_S), await start("sleep 600 & echo hi") as group:
        assert [line async for line in lines_of(group)] == [b"hi"]
        assert await group.wait() == 0
        assert len(members(group.pgid)) == 1
        await group.stop(term_grace_s=0)
        assert members(group.pgid) == []


async def test_a_killed_leader_does_not_wait_for_its_grandchild() -> None:
    async with await start("sleep 60 & echo up; wait") as group:
        await first_line(group)
        os.kill(group.pid, signal.SIGKILL)
        async with asyncio.timeout(BOUND_S):
            assert await group.wait() == -signal.SIGKILL
        assert len(members(group.pgid)) == 1
    assert members(group.pgid) == []


async def test_an_obedient_group_ends_without_using_up_its_grace() -> None:
    group = await start("echo up; sleep 60 & sleep 60")
    await first_line(group)
    async with asyncio.timeout(BOUND_S):
        await group.stop(term_grace_s=60)
    assert group.returncode == -signal.SIGTERM
    assert members(group.pgid) == []


async def test_term_can_be_answered_with_a_clean_end() -> None:
    group = await start("trap 'echo bye >&2; exit 7' TERM; echo up; while :; do sleep 0.01; done")
    await first_line(group)
    await group.stop(term_grace_s=10)
    assert group.returncode == 7
    assert group.stderr_tail.endswith(b"bye\n")


async def test_a_group_that_ignores_term_is_killed() -> None:
    group = await start(f"({IGNORES_TERM}) & {IGNORES_TERM}")
    await both_up(group)
    await group.stop(term_grace_s=0.05)
    assert group.returncode == -signal.SIGKILL
    assert members(group.pgid) == []


async def test_a_grandchild_that_ignores_term_after_its_leader_obeyed_is_killed() -> None:
    group = await start(f"({IGNORES_TERM}) & wait")
    await first_line(group)
    await group.stop(term_grace_s=0.05)
    assert group.returncode == -signal.SIGTERM
    assert members(group.pgid) == []


@pytest.mark.parametrize(
    "escape",
    [
        "(sleep 60 & echo $!)",
        "setsid sh -c 'echo $$; sleep 60' & wait",
        "(setsid sh -c 'echo $$; sleep 60' &); sleep 60",
        "setsid sh -c '(setsid sh -c \"echo \\$\\$; exec sleep 60\" &)'; sleep 60",
        "(setsid sh -c 'trap \"\" TERM; echo $$; while :; do sleep 0.2; done' &); read x",
    ],
    ids=["forked", "own-session", "double-forked", "twice-away", "leader-gone-ignores-term"],
)
async def test_who_leaves_the_group_is_found(escape: str) -> None:
    async with await start(escape, stdin=Stdio.PIPE) as group:
        stray = int(await first_line(group))
        assert is_alive(stray)
        if escape.endswith("read x"):
            assert group.stdin is not None
            group.stdin.close()
            await group.wait()
        await group.stop(term_grace_s=0.05)
        assert not is_alive(stray)
    reap_orphans(reap_orphans())


async def test_without_a_subreaper_those_still_linked_to_the_group_are_found() -> None:
    ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)
    async with await start("setsid sh -c 'echo $$; exec sleep 60' & wait") as group:
        stray = int(await first_line(group))
        await group.stop(term_grace_s=0)
        await until(lambda: not is_alive(stray))


async def test_a_zombie_does_not_count_as_a_member() -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as zombie:
        assert members(zombie.pid) == [zombie.pid]
        zombie.kill()
        await until(lambda: not is_alive(zombie.pid))
        os.killpg(zombie.pid, 0)  # the kernel still finds the group
        assert members(zombie.pid) == []


async def test_fifty_groups_die_in_parallel(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them waits for another's end before it is killed, however slow the machine is."""
    groups = [await start(f"({IGNORES_TERM}) & {IGNORES_TERM}") for _ in range(50)]
    for group in groups:
        await both_up(group)
    killed: set[int] = set()
    killed_at_an_end: list[int] = []
    killpg = os.killpg

    def kill(pgid: int, number: int) -> None:
        killpg(pgid, number)
        if number == signal.SIGKILL:
            killed.add(pgid)

    async def stop(group: ProcessGroup) -> None:
        await group.stop(term_grace_s=0)
        killed_at_an_end.append(len(killed))

    monkeypatch.setattr(os, "killpg", kill)
    async with asyncio.TaskGroup() as stopping:
        for group in groups:
            stopping.create_task(stop(group), name=f"stop:{group.pid}")
    assert killed_at_an_end == [50] * 50
    left = {pid for row in proctable.table() if row.is_alive for pid in (row.pgid, row.session)}
    assert not left & {group.pgid for group in groups}
    reap_orphans(reap_orphans())


async def test_stopping_twice_and_at_once_is_harmless() -> None:
    group = await start(IGNORES_TERM)
    await first_line(group)
    owner = TaskOwner("stopping")
    slow = owner.spawn(group.stop(term_grace_s=60), name="stop:slow")
    await until(lambda: bool(owner.tasks))
    await group.stop(term_grace_s=0)
    async with asyncio.timeout(BOUND_S):
        await slow
    await group.stop(term_grace_s=1)


# -- cancellation -------------------------------------------------------------------------------


async def use_group(pids: list[int], grace_s: float) -> None:
    """Spawn, read, wait and stop: everything a cancellation can hit."""
    async with await start(f"sleep 60 & {IGNORES_TERM}") as group:
        pids.append(group.pgid)
        await first_line(group)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.005):
                await group.wait()
        await group.stop(term_grace_s=grace_s)


@pytest.mark.parametrize("second_cancel", [False, True])
async def test_cancelled_anywhere_it_leaves_no_process_and_no_descriptor(
    second_cancel: bool,
) -> None:
    await use_group([], 0)
    before = fds()
    owner = TaskOwner("users")
    for pause_ms in (0, 0, 1, 2, 3, 5, 7, 9, 11, 13, 15, 18, 21, 25, 30):
        pids: list[int] = []
        user = owner.spawn(use_group(pids, 0.01), name="user:group")
        await asyncio.sleep(pause_ms / 1000)
        user.cancel()
        if second_cancel:
            await asyncio.sleep(0)
            user.cancel()
        await asyncio.wait({user})
        assert user.cancelled() or user.exception() is None
        await until(lambda: fds() == before)
        await until(lambda: not len(procgroup.live_groups()))
        assert not any(members(pgid) for pgid in pids)
    reap_orphans(reap_orphans())


class SlowFork:
    """Programs are forked, and then not told of before ``release``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pids: list[int] = []
        self._is_told = threading.Event()
        monkeypatch.setattr(subprocess, "Popen", self.fork)

    def fork(self, *args: Any, **options: Any) -> subprocess.Popen[bytes]:
        popen = POPEN(*args, **options)
        self.pids.append(popen.pid)
        assert self._is_told.wait(BOUND_S)
        return popen

    def release(self) -> None:
        self._is_told.set()


@pytest.mark.parametrize("cancels", [1, 2])
async def test_a_start_that_is_cancelled_leaves_no_process(
    cancels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is forked and not told of yet, the other one waits behind it."""
    await use_group([], 0)
    before, slow, owner = fds(), SlowFork(monkeypatch), TaskOwner("starts")
    # With one cancellation a start is waited for, as the end of a group is, but not for ever.
    patient = ProgramStarter(stuck_s=BOUND_S, undo_s=BOUND_S)
    monkeypatch.setattr(procgroup, "STARTER", patient)
    starts = [owner.spawn(start(IGNORES_TERM), name=f"start:{number}") for number in range(2)]
    await until(lambda: bool(slow.pids))
    for _ in range(cancels):
        for each in starts:
            each.cancel()
        await until(starts[1].done)
    await until(lambda: starts[0].done() == (cancels == 2))
    slow.release()
    await asyncio.wait(starts)
    assert all(each.cancelled() for each in starts)
    if cancels == 1:
        assert not is_alive(slow.pids[0])
    await until(lambda: not is_alive(slow.pids[0]) and fds() == before)
    await until(lambda: not procgroup.live_groups()._marks)
    assert len(slow.pids) == 1, "what waits is not forked any more"


async def test_a_start_that_was_done_when_it_is_cancelled_leaves_no_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow, owner = SlowFork(monkeypatch), TaskOwner("starts")
    start_of_one = owner.spawn(start(IGNORES_TERM), name="start:one")
    await until(lambda: bool(slow.pids))
    slow.release()
    # The loop stands still meanwhile, so that the answer and the cancellation come together.
    time.sleep(0.05)
    start_of_one.cancel()
    await asyncio.wait({start_of_one})
    assert start_of_one.cancelled()
    assert not is_alive(slow.pids[0])
    assert not procgroup.live_groups()._marks


async def test_a_start_that_takes_too_long_fails_and_is_ended_when_it_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await use_group([], 0)
    before, slow = fds(), SlowFork(monkeypatch)
    monkeypatch.setattr(procgroup, "STARTER", ProgramStarter(limit_s=2.0, undo_s=0.05))
    with pytest.raises(OSError, match="not started within"):
        await start(IGNORES_TERM)
    assert is_alive(slow.pids[0])
    slow.release()
    await until(lambda: not is_alive(slow.pids[0]) and fds() == before)
    await until(lambda: not procgroup.live_groups()._marks)


async def test_a_cancelled_wait_changes_nothing() -> None:
    async with await start("read x; exit 5", stdin=Stdio.PIPE) as group:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await group.wait()
        assert group.stdin is not None
        await group.stdin.write(b"go\n")
        assert await group.wait() == 5


# -- the daemon's own death ----------------------------------------------------------------------


DAEMON = """
import asyncio, os, sys
from agentsup.kit.childenv import child_env
from agentsup.kit.procgroup import ProcessGroup
async def main():
    g = await ProcessGroup.spawn(["sh", "-c", sys.argv[1]], env=child_env(), cwd="/")
    async for line in g.stdout.lines(100):
        print(g.record.pgid, g.record.started_ticks, line.decode(), flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


@contextlib.contextmanager
def killed_daemon(script: str) -> Iterator[tuple[GroupRecord, int]]:
    """A process that starts ``script`` as a group and is then SIGKILLed."""
    argv = [sys.executable, "-c", DAEMON, script]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as daemon:
        assert daemon.stdout is not None
        pgid, ticks, last = map(int, daemon.stdout.readline().split())
        daemon.kill()
        daemon.wait()
    yield GroupRecord(pgid, ticks, "sh"), last


async def test_the_leader_dies_with_a_killed_daemon() -> None:
    with killed_daemon("echo $$; exec sleep 60") as (record, _):
        await until(lambda: not is_alive(record.pgid))
    reap_orphans(reap_orphans())


async def test_what_outlived_the_leader_is_swept_by_its_mark() -> None:
    with killed_daemon("sleep 60 & echo $!; wait") as (record, grandchild):
        await until(lambda: not is_alive(record.pgid))
        assert is_alive(grandchild)
        assert await sweep([record]) == [record]
        await until(lambda: not is_alive(grandchild))
        assert await sweep([record]) == []
    reap_orphans(reap_orphans())


async def test_what_is_just_exchanging_its_program_is_swept_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its environment reads as empty meanwhile; here the exchange ends between two looks."""
    real, executing = proctable.environ_value, [True, True, False]
    with killed_daemon("sleep 60 & echo $!; wait") as (record, grandchild):
        await until(lambda: not is_alive(record.pgid))
        await until(lambda: real(grandchild, process_tracker.MARK) is not None)

        def value(pid: int, name: str) -> str | None:
            return None if pid == grandchild and executing else real(pid, name)

        monkeypatch.setattr(proctable, "environ_value", value)
        monkeypatch.setattr(
            proctable, "is_being_executed", lambda _: bool(executing) and executing.pop(0)
        )
        assert await sweep([record]) == [record]
        await until(lambda: not is_alive(grandchild))
    reap_orphans(reap_orphans())


MANY_STARTS = """
import asyncio, os
from agentsup.kit.childenv import child_env
from agentsup.kit.procgroup import ProcessGroup
async def one():
    g = await ProcessGroup.spawn(["sh", "-c", "exec sleep 60"], env=child_env(), cwd="/")
    print(g.pid, flush=True)
async def main():
    print(0, flush=True)
    await asyncio.gather(*(one() for _ in range(20)))
    await asyncio.Event().wait()
asyncio.run(main())
"""


@pytest.mark.parametrize("started", [0, 1, 6])
async def test_a_daemon_that_is_killed_while_it_starts_programs_leaves_none(started: int) -> None:
    before = set(proctable.child_pids(os.getpid()))
    with subprocess.Popen([sys.executable, "-c", MANY_STARTS], stdout=subprocess.PIPE) as daemon:
        assert daemon.stdout is not None
        for _ in range(started + 1):
            daemon.stdout.readline()
        daemon.kill()
        daemon.wait()
    mark = f"{daemon.pid}."

    def left() -> list[int]:
        rows = [row for row in proctable.table() if row.is_alive]
        marks = {row.pid: proctable.environ_value(row.pid, process_tracker.MARK) for row in rows}
        return [pid for pid, value in marks.items() if value and value.startswith(mark)]

    def is_gone() -> bool:
        """What was just forked has no mark yet, and is our child now."""
        reap_orphans(reap_orphans())
        return not left() and set(proctable.child_pids(os.getpid())) <= before

    await until(is_gone)


async def test_a_living_leader_of_an_earlier_boot_is_swept() -> None:
    group = await start("sleep 60 & sleep 60")
    await until(lambda: len(members(group.pgid)) == 3)
    assert await sweep([group.record]) == [group.record]
    # A shell whose child is killed first may end by itself, and says so.
    assert await group.wait() in {-signal.SIGKILL, 128 + signal.SIGKILL}
    await group.stop(term_grace_s=0)


async def test_what_a_group_starts_after_the_look_is_swept_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = await start("sleep 60 & sleep 60")
    await until(lambda: len(members(group.pgid)) == 3)
    real, looks = proctable.table, [0]

    def table() -> list[proctable.ProcessRow]:
        looks[0] += 1
        return [
            row for row in real() if looks[0] > 1 or row.pgid != group.pgid or row.pid == group.pid
        ]

    monkeypatch.setattr(proctable, "table", table)
    assert await sweep([group.record]) == [group.record]
    assert not members(group.pgid), "a sweep ends when nothing is left"
    await group.stop(term_grace_s=0)


async def test_a_member_on_its_way_out_is_waited_for_and_not_signalled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its environment with our mark is gone already, and so is its leader."""
    record, nobody = GroupRecord(2**22 + 1, 9, "sh"), 2**22 + 2
    ending = proctable.ProcessRow(nobody, "R", 1, record.pgid, record.pgid, 9, flags=0x4)
    assert proctable.is_ending(ending)
    looks, killed = [[ending], [ending], []], list[int]()
    monkeypatch.setattr(proctable, "table", lambda: looks.pop(0))
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append(pid))
    assert await sweep([record]) == [record]
    assert (looks, killed) == ([], [])


FIRST_THREAD_ENDS = """
import ctypes, platform, signal, threading, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
threading.Thread(target=time.sleep, args=(60,)).start()
ctypes.CDLL(None).syscall(60 if platform.machine() == "x86_64" else 93, 0)
"""


async def test_a_member_whose_first_thread_has_ended_still_counts_and_is_killed() -> None:
    """The kernel shows it as a zombie while its other threads run."""
    program = f"{sys.executable} -c '{FIRST_THREAD_ENDS}' & echo $!; read x"
    group = await start(program, stdin=Stdio.PIPE)
    member = int(await first_line(group))
    await until(lambda: (row := proctable.read_row(member)) is not None and row.state == "Z")
    assert is_alive(member)
    await group.stop(term_grace_s=0.2)
    assert not is_alive(member)
    reap_orphans(reap_orphans())


async def test_a_member_whose_first_thread_has_ended_is_swept_by_its_mark() -> None:
    """Its own entry shows no environment any more; those of its other threads do."""
    program = f"{sys.executable} -c '{FIRST_THREAD_ENDS}' & echo $!; wait"
    with killed_daemon(program) as (record, member):
        await until(lambda: not is_alive(record.pgid))
        await until(lambda: (row := proctable.read_row(member)) is not None and row.state == "Z")
        assert await sweep([record]) == [record]
        assert not is_alive(member)
    reap_orphans(reap_orphans())


async def test_a_member_whose_threads_all_end_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first thread is gone, another one still counts and has no memory any more; found while
    its leader was there, or seen first when that is gone."""
    record = GroupRecord(2**22 + 1, 9, "sh")
    member = proctable.ProcessRow(2**22 + 2, "Z", 1, record.pgid, record.pgid, 9, 2, flags=0x4)
    assert proctable.is_ending(member)
    leader = proctable.ProcessRow(record.pgid, "S", 1, record.pgid, record.pgid, 9)
    for looks in ([[leader, member], [member], []], [[member], [member], []]):
        monkeypatch.setattr(proctable, "table", lambda looks=looks: looks.pop(0))
        assert await sweep([record]) == [record]
        assert looks == []


async def test_what_was_found_once_counts_until_it_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A descendant outside the group, whose environment can't be read any more."""
    record = GroupRecord(2**22 + 1, 9, "sh")
    outside = proctable.ProcessRow(2**22 + 2, "S", 1, 1, 1, 9)
    values = [str(record.pgid)]
    monkeypatch.setattr(
        proctable, "environ_value", lambda pid, name: values.pop() if values else None
    )
    looks = [[outside], [outside], []]
    monkeypatch.setattr(proctable, "table", lambda: looks.pop(0))
    killed = list[int]()
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append(pid))
    assert await sweep([record]) == [record]
    assert (looks, killed) == ([], [outside.pid] * 2)


async def test_a_reused_number_and_a_stranger_survive_the_sweep() -> None:
    with subprocess.Popen(["sh", "-c", "sleep 60 & wait"], start_new_session=True) as stranger:
        row = proctable.read_row(stranger.pid)
        assert row is not None
        await until(lambda: len(members(stranger.pid)) == 2)
        before = members(stranger.pid)
        assert await sweep([GroupRecord(stranger.pid, row.started_ticks - 1, "sh")]) == []
        assert members(stranger.pid) == before
        # Even with its leader gone, a group without our mark is nobody's business.
        stranger.kill()
        await until(lambda: not is_alive(stranger.pid))
        assert await sweep([GroupRecord(stranger.pid, row.started_ticks, "sh")]) == []
        assert len(members(stranger.pid)) == 1
        os.killpg(stranger.pid, signal.SIGKILL)
        await until(lambda: not members(stranger.pid))
    reap_orphans(reap_orphans())


async def test_dead_orphans_are_collected_and_living_leaders_left_alone() -> None:
    async with await start("(sleep 0.01 & echo $!); echo up; read x", stdin=Stdio.PIPE) as group:
        orphan = int(await first_line(group))
        await until(lambda: not is_alive(orphan))
        seen = reap_orphans()
        assert seen == {orphan}
        assert reap_orphans(seen) == frozenset()
        assert proctable.read_row(orphan) is None
        assert group.stdin is not None
        group.stdin.close()
        await group.wait()
        assert group.pid not in reap_orphans()
        assert group.returncode == 1


async def test_the_record_names_the_process() -> None:
    row = proctable.read_row(os.getpid())
    assert row is not None
    assert row.started_ticks > 0
    assert row.parent == os.getppid()
    assert proctable.read_row(2**22 + 1) is None
    assert proctable.environ_value(os.getpid(), "NO_SUCH_NAME") is None
    assert await process_tracker.sweep([]) == []
