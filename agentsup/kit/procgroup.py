"""The only module that starts child processes which must not outlive the daemon.

A child is forked in a thread (``kit.starter``), as the leader of its own session, so that it and
all its descendants can be signalled as one group. Its end is watched through a pidfd, never through
its pipes, because a grandchild may hold those open. A group counts as gone when it has no member
but zombies. A descendant that left the group (``setsid``, double fork) is known by its parents or
by a mark in its environment (``kit.process_tracker``); one that hides both is ended by ``kit.reaper``.
Serves P5, and P1 when the daemon is killed: children die with it (``PR_SET_PDEATHSIG``) or are
killed at the next start.

Linux supports all of this. Elsewhere the exit is polled, nothing dies with the daemon, descendants
that leave the group are not found, and ``members`` and ``sweep`` find nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from agentsup.kit import proctable
from agentsup.kit.entropy import new_token
from agentsup.kit.pipes import PipeReader, PipeTail, PipeWriter, Stdio, take_descriptor
from agentsup.kit.prctl import before_exec
from agentsup.kit.process_tracker import MARK, DetachedProcesses, GroupRecord, ProcessTracker
from agentsup.kit.proctable import collect, members, peek_exit
from agentsup.kit.starter import ProgramStarter
from agentsup.kit.tasks import time_limit

_IS_LINUX = sys.platform == "linux"
_EXIT_POLL_S = 0.02
_FIRST_LOOK_S = 0.001
_LAST_LOOK_S = 0.032
_BURIAL_LOOK_S = 0.25
_KILL_LIMIT_S = 2.0
_ERRORS = {Stdio.TAIL: subprocess.PIPE, Stdio.MERGE: subprocess.STDOUT}
_serial = itertools.count(1)
_TIGHT_S = 0.003
_LISTED_S = 0.002
# A mirror of kernel state: the children of this process that lead a watched group.
_live = ProcessTracker()
# The parent of these children, as the kernel sees it: they die with its thread.
STARTER = ProgramStarter()
"""Forks all programs of this process."""


@dataclass(frozen=True, slots=True)
class Output:
    """The output of a program that ran to its end."""

    code: int
    stdout: bytes
    is_truncated: bool
    stderr_tail: bytes


class GroupStuck(RuntimeError):
    """Members survived SIGKILL for two seconds: in uninterruptible disk sleep, or because they
    start others faster than they are killed; see ``pids``. They are killed again at the next
    start."""

    def __init__(self, pgid: int, argv0: str, pids: list[int]) -> None:
        """``pids`` are the members that are left."""
        super().__init__(
            f"of the process group {pgid} ({argv0}) the processes {pids} are left 2 s after SIGKILL;"
            " look at them with ps, end what they wait for, or restart the daemon"
        )
        self.pgid = pgid
        self.pids = pids


def live_groups() -> ProcessTracker:
    """The groups of this process that are not gone yet."""
    return _live


class ProcessGroup:
    """A running program and all its descendants. Use as ``async with``, or call ``stop``.

    ``stdin``, ``stdout`` and ``stderr`` are None if the stream was not requested.
    """

    def __init__(self, popen: subprocess.Popen[bytes], detached: DetachedProcesses) -> None:
        """Internal: use ``spawn``."""
        self._popen = popen
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._pidfd: int | None = None
        self._gone = asyncio.Event()
        self._burial: asyncio.TimerHandle | None = None
        self._detached = detached
        detached.pgid = popen.pid
        self.pid = popen.pid
        self.pgid = popen.pid
        row = proctable.read_row(self.pid)
        self.record = GroupRecord(self.pgid, row.started_ticks if row else 0, detached.argv0)
        _live.add(self._detached)
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
        gains_rights: bool = True,
        fence: int | None = None,
    ) -> ProcessGroup:
        """Start ``argv`` in ``cwd`` with exactly ``env`` (see ``child_env``) plus our mark.

        ``stdin`` is nothing, bytes to send, or ``Stdio.PIPE`` for a dialogue. With ``gains_rights``
        false, or with a ``fence`` (rules of ``kit.fence`` for it and its descendants), no
        descendant can get another user's rights (``sudo``, setuid). Raises ``OSError`` if the
        program cannot be started. A cancelled start leaves no process: the group is killed as soon
        as there is one, and waited for.
        """
        detached = DetachedProcesses(0, argv[0], f"{os.getpid()}.{next(_serial)}.{new_token()}")
        before = before_exec(gains_rights=gains_rights, fence=fence)
        if stderr is Stdio.PIPE:
            raise ValueError(
                "stderr is kept as a tail, merged or dropped; it can't be read as a pipe"
            )

        def fork() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                list(argv),
                env={**env, MARK: detached.mark},
                cwd=cwd,
                stdin=subprocess.DEVNULL if stdin in {None, Stdio.NULL} else subprocess.PIPE,
                stdout=subprocess.DEVNULL if stdout is Stdio.NULL else subprocess.PIPE,
                stderr=_ERRORS.get(stderr, subprocess.DEVNULL),
                bufsize=0,
                start_new_session=True,
                preexec_fn=before,  # noqa: PLW1509 - system calls, no locks
            )

        unwanted: list[ProcessGroup] = []

        def born(popen: subprocess.Popen[bytes]) -> ProcessGroup:
            group = cls(popen, detached)
            try:
                group._watch_exit()
                group._open_streams(stdin)
            except BaseException:
                group.kill_now()
                raise
            return group

        def undo(popen: subprocess.Popen[bytes]) -> None:
            unwanted.append(born(popen))
            unwanted[0].kill_now()

        _live.expect(detached)
        try:
            popen = await STARTER.run(fork, undo=undo)
        except BaseException as error:
            if not unwanted:
                _live.discard(detached)
            for group in unwanted:
                await group.stop(term_grace_s=0)
            if isinstance(error, subprocess.SubprocessError):
                raise OSError(0, "the fence around it can't be closed") from error
            raise
        return born(popen)

    @property
    def returncode(self) -> int | None:
        """The leader's exit code (negative: the signal that ended it); None while it runs."""
        return self._popen.returncode

    @property
    def stderr_tail(self) -> bytes:
        """The last bytes of the error output, if it was kept."""
        return self.stderr.tail if self.stderr is not None else b""

    async def wait(self) -> int:
        """The leader's exit code as soon as it ends, even if other processes hold its pipes.

        Descendants may still live; ``stop`` ends them. A cancelled wait changes nothing.
        """
        await self._ended.wait()
        return self._popen.returncode

    async def communicate(self, *, limit_bytes: int) -> Output:
        """Let the program run to its end, and keep the first ``limit_bytes`` of its output."""
        output = bytearray()
        is_truncated = False
        while self.stdout is not None and (data := await self.stdout.read()):
            room = limit_bytes - len(output)
            output += data[:room]
            is_truncated |= len(data) > room
        code = await self.wait()
        return Output(code, bytes(output), is_truncated, self.stderr_tail)

    async def stop(self, *, term_grace_s: float) -> None:
        """End the group: TERM, up to ``term_grace_s`` seconds, KILL, then wait for its end.

        With ``term_grace_s=0`` it is killed at once. A cancellation skips the grace, still waits
        until the group is gone, and is raised then. Raises ``GroupStuck`` if members survive even
        SIGKILL for two seconds. Afterwards no descriptor is open. May be called repeatedly.
        """
        try:
            if not self._gone.is_set() and term_grace_s > 0:
                self._signal(signal.SIGTERM)
                await self._see_gone(term_grace_s)
        finally:
            self.kill_now()
            with contextlib.suppress(TimeoutError):
                async with time_limit(_KILL_LIMIT_S):
                    await self._gone.wait()
        if not self._gone.is_set():
            left = sorted({*members(self.pgid), *(row.pid for row in self._detached.living())})
            raise GroupStuck(self.pgid, self.record.argv0, left)

    def kill_now(self) -> None:
        """SIGKILL the whole group without waiting, and close our ends of its pipes.

        The loop collects dead members later.
        """
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        if not self._gone.is_set():
            self._detached.is_ending = True
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
        """Kill the group, so that nothing of it outlives the block."""
        await self.stop(term_grace_s=0)

    # -- inside ------------------------------------------------------------------------------

    def _open_streams(self, stdin: bytes | Stdio | None) -> None:
        popen = self._popen
        if popen.stdin is not None:
            self.stdin = PipeWriter(take_descriptor(popen.stdin))
        if popen.stdout is not None:
            self.stdout = PipeReader(take_descriptor(popen.stdout))
        if popen.stderr is not None:
            self.stderr = PipeTail(take_descriptor(popen.stderr))
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
        """Check whether the leader has ended, and then let the streams end.

        The leader stays a zombie until ``stop``, so that its number is not reused while descendants
        may still have to be signalled by it.
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
        if self._detached.is_ending:
            self._bury(_FIRST_LOOK_S)

    def _bury(self, pause_s: float) -> None:
        """After a kill: check now and, with growing pauses, again until the group is gone."""
        if self._burial is not None:
            self._burial.cancel()
        if not self._check_gone():
            following_s = min(2 * pause_s, _BURIAL_LOOK_S)
            self._burial = self._loop.call_later(pause_s, self._bury, following_s)

    def _signal(self, number: signal.Signals) -> None:
        """Signal the group and its detached processes; new ones are searched each time."""
        self._find_detached()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pgid, number)
        for row in self._detached.living():
            _signal_pid(row.pid, number)

    def _find_detached(self) -> bool:
        """Add descendants outside the group: still linked to it, or orphaned to us. True if some of
        them were new."""
        detached = self._detached
        until_s = self._loop.time() + _LISTED_S
        orphans = _live.orphans_of(detached, lambda: self._loop.time() < until_s)
        roots = {self.pgid, *detached.pids, *(row.pid for row in orphans)}
        known = detached.pids
        for row in [*orphans, *proctable.descendants(roots)]:
            if row.is_alive and row.pgid != self.pgid:
                detached.add(row)
        return not detached.pids <= known

    def _kill_detached(self) -> bool:
        """Kill the detached ones, and again while there are new ones, since a program that
        forks and exits is a new process each time. True if there was any."""
        was_any = False
        until_s = self._loop.time() + _TIGHT_S
        while True:
            are_new = self._find_detached()
            living = self._detached.living()
            for row in living:
                _signal_pid(row.pid, signal.SIGKILL)
            was_any |= bool(living) or are_new
            if not are_new or self._loop.time() > until_s:
                return was_any

    async def _see_gone(self, limit_s: float) -> None:
        """Wait until nothing of the group is alive, at most ``limit_s`` seconds."""
        with contextlib.suppress(TimeoutError):
            async with time_limit(limit_s):
                await self._ended.wait()
                pause_s = _FIRST_LOOK_S
                while not self._check_gone():
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, _LAST_LOOK_S)

    def _check_gone(self) -> bool:
        """Collect dead members that are our children; True if no living member is left."""
        if self._gone.is_set():
            return True
        self._collect_dead()
        if self._detached.is_ending:
            is_any_away = self._kill_detached()
        else:
            self._find_detached()
            is_any_away = bool(self._detached.living())
        if is_any_away or self._has_members():
            return False
        self._collect_dead()
        _live.discard(self._detached)
        self._gone.set()
        return True

    def _collect_dead(self) -> None:
        while collect(-self.pgid) is not None:
            pass
        self._detached.collect_dead()

    def _has_members(self) -> bool:
        try:
            os.killpg(self.pgid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return bool(members(self.pgid))  # macOS raises this when only zombies are left
        # The call also succeeds for zombies that are not ours to collect: read their state.
        return not _IS_LINUX or bool(members(self.pgid))


def _signal_pid(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
