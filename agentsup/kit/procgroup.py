"""The one door to child processes.

A child is started as the leader of its own session, so that it and everything it starts can be
signalled as one group. Its end is watched through a pidfd, never through its pipes, because a
grandchild may hold those open. A group counts as gone when no member is left in a state other
than zombie; a descendant that left the group (`setsid`, double fork) is known by its parents or by
a mark in its environment (`kit.strays`); one that hides from both is ended by `kit.reaper`. Serves
P5, and P1 when the daemon is killed: children die with it (`PR_SET_PDEATHSIG`) or are swept at the
next start.

Linux has all of this. Elsewhere the exit is polled, nothing dies with the daemon, descendants
that leave the group are not found, and `members` and `sweep` know nothing.
"""

import asyncio
import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import IO, Self

from agentsup.kit import proctable
from agentsup.kit.childenv import BASE_ENV_NAMES, child_env
from agentsup.kit.entropy import new_token
from agentsup.kit.exits import collect, peek_exit
from agentsup.kit.leftovers import MARK, GroupRecord, sweep
from agentsup.kit.pipes import PipeReader, PipeTail, PipeWriter
from agentsup.kit.prctl import before_exec
from agentsup.kit.proctable import members
from agentsup.kit.strays import LiveGroups, Strays

__all__ = [
    "BASE_ENV_NAMES",
    "GroupRecord",
    "GroupStuck",
    "Output",
    "ProcessGroup",
    "Stdio",
    "child_env",
    "live_groups",
    "members",
    "reap_orphans",
    "sweep",
]

_IS_LINUX = sys.platform == "linux"
_EXIT_POLL_S = 0.02
_FIRST_LOOK_S = 0.001
_LAST_LOOK_S = 0.032
_BURIAL_LOOK_S = 0.25
_KILL_LIMIT_S = 2.0
_serial = itertools.count(1)
_TIGHT_S = 0.003
# A mirror of kernel state: which children of this process are leaders that a group watches.
_live = LiveGroups()


class Stdio(Enum):
    """What to do with one of the child's three streams."""

    NULL = "null"
    PIPE = "pipe"
    TAIL = "tail"
    """Read all the time, keep only the end (stderr)."""
    MERGE = "merge"
    """The same stream as stdout (stderr only)."""


@dataclass(frozen=True, slots=True)
class Output:
    """What a program that ran to its end has left."""

    code: int
    stdout: bytes
    is_truncated: bool
    stderr_tail: bytes


class GroupStuck(RuntimeError):
    """Members survived SIGKILL for two seconds, as in uninterruptible disk sleep, or started others
    faster than they were killed; see `pids`. They are killed again at the next start."""

    def __init__(self, pgid: int, argv0: str, pids: list[int]) -> None:
        """Remember the group and who is left of it."""
        super().__init__(
            f"of the process group {pgid} ({argv0}) the processes {pids} are left 2 s after SIGKILL;"
            " look at them with ps, end what they wait for, or restart the daemon"
        )
        self.pgid = pgid
        self.pids = pids


def live_groups() -> LiveGroups:
    """The groups of this process that are not gone yet."""
    return _live


def reap_orphans(seen: frozenset[int] = frozenset()) -> frozenset[int]:
    """Collect dead orphans that fell to us as subreaper; returns the dead children seen now.

    Called every few seconds with the last result: only a child that was already dead then is
    collected, because a library's own child is collected by that library at once. The leaders
    of our groups are left to their groups.
    """
    rows = (proctable.read_row(pid) for pid in proctable.child_pids(os.getpid()))
    found = {row.pid for row in rows if row is not None and not row.is_alive}
    dead = {pid for pid in found if not _live.leads(pid)}
    for pid in dead & seen:
        collect(pid)
    return frozenset(dead - seen)


class ProcessGroup:
    """A running program and everything it started. Use as `async with`, or call `stop`.

    `stdin`, `stdout` and `stderr` are None where the stream was not asked for.
    """

    def __init__(self, popen: "subprocess.Popen[bytes]", argv0: str, mark: str) -> None:
        """Internal: use `spawn`."""
        self._popen = popen
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._pidfd: int | None = None
        self._gone = asyncio.Event()
        self._burial: asyncio.TimerHandle | None = None
        self._strays = Strays(popen.pid, argv0, mark)
        self.pid = popen.pid
        self.pgid = popen.pid
        row = proctable.read_row(self.pid)
        self.record = GroupRecord(self.pgid, row.started_ticks if row else 0, argv0)
        _live.add(self._strays)
        self.stdin: PipeWriter | None = None
        self.stdout: PipeReader | None = None
        self.stderr: PipeTail | None = None

    @classmethod
    async def spawn(
        cls,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str,
        stdin: bytes | Stdio | None = None,
        stdout: Stdio = Stdio.PIPE,
        stderr: Stdio = Stdio.TAIL,
        keep_stderr_bytes: int = 64 * 1024,
        gains_rights: bool = True,
        fence: int | None = None,
    ) -> "ProcessGroup":
        """Start `argv` in `cwd` with exactly `env` (see `child_env`) plus our mark.

        `stdin` is nothing, bytes to send, or `Stdio.PIPE` for a dialogue. With `gains_rights`
        false nothing that it starts gets another user's rights (`sudo`, setuid); nor with a `fence`,
        the rules of `kit.fence` that it and all it starts stay within. Raises `OSError` if the
        program cannot be started, `RuntimeError` outside the main thread: the kernel would
        kill the child when that thread ends. Has no await inside, so it cannot be cut in half.
        """
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("child processes are started from the main thread only")
        mark = f"{os.getpid()}.{next(_serial)}.{new_token()}"
        try:
            popen = subprocess.Popen(  # noqa: ASYNC220 - about 1 ms; a thread would be its "parent"
                list(argv),
                env={**env, MARK: mark},
                cwd=cwd,
                stdin=subprocess.DEVNULL if stdin in {None, Stdio.NULL} else subprocess.PIPE,
                stdout=subprocess.PIPE if stdout is not Stdio.NULL else subprocess.DEVNULL,
                stderr=_stderr_argument(stderr),
                bufsize=0,
                start_new_session=True,
                preexec_fn=before_exec(gains_rights=gains_rights, fence=fence),  # noqa: PLW1509 - system calls, no locks
            )
        except subprocess.SubprocessError as error:
            raise OSError(0, "the fence around it can't be closed") from error
        group = cls(popen, argv[0], mark)
        try:
            group._watch_exit()
            group._open_streams(stdin, keep_stderr_bytes)
        except BaseException:
            group.kill_now()
            raise
        return group

    @property
    def returncode(self) -> int | None:
        """The leader's exit code (negative: the signal that ended it); None while it runs."""
        return self._popen.returncode

    @property
    def stderr_tail(self) -> bytes:
        """The last bytes of the error output, if it was kept."""
        return self.stderr.tail if self.stderr is not None else b""

    async def wait(self) -> int:
        """The leader's exit code as soon as it ends, whoever still holds its pipes.

        Descendants may live on; `stop` ends them. A cancelled wait changes nothing.
        """
        await self._ended.wait()
        return self._popen.returncode

    async def communicate(self, *, limit_bytes: int) -> Output:
        """Let the program run to its end, keep the first `limit_bytes` of its output."""
        kept = bytearray()
        is_truncated = False
        while self.stdout is not None and (data := await self.stdout.read()):
            room = limit_bytes - len(kept)
            kept += data[:room]
            is_truncated |= len(data) > room
        code = await self.wait()
        return Output(code, bytes(kept), is_truncated, self.stderr_tail)

    async def stop(self, *, term_grace_s: float) -> None:
        """End the whole group: TERM, up to `term_grace_s` seconds, KILL, then see it gone.

        With `term_grace_s=0` it is killed at once. A cancellation skips the grace, still sees
        the group gone, and is raised then. Raises `GroupStuck` if members survive even SIGKILL
        for two seconds. Afterwards no descriptor is open. May be called repeatedly.
        """
        try:
            if not self._gone.is_set() and term_grace_s > 0:
                self._signal(signal.SIGTERM)
                await self._see_gone(term_grace_s)
        finally:
            self.kill_now()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_KILL_LIMIT_S):
                    await self._gone.wait()
        if not self._gone.is_set():
            left = sorted({*members(self.pgid), *(row.pid for row in self._strays.living())})
            raise GroupStuck(self.pgid, self.record.argv0, left)

    def kill_now(self) -> None:
        """SIGKILL the whole group without waiting and close our ends of its pipes.

        The dead are collected by the loop as they fall.
        """
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        if not self._gone.is_set():
            self._strays.is_ending = True
            self._signal(signal.SIGKILL)
            if self._ended.is_set():
                self._bury(_FIRST_LOOK_S)

    async def __aenter__(self) -> Self:
        """The group itself."""
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Nothing of the group outlives the block."""
        await self.stop(term_grace_s=0)

    # -- inside ------------------------------------------------------------------------------

    def _open_streams(self, stdin: bytes | Stdio | None, keep_stderr_bytes: int) -> None:
        popen = self._popen
        if popen.stdin is not None:
            self.stdin = PipeWriter(_take_descriptor(popen.stdin))
        if popen.stdout is not None:
            self.stdout = PipeReader(_take_descriptor(popen.stdout))
        if popen.stderr is not None:
            self.stderr = PipeTail(_take_descriptor(popen.stderr), keep_bytes=keep_stderr_bytes)
        if self.stdin is not None and isinstance(stdin, bytes):
            self.stdin.feed(stdin, then_close=True)

    def _watch_exit(self) -> None:
        with contextlib.suppress(AttributeError, OSError):
            self._pidfd = os.pidfd_open(self.pid)
        if self._pidfd is not None:
            self._loop.add_reader(self._pidfd, self._check_exit)
        else:
            self._loop.call_later(_EXIT_POLL_S, self._poll_exit)

    def _poll_exit(self) -> None:
        self._check_exit()
        if self._popen.returncode is None:
            self._loop.call_later(_EXIT_POLL_S, self._poll_exit)

    def _check_exit(self) -> None:
        """See whether the leader has ended, and let the streams run dry.

        It stays a zombie until `stop`, which keeps its number from being given to another
        process while descendants may still have to be signalled by it.
        """
        if self._popen.returncode is None:
            self._popen.returncode = peek_exit(self.pid)
            if self._popen.returncode is None:
                return
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None
        for stream in (self.stdout, self.stderr):
            if stream is not None:
                stream.leader_ended()
        if self.stdin is not None:
            self.stdin.close()
        self._ended.set()
        if self._strays.is_ending:
            self._bury(_FIRST_LOOK_S)

    def _bury(self, pause_s: float) -> None:
        """After a kill: look now and, with growing pauses, again until the group is gone."""
        if self._burial is not None:
            self._burial.cancel()
        if not self._check_gone():
            following_s = min(2 * pause_s, _BURIAL_LOOK_S)
            self._burial = self._loop.call_later(pause_s, self._bury, following_s)

    def _signal(self, number: signal.Signals) -> None:
        """Signal the group and those who left it; new strays are looked for each time."""
        self._find_strays()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pgid, number)
        for row in self._strays.living():
            _signal_pid(row.pid, number)

    def _find_strays(self) -> bool:
        """Take in descendants outside the group: still linked to it, or orphaned to us. True if
        there were living ones that were not known."""
        strays = self._strays
        orphans = _live.orphans_of(strays)
        roots = {self.pgid, *strays.pids, *(row.pid for row in orphans)}
        known = strays.pids
        for row in [*orphans, *proctable.descendants(roots)]:
            if row.is_alive and row.pgid != self.pgid:
                strays.add(row)
        return not strays.pids <= known

    def _kill_strays(self) -> bool:
        """Kill those outside the group; at once again while there are new ones, as one that forks
        and exits is another each time. True if any was there."""
        was_any = False
        until_s = self._loop.time() + _TIGHT_S
        while True:
            are_new = self._find_strays()
            living = self._strays.living()
            for row in living:
                _signal_pid(row.pid, signal.SIGKILL)
            was_any |= bool(living) or are_new
            if not are_new or self._loop.time() > until_s:
                return was_any

    async def _see_gone(self, limit_s: float) -> None:
        """The polite wait: until nothing of the group is alive, at most `limit_s` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._ended.wait()
                pause_s = _FIRST_LOOK_S
                while not self._check_gone():
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, _LAST_LOOK_S)

    def _check_gone(self) -> bool:
        """Collect dead members that are our children; True if nobody alive is left."""
        if self._gone.is_set():
            return True
        self._collect_dead()
        if self._strays.is_ending:
            is_any_away = self._kill_strays()
        else:
            self._find_strays()
            is_any_away = bool(self._strays.living())
        if is_any_away or self._has_members():
            return False
        self._collect_dead()
        _live.discard(self._strays)
        self._gone.set()
        return True

    def _collect_dead(self) -> None:
        while collect(-self.pgid) is not None:
            pass
        self._strays.collect_dead()

    def _has_members(self) -> bool:
        try:
            os.killpg(self.pgid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return bool(members(self.pgid))  # macOS answers so when only zombies are left
        # The number also answers for zombies that are not ours to collect: read their state.
        return not _IS_LINUX or bool(members(self.pgid))


def _stderr_argument(stderr: Stdio) -> int:
    if stderr is Stdio.PIPE:
        raise ValueError("stderr is kept as a tail, merged or dropped; it cannot be read as a pipe")
    if stderr is Stdio.MERGE:
        return subprocess.STDOUT
    return subprocess.PIPE if stderr is Stdio.TAIL else subprocess.DEVNULL


def _take_descriptor(stream: IO[bytes]) -> int:
    """The descriptor of a pipe's file object, which is closed; ours is a copy of its own."""
    descriptor = os.dup(stream.fileno())
    stream.close()
    return descriptor


def _signal_pid(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
