"""Metrics for Prometheus, in a registry of their own, built from what the daemon hands in.

Figures from the store are fetched by ``refresh`` and kept; figures from memory are read when the
page is rendered. A source that fails leaves its family out and is named in
``agentsup_source_failed``; the rest of the page stands.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

__all__ = ["MetricSources", "Metrics"]

_log = logging.getLogger(__name__)

PerAgentState = Mapping[str, Mapping[str, int]]
TURN_BUCKETS_S = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)


@dataclass(frozen=True, slots=True)
class MetricSources:
    """Where the figures come from; what is None is not shown. Names are what people read."""

    # From the store, awaited by ``refresh``.
    messages: Callable[[], Awaitable[PerAgentState]] | None = None
    """Agent → state → messages kept; the state ``accepted`` counts all that ever came."""
    outbox: Callable[[], Awaitable[PerAgentState]] | None = None
    """Channel → state → parts kept."""
    tasks: Callable[[], Awaitable[PerAgentState]] | None = None
    """Agent → state → tasks kept."""
    conservation: Callable[[], Awaitable[tuple[bool, Mapping[str, int]]]] | None = None
    """Whether accepted = the sum of all states, and the sums."""
    # From memory, called by ``render``.
    agent_states: Callable[[], Mapping[str, str]] | None = None
    """Agent → state as in ``/agents``."""
    restarts: Callable[[], Mapping[str, int]] | None = None
    """Agent → restarts since the daemon started."""
    loop_lag_s: Callable[[], Mapping[str, float]] | None = None
    """Quantile (p50, p99, max) → seconds over the last minute."""
    store: Callable[[], Mapping[str, int]] | None = None
    """Totals of the store: commits, functions, failed_commits, reads, …"""
    faults: Callable[[], Mapping[str, int]] | None = None
    """Totals that should stay 0: lost_wakes, dropped_log_lines, abandoned_tasks, …"""
    providers: Callable[[], Mapping[str, str]] | None = None
    """Provider of models that failed of late → state of its breaker: closed, open, half_open."""
    gauges: Callable[[], Mapping[str, float]] | None = None
    """Other momentary figures by name: uptime_seconds, live_feeds, …"""


class Metrics:
    """The metrics of one daemon."""

    def __init__(
        self, sources: MetricSources, *, version: str, source_timeout_s: float = 2.0
    ) -> None:
        """``source_timeout_s`` bounds each fetch from the store."""
        self._sources = sources
        self._timeout_s = source_timeout_s
        self._fetched: dict[str, Any] = {}
        self._failed: set[str] = set()
        self.registry = CollectorRegistry(auto_describe=False)
        self._turns = Counter(
            "agentsup_turns", "Turns that ended", ["agent", "outcome"], registry=self.registry
        )
        self._turn_seconds = Histogram(
            "agentsup_turn_seconds",
            "Duration of turns, waits included",
            ["agent"],
            buckets=TURN_BUCKETS_S,
            registry=self.registry,
        )
        self.registry.register(_Families(self, version))

    def turn_ended(self, agent: str, outcome: str, seconds: float) -> None:
        """Count one turn; ``outcome`` is ok, failed, parked or cancelled."""
        self._turns.labels(agent, outcome).inc()
        self._turn_seconds.labels(agent).observe(max(0.0, seconds))

    def forget_agent(self, agent: str) -> None:
        """Drop what is kept for an agent that was removed, so that labels stay few."""
        for labels in list(self._turns._metrics):  # noqa: SLF001 - the library offers no listing
            if labels[0] == agent:
                self._turns.remove(*labels)
        if (agent,) in self._turn_seconds._metrics:  # noqa: SLF001 - as above
            self._turn_seconds.remove(agent)

    async def refresh(self) -> None:
        """Fetch what lies in the store, all at once, each within its time limit."""
        names = [name for name in _FETCHED if getattr(self._sources, name) is not None]
        await asyncio.gather(*(self._fetch(name) for name in names))

    def render(self) -> bytes:
        """The page in Prometheus text format, with the figures of the last ``refresh``."""
        return generate_latest(self.registry)

    async def scrape(self) -> bytes:
        """``refresh`` and ``render``."""
        await self.refresh()
        return self.render()

    async def _fetch(self, name: str) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                self._fetched[name] = await getattr(self._sources, name)()
        except Exception as error:  # noqa: BLE001
            # supervision boundary: one source must not take the page down
            self._fetched.pop(name, None)
            self._note_failure(name, error)
        else:
            self._failed.discard(name)

    def read(self, name: str) -> Any:
        """The present figures of one source, or None if it is not there or fails."""
        if name in _FETCHED:
            return self._fetched.get(name)
        source = getattr(self._sources, name)
        if source is None:
            return None
        try:
            found = source()
        except Exception as error:  # noqa: BLE001
            # supervision boundary: as in _fetch
            self._note_failure(name, error)
            return None
        self._failed.discard(name)
        return found

    @property
    def failed(self) -> frozenset[str]:
        """Sources that failed when they were last asked."""
        return frozenset(self._failed)

    def _note_failure(self, name: str, error: Exception) -> None:
        if name not in self._failed:
            _log.warning("no figures of %s: %r", name, error)
        self._failed.add(name)


_FETCHED = ("messages", "outbox", "tasks", "conservation")


class _Families(Collector):
    """Turns the sources into families at each rendering."""

    def __init__(self, metrics: Metrics, version: str) -> None:
        self._metrics = metrics
        self._version = version

    def collect(self) -> Iterator[Metric]:
        info = GaugeMetricFamily("agentsup_info", "Always 1", labels=["version"])
        info.add_metric([self._version], 1)
        yield info
        yield from self._messages()
        yield from self._table("outbox", "outbox_parts", "Outbox parts kept", "channel")
        yield from self._table("tasks", "tasks", "Tasks kept", "agent")
        yield from self._conservation()
        yield from self._agents()
        yield from self._memory()
        yield from self._providers()
        failed = GaugeMetricFamily(
            "agentsup_source_failed", "1: these figures are missing", labels=["source"]
        )
        for field in fields(MetricSources):
            failed.add_metric([field.name], float(field.name in self._metrics.failed))
        yield failed

    def _providers(self) -> Iterator[Metric]:
        found: Mapping[str, str] = self._metrics.read("providers") or {}
        family = GaugeMetricFamily(
            "agentsup_provider_breaker",
            "1: the state of the breaker of a provider that failed of late",
            labels=["provider", "state"],
        )
        for provider, state in sorted(found.items()):
            family.add_metric([provider, state], 1)
        yield family

    def _messages(self) -> Iterator[Metric]:
        found: PerAgentState | None = self._metrics.read("messages")
        if found is None:
            return
        kept = GaugeMetricFamily("agentsup_messages", "Messages kept", labels=["agent", "state"])
        accepted = CounterMetricFamily(
            "agentsup_messages_accepted", "Messages ever accepted", labels=["agent"]
        )
        for agent, states in sorted(found.items()):
            for state, count in sorted(states.items()):
                if state == "accepted":
                    accepted.add_metric([agent], count)
                else:
                    kept.add_metric([agent, state], count)
        yield kept
        yield accepted

    def _table(self, source: str, name: str, text: str, label: str) -> Iterator[Metric]:
        found: PerAgentState | None = self._metrics.read(source)
        if found is None:
            return
        family = GaugeMetricFamily(f"agentsup_{name}", text, labels=[label, "state"])
        for row, states in sorted(found.items()):
            for state, count in sorted(states.items()):
                family.add_metric([row, state], count)
        yield family

    def _conservation(self) -> Iterator[Metric]:
        found: tuple[bool, Mapping[str, int]] | None = self._metrics.read("conservation")
        if found is None:
            return
        holds, sums = found
        yield GaugeMetricFamily(
            "agentsup_conservation_holds",
            "1: accepted messages = those in every state, pruned ones included",
            value=float(holds),
        )
        parts = GaugeMetricFamily(
            "agentsup_conservation_sum", "The sums of the conservation law", labels=["part"]
        )
        for part, count in sorted(sums.items()):
            parts.add_metric([part], count)
        yield parts

    def _agents(self) -> Iterator[Metric]:
        states: Mapping[str, str] | None = self._metrics.read("agent_states")
        if states is not None:
            family = GaugeMetricFamily(
                "agentsup_agent_state", "1 for the present state", labels=["agent", "state"]
            )
            for agent, state in sorted(states.items()):
                family.add_metric([agent, state], 1)
            yield family
        restarts: Mapping[str, int] | None = self._metrics.read("restarts")
        if restarts is not None:
            counter = CounterMetricFamily(
                "agentsup_agent_restarts", "Restarts of agents", labels=["agent"]
            )
            for agent, count in sorted(restarts.items()):
                counter.add_metric([agent], count)
            yield counter

    def _memory(self) -> Iterator[Metric]:
        lag: Mapping[str, float] | None = self._metrics.read("loop_lag_s")
        if lag is not None:
            family = GaugeMetricFamily(
                "agentsup_loop_lag_seconds", "Event loop lag, last minute", labels=["quantile"]
            )
            for quantile, seconds in lag.items():
                family.add_metric([quantile], seconds)
            yield family
        for source, name, text in (
            ("store", "agentsup_store", "Totals of the store"),
            ("faults", "agentsup_faults", "Totals that should stay 0"),
        ):
            totals: Mapping[str, int] | None = self._metrics.read(source)
            if totals is not None:
                counter = CounterMetricFamily(name, text, labels=["kind"])
                for kind, count in sorted(totals.items()):
                    counter.add_metric([kind], count)
                yield counter
        gauges: Mapping[str, float] | None = self._metrics.read("gauges")
        for name, value in sorted((gauges or {}).items()):
            yield GaugeMetricFamily(f"agentsup_{name}", name.replace("_", " "), value=value)
