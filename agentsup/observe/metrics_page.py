"""The page of the metrics in Prometheus' text format. Loaded with the first page: most homes have
none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from agentsup.observe.metrics import TURN_BUCKETS_S, Metrics, MetricSources, PerAgentState


def page(metrics: Metrics) -> bytes:
    """All families; the values from the store are those of the last ``Metrics.refresh``."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(metrics))
    return generate_latest(registry)


class _Families(Collector):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """The families of the turns and of all sources."""
        metrics = self._metrics
        ended = sorted((*names, count) for names, count in metrics.turns.items())
        yield _counter("turns", "Turns that ended", ["agent", "outcome"], ended)
        yield _durations(metrics)
        yield _gauge("info", "Always 1", ["version"], [(metrics.version, 1)])
        for name, families in _FAMILIES.items():
            found = metrics.value(name)
            if found is not None:
                yield from families(found)
        text = "1: the state of the breaker of a provider that failed of late"
        providers = _present(metrics.value("providers") or {})
        yield _gauge("provider_breaker", text, ["provider", "state"], providers)
        failed = [(each.name, each.name in metrics.failed) for each in fields(MetricSources)]
        yield _gauge("source_failed", "1: these metrics are missing", ["source"], failed)


def _durations(metrics: Metrics) -> Metric:
    family = HistogramMetricFamily(
        "agentsup_turn_seconds", "Duration of turns, waits included", labels=["agent"]
    )
    for agent, durations in sorted(metrics.durations.items()):
        limits = [*(str(float(limit)) for limit in TURN_BUCKETS_S), "+Inf"]
        counts = list(zip(limits, durations.up_to(), strict=True))
        family.add_metric([agent], buckets=counts, sum_value=durations.sum_s)
    return family


_Row = tuple[Any, ...]
"""The values of the labels, and the metric's value."""


def _gauge(name: str, text: str, labels: list[str], rows: Iterable[_Row]) -> Metric:
    return _filled(GaugeMetricFamily(f"agentsup_{name}", text, labels=labels), rows)


def _counter(name: str, text: str, labels: list[str], rows: Iterable[_Row]) -> Metric:
    return _filled(CounterMetricFamily(f"agentsup_{name}", text, labels=labels), rows)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, rows: Iterable[_Row]) -> Metric:
    for *names, value in rows:
        family.add_metric(names, float(value))
    return family


def _present(states: Mapping[str, str]) -> Iterator[_Row]:
    """A row with 1 for the state of each."""
    return ((name, state, 1) for name, state in sorted(states.items()))


def _flat(found: PerAgentState) -> list[_Row]:
    return [
        (name, state, count)
        for name, states in sorted(found.items())
        for state, count in sorted(states.items())
    ]


def _messages(found: PerAgentState) -> Iterator[Metric]:
    counted = _flat(found)
    stored = [row for row in counted if row[1] != "accepted"]
    yield _gauge("messages", "Messages kept", ["agent", "state"], stored)
    accepted = [(agent, count) for agent, state, count in counted if state == "accepted"]
    yield _counter("messages_accepted", "Messages ever accepted", ["agent"], accepted)


def _conservation(found: tuple[bool, Mapping[str, int]]) -> Iterator[Metric]:
    holds, sums = found
    text = "1: accepted messages = those in every state, pruned ones included"
    yield _gauge("conservation_holds", text, [], [(holds,)])
    text = "The sums of the conservation law"
    yield _gauge("conservation_sum", text, ["part"], sorted(sums.items()))


def _by_state(name: str, text: str, label: str) -> _MakeFamilies:
    return lambda found: [_gauge(name, text, [label, "state"], _flat(found))]


def _totals(name: str, text: str, label: str) -> _MakeFamilies:
    return lambda found: [_counter(name, text, [label], sorted(found.items()))]


_MakeFamilies = Callable[[Any], Iterable[Metric]]
_FAMILIES: Mapping[str, _MakeFamilies] = {
    "messages": _messages,
    "outbox": _by_state("outbox_parts", "Outbox parts kept", "channel"),
    "tasks": _by_state("tasks", "Tasks kept", "agent"),
    "conservation": _conservation,
    "agent_states": lambda found: [
        _gauge("agent_state", "1 for the present state", ["agent", "state"], _present(found))
    ],
    "restarts": _totals("agent_restarts", "Restarts of agents", "agent"),
    "loop_lag_s": lambda found: [
        _gauge("loop_lag_seconds", "Event loop lag, last minute", ["quantile"], found.items())
    ],
    "store": _totals("store", "Totals of the store", "kind"),
    "faults": _totals("faults", "Totals that should stay 0", "kind"),
    "gauges": lambda found: [
        _gauge(name, name.replace("_", " "), [], [(value,)])
        for name, value in sorted(found.items())
    ],
}
"""The metrics of each source, in the order of the page."""
