"""Requests to models as spans: told one by one, or only reported; however the run ends; bounded."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from agentsup.model.engine import EngineDone, ModelRequest, Suspended, TextDelta, ToolStarted, Usage
from agentsup.model.errors import EngineFailed
from agentsup.model.trace import SpanKind, SpanState
from agentsup.observe.redact import Redactor
from agentsup.observe.traces.requests import MOST_REQUESTS
from tests.unit.observe.test_traces import Heard, message

pytestmark = pytest.mark.virtual


async def test_each_request_stands_below_its_run_with_time_tokens_and_outcome() -> None:
    heard = Heard(redact=lambda text, limit: Redactor(["sesame"]).text(text, limit))
    with heard.tracer.segment(message(), "ann") as segment:
        with heard.tracer.engine("msg_1", "llm", "big", "llm at sesame") as run:
            run.observe(ModelRequest())
            assert heard.one(SpanKind.MODEL).state is SpanState.RUNNING, "seen while it runs"
            await heard.clock.sleep(2)
            run.observe(TextDelta("words of the model"))
            run.observe(ModelRequest(has_ended=True))
            run.observe(Usage(10, 3, 0.1))
            await heard.clock.sleep(5)
            run.observe(ModelRequest())
            await heard.clock.sleep(1)
            run.ended(EngineDone("failed", code="server_error", error="its words"), ())
        segment.outcome = "failed"
    engine = heard.one(SpanKind.ENGINE)
    first, second = heard.of(SpanKind.MODEL)
    assert {first.parent_id, second.parent_id} == {engine.span_id}
    assert (first.name, first.state, first.duration_us) == ("big", SpanState.OK, 2_000_000)
    assert first.attributes == {
        "provider": "llm at [redacted]",
        "model": "big",
        "input_tokens": 10,
        "output_tokens": 3,
    }
    assert (second.state, second.code, second.duration_us) == (
        SpanState.FAILED,
        "server_error",
        1_000_000,
    )
    assert "words" not in str(first) + str(second), "no content"


async def test_what_fails_after_a_part_of_its_answer_has_failed() -> None:
    heard = Heard()
    with heard.tracer.segment(message(), "ann"), heard.tracer.engine("msg_1", "llm", "") as run:
        run.observe(ModelRequest())
        run.observe(Usage(10, 1))
        run.ended(EngineDone("failed", code="connection_failed"), ())
    (one,) = heard.of(SpanKind.MODEL)
    assert (one.name, one.state, one.attributes["output_tokens"]) == ("llm", SpanState.FAILED, 1)


@pytest.mark.parametrize(
    "error, state",
    [(asyncio.CancelledError(), SpanState.CANCELLED), (EngineFailed("x"), SpanState.CRASHED)],
)
async def test_whatever_ends_the_run_ends_its_request(
    error: BaseException, state: SpanState
) -> None:
    heard = Heard()
    with (
        suppress(asyncio.CancelledError, EngineFailed),
        heard.tracer.segment(message(), "ann"),
        heard.tracer.engine("msg_1", "llm", "") as run,
    ):
        run.observe(ModelRequest())
        raise error
    assert [one.state for one in heard.of(SpanKind.MODEL)] == [state]


async def test_an_engine_that_only_reports_has_a_request_for_each_report_of_tokens() -> None:
    heard = Heard()
    with heard.tracer.segment(message(), "ann"), heard.tracer.engine("msg_1", "acp", "") as run:
        await heard.clock.sleep(3)
        run.observe(ToolStarted("ls", {}))
        await heard.clock.sleep(2)
        run.observe(Usage(5, 5))
        run.observe(Usage(usd=0.5))
        run.ended(Suspended(b"", "?"), ())
    (one,) = heard.of(SpanKind.MODEL)
    assert (one.state, one.duration_us, one.attributes["by_report"]) == (
        SpanState.OK,
        2_000_000,
        True,
    )
    engine = heard.one(SpanKind.ENGINE)
    assert one.started_at == engine.started_at + 3_000


async def test_estimated_tokens_of_a_run_are_marked() -> None:
    heard = Heard()
    with heard.tracer.segment(message(), "ann"), heard.tracer.engine("msg_1", "acp", "") as run:
        run.ended(EngineDone("ok"), (Usage(5, 5, is_estimated=True),))
    assert heard.one(SpanKind.ENGINE).attributes["is_estimated"] is True
    assert heard.of(SpanKind.MODEL) == []


async def test_a_turn_keeps_only_so_many() -> None:
    heard = Heard()
    with heard.tracer.segment(message(), "ann"), heard.tracer.engine("msg_1", "llm", "") as run:
        for _ in range(MOST_REQUESTS + 7):
            run.observe(ModelRequest())
            run.observe(ModelRequest(has_ended=True))
            run.observe(Usage(1, 1))
    assert len(heard.of(SpanKind.MODEL)) == MOST_REQUESTS
    assert {one.attributes["input_tokens"] for one in heard.of(SpanKind.MODEL)} == {1}
    assert heard.one(SpanKind.TURN).attributes["requests_not_shown"] == 7
