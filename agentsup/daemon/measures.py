"""How the daemon knows how it is: probes for health, figures for metrics, word of a stalled loop."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from agentsup import __version__
from agentsup.daemon.channels import Channels
from agentsup.daemon.fleet import Fleet
from agentsup.daemon.ground import Ground
from agentsup.kit import descriptors, sdnotify
from agentsup.kit.clock import Clock
from agentsup.kit.lag import LagProbe, Stall
from agentsup.kit.tasks import OwnerClosed, TaskOwner
from agentsup.mailbox import outbox
from agentsup.mailbox.mailbox import Mailbox
from agentsup.mailbox.relay import Relay
from agentsup.model.agent import MAIN
from agentsup.model.errors import StoreUnavailable
from agentsup.observe.logging import get_logger
from agentsup.observe.metrics import Metrics, MetricSources
from agentsup.store.probe import probe
from agentsup.supervision.watchdog import Probe, Watchdog
from agentsup.tasks.figures import counts

_log = get_logger(__name__)

WATCHDOG_S = 5.0
"""How often the probes are asked where systemd doesn't ask for more."""
TOLD_FROM_S = 1.0
"""A shorter stall is only logged."""
TOLD_EVERY_S = 600.0
FREE_DESCRIPTORS = 64
"""Fewer are too few for the store, programs and bots."""


def probes(ground: Ground, fleet: Fleet, channels: Channels) -> dict[str, Probe]:
    """The store writes and reads, main runs, bots that are connected finish their polls, and each
    pool of threads gets a step of no work done, nobody took from what this process may use, and no
    process escapes its end. One that hangs is told as that."""
    database, roster = ground.database, ground.roster

    async def store() -> str | None:
        health = await probe(database, clock=ground.clock)
        if not health.is_ok:
            return health.detail or health.reason
        return "the disk is nearly full" if health.is_disk_low else None

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
        "files": ground.files.probe,
        "config": ground.config_files.probe,
        "threads": threads,
        "descriptors": free,
        "resources": ground.resources.probe,
        **({"orphans": ground.reaper.probe} if ground.reaper is not None else {}),
    }


class StallTeller:
    """Tells people when something held up the whole daemon: in the log always, in main's chat
    for long stalls and at most once in ten minutes."""

    def __init__(
        self, clock: Clock, tasks: TaskOwner, tell: Callable[[str], Awaitable[None]]
    ) -> None:
        self._clock = clock
        self._tasks = tasks
        self._tell = tell
        self._told_at_s = -math.inf

    def heard(self, stall: Stall) -> None:
        """Called on the loop after each stall."""
        _log.warning(
            "the event loop stood still", seconds=round(stall.lasted_s, 3), task=stall.task
        )
        now_s = self._clock.monotonic()
        if stall.lasted_s < TOLD_FROM_S or now_s - self._told_at_s < TOLD_EVERY_S:
            return
        self._told_at_s = now_s
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


def watchdog_of(lag: LagProbe, found: Mapping[str, Probe], clock: Clock) -> Watchdog:
    """Asks the probes as often as systemd wants to hear of it, and at least every five seconds."""
    interval_s = min(WATCHDOG_S, sdnotify.watchdog_interval_s() or WATCHDOG_S)
    return Watchdog(lag, found, clock=clock, interval_s=interval_s)


def metrics_of(ground: Ground, **sources: Any) -> Metrics:
    """The figures of ``/metrics``; ``sources`` as ``metric_sources`` takes them."""
    return Metrics(metric_sources(ground, **sources), version=__version__)


def metric_sources(
    ground: Ground,
    *,
    mailbox: Mailbox,
    fleet: Fleet,
    relay: Relay,
    lag: LagProbe,
    channels: Channels,
    traces: Callable[[], Mapping[str, int]],
    programs: Callable[[], Mapping[str, float]] = dict,
) -> MetricSources:
    """Where the figures of ``/metrics`` come from."""
    database, roster = ground.database, ground.roster

    def uptime_s() -> float:
        return (ground.clock.now_ms() - ground.boot.started_at) / 1000

    async def messages() -> Mapping[str, Mapping[str, int]]:
        return {roster.name_of(a): states for a, states in (await mailbox.counts()).items()}

    async def tasks() -> Mapping[str, Mapping[str, int]]:
        found = await database.read(counts, name="metrics.tasks")
        return {roster.name_of(a): states for a, states in found.items()}

    def store() -> Mapping[str, int]:
        stats = database.stats
        return {
            "commits": stats.commits,
            "functions": stats.functions,
            "rolled_back": stats.rolled_back,
            "failed_commits": stats.failed_commits,
            "reads": stats.reads,
            "refused": stats.refused,
            "slow_functions": stats.slow_functions,
        }

    def faults() -> Mapping[str, int]:
        return {
            "lost_wakes": sum(s.lost_wakes for s in fleet.stacks()) + relay.stats.lost_wakes,
            "abandoned_turns": sum(s.abandoned for s in fleet.stacks()),
            "loop_stalls": lag.stall_count,
            "dropped_log_lines": ground.dropped_log_lines(),
            "dropped_spans": traces()["dropped"],
            "unsent_spans": traces()["otel_failed"] + traces()["otel_dropped"],
        }

    def loop_lag_s() -> Mapping[str, float]:
        stats = lag.stats()
        return {"p50": stats.p50_s, "p99": stats.p99_s, "max": stats.max_s}

    def providers() -> Mapping[str, str]:
        return {name: state for s in fleet.stacks() for name, state in s.providers().items()}

    return MetricSources(
        providers=providers,
        messages=messages,
        outbox=lambda: database.read(outbox.counts, name="metrics.outbox"),
        tasks=tasks,
        conservation=mailbox.conservation,
        agent_states=lambda: {e.name: fleet.status(e.agent_id)[0] for e in roster.present()},
        restarts=lambda: {u.spec.name: max(0, u.child.status.life - 1) for u in fleet.units()},
        loop_lag_s=loop_lag_s,
        store=store,
        faults=faults,
        gauges=lambda: {"uptime_seconds": uptime_s(), **channels.gauges(), **programs()},
    )
