"""What a daemon keeps of its turns: one tree over agents, whole after cancels, crashes and kills."""

from __future__ import annotations

from typing import Any

import pytest

from agentsup.model.trace import SpanKind
from agentsup.observe.traces import reading
from agentsup.observe.traces.reading import SpanNode
from agentsup.testing.household import Household, agent
from tests.component.conftest import Open

pytestmark = pytest.mark.virtual

ASK = [
    {"tool": {"name": "ask_agent", "args": {"to": "ben", "message": "ping"}}},
    {"say": "$result"},
]


async def spans_of(house: Household, wanted: str) -> list[SpanNode]:
    await house.daemon.traces.flush()

    def read(reader: Any) -> list[SpanNode]:
        trace = reading.find(reader, wanted)
        found = reading.tree(reader, trace) if trace else None
        return list(found.spans) if found else []

    return await house.db.read(read)


def drawn(spans: list[SpanNode]) -> list[str]:
    return [f"{'  ' * s.depth}{s.kind} {s.name} {s.state}" for s in spans]


async def test_agents_that_ask_each_other_are_one_tree(household: Open) -> None:
    house = await household(agent("ann", {"match": "go", "steps": ASK}), agent("ben"))
    message = await house.ask("ann", "go")
    spans = await spans_of(house, message.message_id)
    assert drawn(spans) == [
        "turn ann ok",
        "  segment ann ok",
        "    engine scripted ok",
        "      tool ask_agent ok",
        "        agent ben ok",
        "          turn ben ok",
        "            segment ben ok",
        "              engine scripted ok",
        "            delivery console notice ok",
        "  delivery console answer running",
    ]
    by_kind = {span.kind: span for span in spans}
    assert by_kind[SpanKind.TOOL].attributes["stages"]["policy"] == "allow"
