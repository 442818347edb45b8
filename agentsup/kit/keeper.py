"""The small parent of a daemon: it starts the daemon again, until an end was wanted.

Run as a file by a bare interpreter (``python -I -S keeper.py STATUS PROGRAM …``). It lives as long
as the daemon, so it imports nothing of the package. What it does is in STATUS, whose lock it holds;
``kit.keeping`` reads it. SIGTERM and SIGINT end the daemon and then the keeper; after SIGUSR1 the
next end is the last.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import signal
import sys
import time
from types import FrameType

REBUILD_CODE = 42
"""The daemon asks to be started again; the same number as in ``supervision.policy``."""
WANTED = (0, -signal.SIGTERM, -signal.SIGINT, 128 + signal.SIGTERM)
"""Ends that somebody asked for; the last one is the code of a daemon that was forced to end."""
BASE_S, CAP_S, WINDOW_S, MAX_RESTARTS = 1.0, 60.0, 300.0, 5
"""Pauses double from the first to the longest; so many restarts within the window, then it gives up.
The defaults of an agent's supervisor."""
TAKEN = 75
"""The exit code of a keeper that found another one for this home."""
ONCE = "--accept-store"
"""A word that only the first start gets: a store is accepted once."""
RUNNING, WAITING, GIVEN_UP = "running", "waiting", "given-up"
LINE_BYTES = 100
"""The status always has this length, so that no reader finds the rest of an earlier one."""
_CANT_START = 127
_PR_SET_DUMPABLE = 4
_TRIES, _TRY_AGAIN_S = 50, 0.02
_ENDING = (signal.SIGTERM, signal.SIGINT)


def pause_s(code: int, failed_at: list[float], now: float) -> float | None:
    """Seconds until the daemon is started again after an end with ``code``; None: never.

    ``failed_at`` are the times of its failures within the window, this one included.
    """
    if code in WANTED:
        return None
    if code == REBUILD_CODE:
        return 0.0
    recent = sum(1 for at in failed_at if now - at < WINDOW_S)
    return None if recent > MAX_RESTARTS else min(CAP_S, BASE_S * 2.0 ** (recent - 1))


class Keeper:
    """One daemon after another, and the status of that."""

    def __init__(self, status: int, signals: int, command: list[str]) -> None:
        """``status`` is the locked file; ``signals`` gives a byte for each signal."""
        self._status = status
        self._signals = signals
        self._command = command
        self._failed_at: list[float] = []
        self._child = 0
        self._last_code = 0
        self._is_last = False

    def run(self) -> int:
        """Returns the code of the last daemon."""
        while True:
            code = self._last_code = self._live()
            self._command = [word for word in self._command if word != ONCE]
            now = time.monotonic()
            self._failed_at = [at for at in self._failed_at if now - at < WINDOW_S]
            if code not in (*WANTED, REBUILD_CODE):
                self._failed_at.append(now)
            pause = None if self._is_last else pause_s(code, self._failed_at, now)
            if pause is None:
                self._tell_end(code)
                return code
            if pause:
                _say(f"the daemon ended with code {code}; it is started again in {pause:g} s")
                self._tell(WAITING, time.time() + pause)
                if self._is_ended_within(now + pause):
                    os.ftruncate(self._status, 0)
                    return code

    def _live(self) -> int:
        """One daemon from start to end; its code (negative: a signal)."""
        try:
            # A session of its own: what is meant for the group of one does not reach the other.
            self._child = os.posix_spawn(
                self._command[0],
                self._command,
                os.environ,
                setsid=True,
                setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),
            )
        except OSError as error:
            _say(f"{self._command[0]} can't be started: {error.strerror}")
            return _CANT_START
        self._tell(RUNNING, 0.0)
        while True:
            for number in self._next_signals(None):
                if number in _ENDING:
                    os.kill(
                        self._child, number
                    )  # a dead child keeps its number until the next line
                self._is_last |= number in {*_ENDING, signal.SIGUSR1}
            found, status = os.waitpid(self._child, os.WNOHANG)
            if found:
                self._child = 0
                return os.waitstatus_to_exitcode(status)

    def _next_signals(self, limit_s: float | None) -> bytes:
        """The signals that came, each as a byte; none after ``limit_s``."""
        ready, _, _ = select.select([self._signals], [], [], limit_s)
        return os.read(self._signals, 512) if ready else b""

    def _is_ended_within(self, until: float) -> bool:
        """Wait; whether somebody wanted the end meanwhile."""
        while (left_s := until - time.monotonic()) > 0:
            if {*_ENDING, signal.SIGUSR1}.intersection(self._next_signals(left_s)):
                return True
        return False

    def _tell_end(self, code: int) -> None:
        if self._is_last or code in WANTED:
            os.ftruncate(self._status, 0)
            return
        times = len(self._failed_at)
        _say(
            f"the daemon ended {times} times within {WINDOW_S:g} s, now with code {code}: given up"
        )
        self._tell(GIVEN_UP, 0.0)

    def _tell(self, state: str, until: float) -> None:
        counts = (self._last_code, len(self._failed_at), round(until, 3))
        facts = (os.getpid(), self._child, state, *counts)
        line = " ".join(map(str, facts)).ljust(LINE_BYTES - 1) + "\n"
        os.pwrite(self._status, line.encode("ascii"), 0)


def _say(text: str) -> None:
    sys.stderr.write(f"keeper: {text}\n")
    sys.stderr.flush()


def _is_locked(status: int) -> bool:
    """Lock the file; whoever looks whether it is locked holds it for an instant."""
    for _ in range(_TRIES):
        try:
            fcntl.flock(status, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            select.select([], [], [], _TRY_AGAIN_S)
        else:
            return True
    return False


def _pass(number: int, frame: FrameType | None) -> None:
    """The signal's byte is in the pipe; without a handler it would have its usual effect."""


def main(words: list[str]) -> int:
    """Keep the program of ``words`` running; see the top. Returns the exit code of this process."""
    if sys.platform == "linux":  # our environment has what the daemon's has: keys
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    status = os.open(words[0], os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    if not _is_locked(status):
        return TAKEN
    signals, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGUSR1, *_ENDING):
        signal.signal(number, _pass)
    code = Keeper(status, signals, words[1:]).run()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
