"""The lag of the event loop, and the task that blocks it.

The lag of a periodic timer is measured. Code that blocks the loop blocks that timer too, so a
thread watches it: the thread notes which task runs while the loop is blocked, and writes the stacks
of all threads if that takes long. Serves P9.
"""

from __future__ import annotations

import asyncio
import faulthandler
import math
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO

_SPAN_S = 60.0
_AFTER_S = 0.02
"""The seconds by which the watching thread wakes later than a tick is due, so that the tick has
come."""


@dataclass(frozen=True, slots=True)
class LagStats:
    """The lag over the last minute, in seconds; all zero before the first sample."""

    p50_s: float = 0.0
    p99_s: float = 0.0
    max_s: float = 0.0
    samples: int = 0


@dataclass(frozen=True, slots=True)
class Stall:
    """One time during which the loop was blocked."""

    lasted_s: float
    task: str
    """The task that ran meanwhile, if the watching thread could see it."""


class LagProbe:
    """Measures loop lag while ``run`` runs."""

    def __init__(
        self,
        interval_s: float = 0.25,
        *,
        warn_s: float = 0.25,
        dump_s: float = 1.0,
        dump_to: IO[str] | None = None,
        on_stall: Callable[[Stall], None] = lambda stall: None,
        watches_from_thread: bool = True,
    ) -> None:
        """Sample every ``interval_s``; a lag over ``warn_s`` is a stall.

        A lag over ``dump_s`` also dumps the stacks. ``dump_to`` is a real file (default: standard
        error). ``on_stall`` is called on the loop after each stall.
        ``watches_from_thread=False`` is for virtual time.
        """
        self.interval_s = interval_s
        self.stall_count = 0
        self._warn_s = warn_s
        self._dump_s = dump_s
        self._dump_to = dump_to
        self._on_stall = on_stall
        self._watches_from_thread = watches_from_thread
        self._lags_s: deque[float] = deque(maxlen=max(1, math.ceil(_SPAN_S / interval_s)))
        self._last_beat: float | None = None
        self._pulse = 0.0
        self._blocker = ""
        self._timer: asyncio.TimerHandle | None = None
        self._stop = threading.Event()

    def stats(self) -> LagStats:
        """The lag over the last minute."""
        lags_s = sorted(self._lags_s)
        if not lags_s:
            return LagStats()
        last = len(lags_s) - 1
        return LagStats(
            p50_s=lags_s[last // 2],
            p99_s=lags_s[math.ceil(last * 0.99)],
            max_s=lags_s[last],
            samples=len(lags_s),
        )

    def silence_s(self) -> float:
        """Seconds of loop time since the last sample, or since the start of ``run``; infinite
        before."""
        if self._last_beat is None:
            return math.inf
        return asyncio.get_running_loop().time() - self._last_beat

    async def run(self) -> None:
        """Measure until cancelled, at whole multiples of the interval as other periodic work."""
        loop = asyncio.get_running_loop()
        self._stop.clear()
        self._pulse = time.monotonic()
        self._last_beat = loop.time()  # the first sample is due only after an interval
        watcher = threading.Thread(
            target=self._watch, args=(loop,), name="lag-watcher", daemon=True
        )
        if self._watches_from_thread:
            watcher.start()
        self._plan(loop)
        try:
            await loop.create_future()
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._stop.set()
            if watcher.is_alive():
                watcher.join(timeout=1.0)

    def _plan(self, loop: asyncio.AbstractEventLoop) -> None:
        """Schedule the next sample. A bare timer, since a task's sleep would cost twice as much."""
        due = (round(loop.time() / self.interval_s) + 1) * self.interval_s
        self._timer = loop.call_at(due, self._sample, loop, due)

    def _sample(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        self._plan(loop)
        self._beat(loop.time(), due)

    def _beat(self, now: float, due: float) -> None:
        lag_s = max(0.0, now - due)
        self._last_beat = now
        self._pulse = time.monotonic()
        self._lags_s.append(lag_s)
        blocker, self._blocker = self._blocker, ""
        if lag_s <= self._warn_s:
            return
        self.stall_count += 1
        self._on_stall(Stall(lag_s, blocker or "unknown"))

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """In the thread: note the blocking task, and dump stacks once per stall.

        It sleeps until the last seen tick would be too old: each of its wake-ups costs about as
        much as one of the loop's.
        """
        dumped_pulse = None
        pause_s = self.interval_s + self._warn_s
        while not self._stop.wait(pause_s + _AFTER_S):
            pulse = self._pulse
            silent_s = time.monotonic() - pulse - self.interval_s
            if silent_s <= self._warn_s:
                pause_s = self._warn_s - silent_s
                continue
            if not self._blocker:
                self._blocker = _running_task_name(loop)
            if silent_s <= self._dump_s:
                pause_s = self._dump_s - silent_s
                continue
            pause_s = self._warn_s
            if dumped_pulse != pulse:
                dumped_pulse = pulse
                self._dump(silent_s)

    def _dump(self, silent_s: float) -> None:
        target = self._dump_to if self._dump_to is not None else sys.stderr
        try:
            target.write(f"the event loop stands still for {silent_s:.1f} s; all stacks:\n")
            target.flush()
            faulthandler.dump_traceback(file=target, all_threads=True)
        except (OSError, ValueError):
            # A closed or replaced standard error must not end the watching thread.
            return


def _running_task_name(loop: asyncio.AbstractEventLoop) -> str:
    """The task that the loop is executing, asked from another thread."""
    try:
        task = asyncio.current_task(loop)
    except RuntimeError:
        return "unknown"
    return task.get_name() if task is not None else "a callback"
