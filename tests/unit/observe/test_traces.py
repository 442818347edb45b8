"""Headers of traces, the order of a tree, and quantiles."""

from __future__ import annotations

import pytest

from agentsup.model.trace import SpanKind, SpanState, child_of, parent_id, trace_id, under
from agentsup.observe.traces import StatisticsRow
from agentsup.observe.traces.tree import SpanNode, in_order

TRACE = "ab" * 16
HEADER = f"00-{TRACE}-{TRACE[:16]}-01"


def test_a_header_names_the_span_that_caused_the_work() -> None:
    fresh = child_of("", lambda count: "c" * count)
    assert trace_id(fresh) == "c" * 32
    assert parent_id(fresh) == "", "nothing caused it"
    given = f"00-{TRACE}-{'d' * 16}-00"
    assert child_of(given, lambda count: "c" * count) == given
    assert parent_id(given) == "d" * 16
    caused = under(HEADER, "e" * 16)
    assert (trace_id(caused), parent_id(caused)) == (TRACE, "e" * 16)


@pytest.mark.parametrize("bad", ["", "x", f"00-{'0' * 32}-{'1' * 16}-01", HEADER + "-more"])
def test_a_malformed_header_is_none(bad: str) -> None:
    assert (trace_id(bad), parent_id(bad), under(bad, "1" * 16)) == ("", "", "")
    assert trace_id(child_of(bad, lambda count: "c" * count)) == "c" * 32


def node(name: str, parent: str, at: int) -> SpanNode:
    return SpanNode(
        span_id=name,
        parent_id=parent,
        kind=SpanKind.TOOL,
        name=name,
        agent_id="",
        message_id="",
        session_id="",
        state=SpanState.OK,
        started_at=at,
        ended_at=at,
    )


def test_a_tree_is_in_order_whatever_is_missing_and_whoever_is_whose_parent() -> None:
    nodes = [
        node("late", "root", 5),
        node("leaf", "early", 3),
        node("early", "root", 2),
        node("orphan", "gone", 4),
        node("root", "", 1),
        node("loop", "loop", 6),
    ]
    shown = [(one.name, one.depth) for one in in_order(nodes)]
    assert shown[:5] == [("root", 0), ("early", 1), ("leaf", 2), ("late", 1), ("orphan", 0)]


@pytest.mark.parametrize("fraction, wanted", [(0.5, 50.0), (0.95, 95.0), (1.0, 100.0), (0, 1)])
def test_quantiles_are_by_nearest_rank(fraction: float, wanted: float) -> None:
    tally = StatisticsRow()
    for ms in range(100, 0, -1):
        tally.add("ok", ms * 1000)
    assert tally.quantile_ms(fraction) == wanted
    assert tally.count == 100
    assert StatisticsRow().quantile_ms(0.5) is None
