from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from agentsup.observe import Metrics, MetricSources


def samples(page: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


def at(page: bytes, name: str, **labels: str) -> float | None:
    return samples(page).get((name, tuple(sorted(labels.items()))))


def answers(value: Any) -> Any:
    async def source() -> Any:
        return value

    return source


SOURCES = MetricSources(
    messages=answers({}),
    outbox=answers({}),
    tasks=answers({}),
    conservation=answers((True, {})),
    agent_states=dict,
    restarts=dict,
    loop_lag_s=dict,
    store=dict,
    faults=dict,
    providers=dict,
    gauges=dict,
)


async def test_every_source_becomes_a_family() -> None:
    metrics = Metrics(
        replace(
            SOURCES,
            messages=answers({"main": {"accepted": 9, "queued": 2, "done": 7}}),
            outbox=answers({"console": {"pending": 1, "unknown": 3}}),
            tasks=answers({"ann": {"waiting": 2}}),
            conservation=answers((True, {"accepted": 9})),
            agent_states=lambda: {"main": "running"},
            restarts=lambda: {"main": 4},
            loop_lag_s=lambda: {"p50": 0.001, "max": 0.2},
            store=lambda: {"commits": 12},
            faults=lambda: {"lost_wakes": 0},
            gauges=lambda: {"uptime_seconds": 5.5},
        ),
        version="1.2.3",
    )
    metrics.turn_ended("main", "ok", 0.7)
    metrics.turn_ended("main", "failed", 70)
    page = await metrics.scrape()
    expected: list[tuple[float, str, dict[str, str]]] = [
        (1, "agentsup_info", {"version": "1.2.3"}),
        (2, "agentsup_messages", {"agent": "main", "state": "queued"}),
        (9, "agentsup_messages_accepted_total", {"agent": "main"}),
        (3, "agentsup_outbox_parts", {"channel": "console", "state": "unknown"}),
        (2, "agentsup_tasks", {"agent": "ann", "state": "waiting"}),
        (1, "agentsup_conservation_holds", {}),
        (9, "agentsup_conservation_sum", {"part": "accepted"}),
        (1, "agentsup_agent_state", {"agent": "main", "state": "running"}),
        (4, "agentsup_agent_restarts_total", {"agent": "main"}),
        (0.2, "agentsup_loop_lag_seconds", {"quantile": "max"}),
        (12, "agentsup_store_total", {"kind": "commits"}),
        (0, "agentsup_faults_total", {"kind": "lost_wakes"}),
        (5.5, "agentsup_uptime_seconds", {}),
        (1, "agentsup_turns_total", {"agent": "main", "outcome": "failed"}),
        (1, "agentsup_turn_seconds_bucket", {"agent": "main", "le": "1.0"}),
        (2, "agentsup_turn_seconds_count", {"agent": "main"}),
        (0, "agentsup_source_failed", {"source": "messages"}),
    ]
    for value, name, labels in expected:
        assert at(page, name, **labels) == value, name
    assert at(page, "agentsup_messages", agent="main", state="accepted") is None


async def test_a_source_that_fails_or_hangs_costs_only_its_own_family(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def hangs() -> Any:
        await asyncio.Event().wait()

    def breaks() -> Any:
        raise RuntimeError("no lag today")

    state = {"broken": True}

    async def sometimes() -> Any:
        if state["broken"]:
            raise OSError("disk")
        return {"web": {"pending": 1}}

    metrics = Metrics(
        replace(
            SOURCES,
            messages=hangs,
            outbox=sometimes,
            loop_lag_s=breaks,
            store=lambda: {"commits": 1},
        ),
        version="1",
        source_timeout_s=0.01,
    )
    page = await metrics.scrape()
    assert at(page, "agentsup_store_total", kind="commits") == 1
    for name in ("messages", "outbox", "loop_lag_s"):
        assert at(page, "agentsup_source_failed", source=name) == 1
    assert b"agentsup_outbox_parts" not in page
    state["broken"] = False
    page = await metrics.scrape()
    assert at(page, "agentsup_outbox_parts", channel="web", state="pending") == 1
    assert at(page, "agentsup_source_failed", source="outbox") == 0
    assert len([r for r in caplog.records if "no metrics of messages" in r.message]) == 1


async def test_figures_of_the_store_are_those_of_the_last_refresh() -> None:
    counts = {"main": {"queued": 1}}
    metrics = Metrics(replace(SOURCES, messages=answers(counts)), version="1")
    assert b"agentsup_messages{" not in metrics.render()
    await metrics.refresh()
    assert at(metrics.render(), "agentsup_messages", agent="main", state="queued") == 1


async def test_two_daemons_in_one_process_share_nothing() -> None:
    one, two = (Metrics(SOURCES, version="1") for _ in range(2))
    one.turn_ended("main", "ok", 1)
    assert at(one.render(), "agentsup_turns_total", agent="main", outcome="ok") == 1
    assert at(two.render(), "agentsup_turns_total", agent="main", outcome="ok") is None


async def test_a_removed_agent_leaves_no_labels() -> None:
    metrics = Metrics(SOURCES, version="1")
    for agent in ("main", "gone"):
        for outcome in ("ok", "failed"):
            metrics.turn_ended(agent, outcome, 1)
    metrics.forget_agent("gone")
    metrics.forget_agent("never was")
    page = metrics.render()
    assert b"gone" not in page
    assert at(page, "agentsup_turns_total", agent="main", outcome="ok") == 1
