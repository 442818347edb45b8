"""Spans: the buffer's bound, what a tracer makes of what it is told, and the tree that comes of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentsup.model.engine import EngineDone, Usage
from agentsup.model.errors import EngineFailed, ExitRequested
from agentsup.model.hook import CallFacts, CallOrigin
from agentsup.model.message import (
    NOWHERE,
    LaneName,
    Message,
    MessageKind,
    MessageState,
    Priority,
    text_parts,
)
from agentsup.model.principal import OPERATOR
from agentsup.model.tool import Effect, Safety, ToolResult
from agentsup.model.trace import (
    DECISION,
    UNTRACED,
    SpanKind,
    SpanState,
    by_turn_of,
    child_of,
    parent_id,
    trace_id,
    turn_span,
    under,
)
from agentsup.observe.redact import Redactor
from agentsup.observe.traces.buffer import SpanBuffer
from agentsup.observe.traces.span import Span
from agentsup.observe.traces.tracer import MOST_CALLS, SpanTracer
from agentsup.observe.traces.views import SpanNode, StatisticsRow, in_order
from tests.support.loop_clock import LoopClock

pytestmark = pytest.mark.virtual

TRACE = "ab" * 16
HEADER = f"00-{TRACE}-{TRACE[:16]}-01"


def message(number: int = 1, **more: Any) -> Message:
    given: dict[str, Any] = {
        "message_id": f"msg_{number}",
        "seq": number,
        "agent_id": "agt_1",
        "session_id": "ses_1",
        "kind": MessageKind.CHAT,
        "lane": LaneName.INTERACTIVE,
        "priority": Priority.NORMAL,
        "state": MessageState.LEASED,
        "outcome": None,
        "parts": text_parts("hello"),
        "principal": OPERATOR,
        "deliver_to": NOWHERE,
        "in_reply_to": "",
        "thread_id": "",
        "root_id": f"msg_{number}",
        "path": (),
        "traceparent": HEADER,
        "sender_agent_id": "",
        "accepted_at": 0,
        "started_at": None,
        "finished_at": None,
        "expires_at": None,
        "not_before": 0,
        "attempts": 1,
        "crashes": 0,
        "fence": 1,
        "result_text": "",
        "error_code": "",
        "error_text": "",
        "replay_of": "",
        "silent": False,
        "summary": "",
        "epochs": {},
    }
    return Message(**{**given, **more})


def call(name: str = "exec", number: int = 1, **more: Any) -> CallFacts:
    given: dict[str, Any] = {
        "call_id": f"msg_1:key:{number}",
        "name": name,
        "args": {},
        "effect": Effect.BLIND,
        "safety": Safety.DANGEROUS,
        "origin": CallOrigin.TOOL,
        "agent_id": "agt_1",
        "agent_name": "ann",
        "message_id": "msg_1",
        "session_id": "ses_1",
    }
    return CallFacts(**{**given, **more})


class Heard:
    """A tracer and the last that was told of each span."""

    def __init__(self, **more: Any) -> None:
        self.spans: dict[str, Span] = {}
        self.clock = LoopClock()
        self.tracer = SpanTracer(self._put, self.clock, "boot", **more)

    def _put(self, span: Span) -> None:
        self.spans[span.span_id] = span

    def of(self, kind: SpanKind) -> list[Span]:
        return [span for span in self.spans.values() if span.kind is kind]

    def one(self, kind: SpanKind) -> Span:
        (span,) = self.of(kind)
        return span


# -- headers ---------------------------------------------------------------------------------------


def test_a_header_names_the_span_that_caused_the_work() -> None:
    fresh = child_of("", lambda count: "c" * count)
    assert trace_id(fresh) == "c" * 32
    assert parent_id(fresh) == "", "nothing caused it"
    given = f"00-{TRACE}-{'d' * 16}-00"
    assert child_of(given, lambda count: "c" * count) == given
    assert parent_id(given) == "d" * 16
    caused = by_turn_of(message())
    assert (trace_id(caused), parent_id(caused)) == (TRACE, turn_span("msg_1"))


@pytest.mark.parametrize("bad", ["", "x", f"00-{'0' * 32}-{'1' * 16}-01", HEADER + "-more"])
def test_a_malformed_header_is_none(bad: str) -> None:
    assert (trace_id(bad), parent_id(bad), under(bad, "1" * 16)) == ("", "", "")
    assert trace_id(child_of(bad, lambda count: "c" * count)) == "c" * 32


# -- the buffer ------------------------------------------------------------------------------------


def span(number: int, **more: Any) -> Span:
    given: dict[str, Any] = {
        "span_id": f"{number:016x}",
        "trace_id": TRACE,
        "parent_id": "",
        "kind": SpanKind.TOOL,
        "name": "t",
        "agent_id": "agt_1",
        "message_id": "msg_1",
    }
    return Span(**{**given, **more})


def test_a_full_buffer_drops_what_is_new_and_still_hears_of_ends() -> None:
    buffer = SpanBuffer(most=2)
    for number in (1, 2, 3):
        buffer.put(span(number))
    buffer.put(span(1, state=SpanState.OK, ended_at=5))
    assert buffer.dropped == 1
    taken = buffer.take(10)
    assert [(one.span_id[-1], one.state) for one in taken] == [("1", "ok"), ("2", "running")]
    assert not buffer


def test_what_could_not_be_written_comes_back_first_and_never_over_what_is_newer() -> None:
    buffer = SpanBuffer(most=3)
    for number in (1, 2):
        buffer.put(span(number))
    taken = buffer.take(2)
    buffer.put(span(2, state=SpanState.OK))
    buffer.put(span(3))
    buffer.put(span(4))
    buffer.give_back(taken)
    assert buffer.dropped == 1, "span 1 found no room any more"
    assert [(one.span_id[-1], one.state) for one in buffer.take(9)] == [
        ("2", "ok"),
        ("3", "running"),
        ("4", "running"),
    ]


# -- the tracer ------------------------------------------------------------------------------------


async def test_a_turn_its_segment_its_engine_and_its_calls_stand_below_each_other() -> None:
    heard = Heard()
    tracer = heard.tracer
    with tracer.segment(message(), "ann") as segment:
        with tracer.engine("msg_1", "llm", "big") as run:
            one = call(args={"cmd": "ls"})
            tracer.call_asked(one)
            tracer.call_judged(one, "policy", "allow")
            await heard.clock.sleep(2)
            tracer.call_ended(one, ToolResult(True, "abc"))
            run.ended(EngineDone("ok"), (Usage(3, 4, 0.5), Usage(1, 1, None)))
        segment.outcome = "ok"
    turn, part = heard.one(SpanKind.TURN), heard.one(SpanKind.SEGMENT)
    engine, tool = heard.one(SpanKind.ENGINE), heard.one(SpanKind.TOOL)
    assert turn.span_id == turn_span("msg_1")
    assert [part.parent_id, engine.parent_id, tool.parent_id] == [
        turn.span_id,
        part.span_id,
        engine.span_id,
    ]
    assert {one.state for one in heard.spans.values()} == {SpanState.OK}
    assert tool.duration_us == 2_000_000
    assert tool.attributes["stages"] == {"policy": "allow"}
    assert tool.detail == '{"cmd": "ls"}'
    assert engine.attributes == {
        "model": "big",
        "input_tokens": 4,
        "output_tokens": 5,
        "usd": 0.5,
    }


async def test_whatever_ends_a_segment_ends_all_that_is_open_in_it() -> None:
    heard = Heard()

    async def turn(number: int, error: BaseException) -> None:
        with (
            heard.tracer.segment(message(number), "ann"),
            heard.tracer.engine(f"msg_{number}", "llm", ""),
        ):
            heard.tracer.call_asked(call(message_id=f"msg_{number}"))
            raise error

    with pytest.raises(asyncio.CancelledError):
        await turn(1, asyncio.CancelledError())
    assert {one.state for one in heard.spans.values()} == {SpanState.CANCELLED}
    assert heard.one(SpanKind.TURN).is_open, "whether it goes on is the message's to say"
    heard.spans.clear()
    with pytest.raises(EngineFailed):
        await turn(2, EngineFailed("it broke"))
    assert {one.state for one in heard.spans.values()} == {SpanState.CRASHED}
    assert heard.one(SpanKind.SEGMENT).code == EngineFailed.code
    heard.spans.clear()
    with pytest.raises(ExitRequested):
        await turn(3, ExitRequested(42, "asked"))
    assert heard.one(SpanKind.TURN).state is SpanState.OK


async def test_a_call_that_was_refused_says_by_whom() -> None:
    heard = Heard()
    with heard.tracer.segment(message(), "ann") as segment:
        one = call()
        heard.tracer.call_asked(one)
        heard.tracer.call_judged(one, "ceiling", "deny")
        heard.tracer.call_judged(one, DECISION, "deny")
        heard.tracer.call_ended(one, ToolResult(False, "no", "beyond_ceiling"))
        heard.tracer.call_ended(call(number=2), ToolResult(False, "was so", "odd", replayed=True))
        segment.outcome = "ok"
    refused, replayed = heard.of(SpanKind.TOOL)
    assert (refused.state, refused.code) == (SpanState.DENIED, "beyond_ceiling")
    assert refused.attributes["stages"]["ceiling"] == "deny"
    assert (replayed.state, replayed.attributes["replayed"]) == (SpanState.FAILED, True)


async def test_a_wait_for_an_agent_is_what_its_work_is_caused_by() -> None:
    heard = Heard()
    with heard.tracer.segment(message(), "ann"):
        heard.tracer.call_asked(call())
        with heard.tracer.waiting_for("msg_1", "msg_1:key:1", "ben") as header:
            pass
        assert heard.tracer.header_of("msg_1", "unknown") == ""
    wait = heard.one(SpanKind.AGENT)
    assert (trace_id(header), parent_id(header)) == (TRACE, wait.span_id)
    assert wait.parent_id == heard.one(SpanKind.TOOL).span_id
    with heard.tracer.waiting_for("msg_1", "msg_1:key:1", "ben") as late:
        assert late == "", "the turn is over"


async def test_calls_without_end_are_counted_and_not_kept() -> None:
    heard = Heard()
    with heard.tracer.segment(message(), "ann") as segment:
        for number in range(MOST_CALLS + 3):
            one = call(number=number)
            heard.tracer.call_asked(one)
            heard.tracer.call_judged(one, "policy", "allow")
            heard.tracer.call_ended(one, ToolResult(True, ""))
        segment.outcome = "ok"
    assert len(heard.of(SpanKind.TOOL)) <= MOST_CALLS
    assert heard.one(SpanKind.TURN).attributes["calls_not_shown"] > 0


async def test_a_cli_s_own_calls_end_by_their_name_the_oldest_first() -> None:
    heard = Heard()
    with heard.tracer.segment(message(), "ann") as segment:
        for number in (1, 2):
            heard.tracer.call_asked(call(number=number, own_name="Bash", origin=CallOrigin.OWN))
        heard.tracer.own_ended("msg_1", "Bash", ok=False)
        heard.tracer.own_ended("msg_1", "Read", ok=True)
        segment.outcome = "ok"
    assert [one.state for one in heard.of(SpanKind.TOOL)] == ["failed", "cancelled"]


SECRET = "sk-0123456789abcdef"


@pytest.mark.parametrize(
    "args",
    [
        {"key": SECRET},
        {"deep": {"er": [SECRET, {SECRET: 1}]}},
        {"padded": "x" * 500 + SECRET},
        {"many": SECRET * 200},
        {"text": f'{{"a": "{SECRET}"}}'},
    ],
)
async def test_no_secret_is_kept_not_even_a_part_of_one(args: dict[str, Any]) -> None:
    heard = Heard(redact=Redactor((SECRET,)).text)
    with heard.tracer.segment(message(), "ann"):
        heard.tracer.call_asked(call(args=args, name=f"say {SECRET}"))
    kept = "".join(f"{one.detail}{one.name}" for one in heard.spans.values())
    assert SECRET[:8] not in kept
    assert max(len(one.detail) for one in heard.spans.values()) <= 512


@pytest.mark.parametrize("is_on", [True, False])
async def test_what_is_switched_off_tells_nothing(is_on: bool) -> None:
    heard = Heard(is_on=lambda: is_on)
    with heard.tracer.segment(message(), "ann") as segment:
        heard.tracer.call_asked(call())
        segment.outcome = "ok"
    assert bool(heard.spans) is is_on


# -- reading ---------------------------------------------------------------------------------------


def node(name: str, parent: str, at: int) -> SpanNode:
    given: dict[str, Any] = dict.fromkeys(
        ("trace_id", "kind", "agent_id", "message_id", "session_id", "code", "detail"), ""
    )
    return SpanNode(
        span_id=name,
        parent_id=parent,
        name=name,
        state=SpanState.OK,
        started_at=at,
        ended_at=at,
        duration_us=1,
        **given,
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
def test_quantiles_are_of_what_was_measured(fraction: float, wanted: float) -> None:
    tally = StatisticsRow()
    for ms in range(100, 0, -1):
        tally.add("ok", ms * 1000)
    tally.add("cancelled", None)
    assert tally.quantile_ms(fraction) == wanted
    assert tally.count == 101
    assert StatisticsRow().quantile_ms(0.5) is None


def test_the_port_needs_nobody() -> None:
    with UNTRACED.segment(message(), "ann") as segment, UNTRACED.engine("m", "e", "") as run:
        run.ended(EngineDone("ok"), ())
        segment.outcome = "ok"
    with UNTRACED.waiting_for("m", "c", "ben") as header:
        assert header == UNTRACED.header_of("m", "c") == ""
