"""Health of the daemon: loop lag and named probes, reported to systemd and on request.

A probe does real work (writes a row, checks for a finished poll) and returns None or what is wrong.
systemd gets ``WATCHDOG=1`` only while the loop runs and every probe answers in time. A probe that
returns a reason makes the daemon unhealthy; one that hangs lets systemd restart it. Serves P9.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from agentsup.kit import sdnotify
from agentsup.kit.clock import Clock
from agentsup.kit.lag import LagProbe
from agentsup.kit.tasks import TaskOwner
from agentsup.model.health import HealthReport, ProbeResult

Probe = Callable[[], Awaitable[str | None]]
_CANCEL_LIMIT_S = 0.1
_MS_PER_S = 1000


class Watchdog:
    """Runs the probes every ``interval_s`` seconds and stores their results."""

    def __init__(
        self,
        lag: LagProbe,
        probes: Mapping[str, Probe],
        *,
        clock: Clock,
        interval_s: float = 5.0,
        probe_limit_s: float = 5.0,
        lag_limit_s: float = 0.25,
        silence_limit_s: float = 10.0,
        notify: Callable[[str], bool] = sdnotify.notify,
    ) -> None:
        """A probe has ``probe_limit_s`` to answer. The daemon is also unhealthy with a lag p99 over
        ``lag_limit_s``, or without a lag sample or a finished round of probes for
        ``silence_limit_s``."""
        self._lag = lag
        self._probes = dict(probes)
        self._clock = clock
        self._interval_s = interval_s
        self._probe_limit_s = probe_limit_s
        self._lag_limit_s = lag_limit_s
        self._silence_limit_s = silence_limit_s
        self._notify = notify
        self._owner = TaskOwner("watchdog")
        self._hanging: dict[str, asyncio.Task[str | None]] = {}
        self._results: tuple[ProbeResult, ...] = ()
        self._checked_at: float | None = None

    async def run(self) -> None:
        """Check every ``interval_s`` seconds until cancelled."""
        try:
            while True:
                await self.check()
                await self._clock.sleep(self._interval_s)
        finally:
            await self._owner.close(_CANCEL_LIMIT_S)

    async def check(self) -> HealthReport:
        """Run every probe now, concurrently, and notify systemd's watchdog if all answered."""
        self._hanging = {name: task for name, task in self._hanging.items() if not task.done()}
        answers = {name: self._ask(name, probe) for name, probe in self._probes.items()}
        if answers:
            await asyncio.wait(answers.values(), timeout=self._probe_limit_s)
        results = []
        for name, task in answers.items():
            if not task.done():
                self._hanging[name] = task
            results.append(self._result(name, task))
        for task in self._hanging.values():
            task.cancel()
        self._results = tuple(results)
        self._checked_at = self._clock.monotonic()
        if not self._hanging and self._lag.silence_s() < self._silence_limit_s:
            self._notify("WATCHDOG=1")
        return self.health()

    def health(self) -> HealthReport:
        """The results of the last check, with the present lag and the age of the check."""
        probes = (self._lag_result(), self._freshness(), *self._results)
        return HealthReport(ok=all(probe.ok for probe in probes), probes=probes)

    def _ask(self, name: str, probe: Probe) -> asyncio.Task[str | None]:
        """Start a probe, unless its last run still hangs: then that run is used again."""
        hanging = self._hanging.get(name)
        if hanging is not None and not hanging.done():
            return hanging
        return self._owner.spawn(_answer(probe), name=f"probe:{name}")

    def _result(self, name: str, task: asyncio.Task[str | None]) -> ProbeResult:
        if not task.done():
            return ProbeResult(name, ok=False, detail=f"no answer in {self._probe_limit_s:g} s")
        if task.cancelled():
            return ProbeResult(name, ok=False, detail="cancelled before it answered")
        reason = task.result()
        return ProbeResult(name, ok=reason is None, detail=reason or "")

    def _lag_result(self) -> ProbeResult:
        silence_s = self._lag.silence_s()
        p99_s = self._lag.stats().p99_s
        if silence_s >= self._silence_limit_s:
            return ProbeResult("lag", ok=False, detail="the loop's lag is not being measured")
        detail = f"p99 {p99_s * _MS_PER_S:.0f} ms"
        return ProbeResult("lag", ok=p99_s < self._lag_limit_s, detail=detail)

    def _freshness(self) -> ProbeResult:
        if self._checked_at is None:
            return ProbeResult("watchdog", ok=False, detail="nothing has been checked yet")
        age_s = self._clock.monotonic() - self._checked_at
        limit_s = self._interval_s + self._probe_limit_s + self._silence_limit_s
        return ProbeResult("watchdog", ok=age_s < limit_s, detail=f"checked {age_s:.0f} s ago")


async def _answer(probe: Probe) -> str | None:
    """The probe's answer; an exception is an answer too."""
    try:
        return await probe()
    except Exception as error:  # noqa: BLE001 - supervision boundary: a broken probe is a finding
        return f"the probe failed: {error!r}"
