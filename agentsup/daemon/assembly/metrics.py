"""Health probes, values for metrics, and messages to people about a stalled event loop."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict

from agentsup import __version__
from agentsup.daemon.assembly.parts import RunningParts
from agentsup.daemon.runtime.boot_context import BootContext
from agentsup.daemon.runtime.channels import Channels
from agentsup.daemon.runtime.fleet import Fleet
from agentsup.kit import descriptors
from agentsup.kit.clock import Clock
from agentsup.kit.lag import LagProbe, Stall
from agentsup.kit.log import get_logger
from agentsup.kit.tasks import OwnerClosed, TaskOwner
from agentsup.mailbox import Mailbox
from agentsup.mailbox.delivery import outbox
from agentsup.model.agent import MAIN
from agentsup.model.errors import StoreUnavailable
from agentsup.observe import Metrics, MetricSources
from agentsup.store import probe
from agentsup.supervision import Probe
from agentsup.tasks import counts

_log = get_logger(__name__)

WATCHDOG_S = 5.0
"""The interval of the probes in seconds, unless systemd asks for a shorter one."""
REPORTED_FROM_S = 1.0
"""A stall shorter than this many seconds is only logged."""
REPORTED_EVERY_S = 600.0
FREE_DESCRIPTORS = 64
"""With fewer free descriptors than this, the daemon is unhealthy: the store, programs and bots need
them."""


def probes(boot_context: BootContext, fleet: Fleet, channels: Channels) -> dict[str, Probe]:
    """The health probes by name; each returns None or what is wrong.

    They check that the store writes and reads, that main runs, that connected bots finish their
    polls, that each pool of threads runs an empty step, that descriptors are free, that nobody
    lowered what this process may use, and that no orphaned process survives its end. The report
    says so if a probe hangs.
    """
    database, roster = boot_context.database, boot_context.roster

    async def store() -> str | None:
        return await probe(database, clock=boot_context.clock)

    async def reads() -> str | None:
        await database.read(lambda reader: reader.one("SELECT 1 AS one"), name="probe.read")
        return None

    async def threads() -> str | None:
        await asyncio.to_thread(bool)
        return None

    async def main() -> str | None:
        state, reason = fleet.status(roster.entry(MAIN).agent_id)
        return None if state in ("running", "degraded") else f"main is {state} {reason}".strip()

    async def free() -> str | None:
        used, limit = descriptors.used(), descriptors.limit()
        if limit - used >= min(FREE_DESCRIPTORS, limit // 4):
            return None
        return f"{used} of {limit} descriptors (files and sockets) are in use"

    return {
        "store": store,
        "reads": reads,
        "main": main,
        "channels": channels.probe,
        "files": boot_context.files.probe,
        "config": boot_context.config_files.probe,
        "threads": threads,
        "descriptors": free,
        **({"orphans": boot_context.reaper.probe} if boot_context.reaper is not None else {}),
    }


class StallReporter:
    """Reports a stall of the event loop: always in the log, and in main's chat for long stalls, at
    most once in ten minutes."""

    def __init__(
        self, clock: Clock, tasks: TaskOwner, tell: Callable[[str], Awaitable[None]]
    ) -> None:
        self._clock = clock
        self._tasks = tasks
        self._tell = tell
        self._reported_at_s = -math.inf

    def report(self, stall: Stall) -> None:
        """Called on the loop after each stall."""
        _log.warning(
            "the event loop stood still", seconds=round(stall.lasted_s, 3), task=stall.task
        )
        now_s = self._clock.monotonic()
        if stall.lasted_s < REPORTED_FROM_S or now_s - self._reported_at_s < REPORTED_EVERY_S:
            return
        self._reported_at_s = now_s
        text = (
            f"All agents stood still for {stall.lasted_s:.1f} s, because {stall.task} held up the "
            "daemon. The log has the stacks."
        )
        try:
            self._tasks.spawn(self._say(text), name="tell:stall")
        except OwnerClosed:
            return

    async def _say(self, text: str) -> None:
        try:
            await self._tell(text)
        except StoreUnavailable as error:
            _log.warning("a stall was not told", reason=error.message)


def metrics_of(
    boot_context: BootContext,
    running: RunningParts,
    *,
    mailbox: Mailbox,
    lag: LagProbe,
    unsent_spans: Callable[[], int],
    programs: Callable[[], Mapping[str, float]],
) -> Metrics:
    """The values of ``/metrics``, and where they come from."""
    fleet, relay = running.fleet, running.relay
    database, roster = boot_context.database, boot_context.roster

    def uptime_s() -> float:
        return (boot_context.clock.now_ms() - boot_context.boot.started_at) / 1000

    async def messages() -> Mapping[str, Mapping[str, int]]:
        return {
            roster.name_of(a): states for a, states in (await mailbox.messages.counts()).items()
        }

    async def tasks() -> Mapping[str, Mapping[str, int]]:
        found = await database.read(counts, name="metrics.tasks")
        return {roster.name_of(a): states for a, states in found.items()}

    def store() -> Mapping[str, int]:
        totals = asdict(database.stats)
        del totals["is_disk_low"]  # no total
        return totals

    def faults() -> Mapping[str, int]:
        return {
            "lost_wakes": sum(s.lost_wakes for s in fleet.stacks()) + relay.stats.lost_wakes,
            "abandoned_turns": sum(s.abandoned for s in fleet.stacks()),
            "loop_stalls": lag.stall_count,
            "dropped_log_lines": boot_context.dropped_log_lines(),
            "unsent_spans": unsent_spans(),
        }

    def loop_lag_s() -> Mapping[str, float]:
        stats = lag.stats()
        return {"p50": stats.p50_s, "p99": stats.p99_s, "max": stats.max_s}

    def providers() -> Mapping[str, str]:
        return {name: state for s in fleet.stacks() for name, state in s.providers().items()}

    sources = MetricSources(
        providers=providers,
        messages=messages,
        outbox=lambda: database.read(outbox.counts, name="metrics.outbox"),
        tasks=tasks,
        conservation=mailbox.messages.conservation,
        agent_states=lambda: {e.name: fleet.status(e.agent_id)[0] for e in roster.present()},
        restarts=lambda: {u.spec.name: max(0, u.child.status.life - 1) for u in fleet.units()},
        loop_lag_s=loop_lag_s,
        store=store,
        faults=faults,
        gauges=lambda: {"uptime_seconds": uptime_s(), **running.channels.gauges(), **programs()},
    )
    return Metrics(sources, version=__version__)
