"""Metrics for Prometheus, built from the daemon's sources.

Values from the store are fetched by ``refresh`` and cached; values from memory are read when the
page is rendered. If a source fails, its family is missing and ``agentsup_source_failed`` names it;
the rest of the page is unaffected.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from itertools import accumulate
from typing import Any

from agentsup.kit.log import get_logger

_log = get_logger(__name__)

PerAgentState = Mapping[str, Mapping[str, int]]
TURN_BUCKETS_S = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)


@dataclass(frozen=True, slots=True)
class MetricSources:
    """The sources of metrics. Agents and channels have their names."""

    # From the store, awaited by ``refresh``.
    messages: Callable[[], Awaitable[PerAgentState]]
    """Agent → state → stored messages; the state ``accepted`` counts all ever accepted."""
    outbox: Callable[[], Awaitable[PerAgentState]]
    """Channel → state → stored parts."""
    tasks: Callable[[], Awaitable[PerAgentState]]
    """Agent → state → stored tasks."""
    conservation: Callable[[], Awaitable[tuple[bool, Mapping[str, int]]]]
    """Whether accepted = the sum of all states, and the sums."""
    # From memory, called by ``render``.
    agent_states: Callable[[], Mapping[str, str]]
    """Agent → state as in ``/agents``."""
    restarts: Callable[[], Mapping[str, int]]
    """Agent → restarts since the daemon started."""
    loop_lag_s: Callable[[], Mapping[str, float]]
    """Quantile (p50, p99, max) → seconds over the last minute."""
    store: Callable[[], Mapping[str, int]]
    """Totals of the store: commits, functions, failed_commits, reads, …"""
    faults: Callable[[], Mapping[str, int]]
    """Totals that should stay 0: lost_wakes, dropped_log_lines, abandoned_tasks, …"""
    providers: Callable[[], Mapping[str, str]]
    """Provider of models that failed lately → state of its breaker: closed, open, half_open."""
    gauges: Callable[[], Mapping[str, float]]
    """Other current values by name: uptime_seconds, live_feeds, …"""


class Durations:
    """Durations of one agent's turns."""

    def __init__(self) -> None:
        self._counts = [0] * (len(TURN_BUCKETS_S) + 1)
        self.sum_s = 0.0

    def add(self, seconds: float) -> None:
        """Count one turn."""
        self._counts[bisect_left(TURN_BUCKETS_S, seconds)] += 1
        self.sum_s += seconds

    def up_to(self) -> list[int]:
        """The number of turns up to each limit of ``TURN_BUCKETS_S``, and of all."""
        return list(accumulate(self._counts))


class Metrics:
    """The metrics of one daemon."""

    def __init__(
        self, sources: MetricSources, *, version: str, source_timeout_s: float = 2.0
    ) -> None:
        """``source_timeout_s`` bounds each fetch from the store."""
        self._sources = sources
        self.version = version
        self._timeout_s = source_timeout_s
        self._fetched: dict[str, Any] = {}
        self.failed: set[str] = set()
        self.turns: dict[tuple[str, str], int] = {}
        """Turns that ended, by agent and outcome."""
        self.durations: dict[str, Durations] = {}
        """By agent."""

    def turn_ended(self, agent: str, outcome: str, seconds: float) -> None:
        """Count one turn; ``outcome`` is ok, failed, parked or cancelled."""
        self.turns[agent, outcome] = self.turns.get((agent, outcome), 0) + 1
        self.durations.setdefault(agent, Durations()).add(max(0.0, seconds))

    def forget_agent(self, agent: str) -> None:
        """Drop the metrics of a removed agent, so that the number of labels stays small."""
        self.turns = {names: count for names, count in self.turns.items() if names[0] != agent}
        self.durations.pop(agent, None)

    async def refresh(self) -> None:
        """Fetch the values from the store, concurrently, each within its time limit."""
        await asyncio.gather(*map(self._fetch, _FETCHED))

    def render(self) -> bytes:
        """The page in Prometheus text format, with the store's values of the last ``refresh``."""
        page: bytes = import_module(_PAGE).page(self)
        return page

    async def scrape(self) -> bytes:
        """``refresh`` and ``render``; the first call loads the library in a thread."""
        await self.refresh()
        await asyncio.to_thread(import_module, _PAGE)
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
            self.failed.discard(name)

    def value(self, name: str) -> Any:
        """The current value of one source, or None if it is missing or fails."""
        if name in _FETCHED:
            return self._fetched.get(name)
        try:
            found = getattr(self._sources, name)()
        except Exception as error:  # noqa: BLE001
            # supervision boundary: as in _fetch
            self._note_failure(name, error)
            return None
        self.failed.discard(name)
        return found

    def _note_failure(self, name: str, error: Exception) -> None:
        if name not in self.failed:
            _log.warning(f"no metrics of {name}: {error!r}")
        self.failed.add(name)


_FETCHED = ("messages", "outbox", "tasks", "conservation")
_PAGE = "agentsup.observe.metrics_page"
