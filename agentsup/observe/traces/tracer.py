"""Makes spans from the reports of turns.

It holds only running work, one entry for each running segment.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from agentsup.kit.clock import Clock
from agentsup.model.engine import EngineDone, EngineEvent, Suspended, Usage
from agentsup.model.errors import AgentsupError, ExitRequested
from agentsup.model.hook import CallFacts, CallOrigin
from agentsup.model.message import Message
from agentsup.model.tool import ToolResult
from agentsup.model.trace import (
    DECISION,
    EngineTrace,
    SegmentTrace,
    SpanKind,
    SpanState,
    Tracer,
    parent_id,
    trace_id,
    turn_span,
    under,
)
from agentsup.observe.traces.requests import MOST_REQUESTS, ModelRequests, OpenSpan
from agentsup.observe.traces.span import DETAIL_CHARS, NAME_CHARS, Span

MOST_CALLS = 500
"""The most spans of calls in one segment; later ones are only counted."""
_KEY_CHARS = 40
_MOST_ITEMS = 12
_MOST_LEVELS = 3

_OUTCOMES = {
    "ok": SpanState.OK,
    "failed": SpanState.FAILED,
    "parked": SpanState.PARKED,
    "retry": SpanState.RETRY,
}


@dataclass(slots=True)
class _Work(SegmentTrace):
    """A running segment, which its caller gets too."""

    message: Message
    turn: Span
    segment: OpenSpan
    engine: OpenSpan | None = None
    calls: dict[str, OpenSpan] = field(default_factory=dict)
    count: int = 0
    requests: int = 0
    outcome: str = ""
    code: str = ""
    error: str = ""


class _EngineRun(EngineTrace):
    """An engine's run, which its caller gets."""

    def __init__(self, requests: ModelRequests) -> None:
        self.requests = requests
        self.end: EngineDone | Suspended | None = None
        self.usage: Sequence[Usage] = ()

    def observe(self, event: EngineEvent) -> None:
        self.requests.observe(event)

    def ended(self, end: EngineDone | Suspended, usage: Sequence[Usage]) -> None:
        self.end, self.usage = end, tuple(usage)


@dataclass(slots=True, eq=False)
class SpanTracer(Tracer):
    """The tracer of a daemon."""

    put: Callable[[Span], None]
    """Stores a span, and neither waits nor raises."""
    clock: Clock
    boot_id: str
    redact: Callable[[str, int], str] = lambda text, limit: text[:limit]
    """Removes secrets, and cuts the text at the limit."""
    is_on: Callable[[], bool] = lambda: True
    """Asked at the beginning of each segment."""
    _number: int = field(init=False, default=0)
    _work: dict[str, _Work] = field(init=False, default_factory=dict)

    # -- segments ----------------------------------------------------------------------------------

    @contextmanager
    def segment(self, message: Message, agent: str) -> Iterator[_Work]:
        work = self._begin(message, agent)
        if self.is_on() and work.turn.trace_id:
            self._work[message.message_id] = work
            self.put(work.turn)
            self.put(work.segment.span)
        try:
            yield work
        except ExitRequested:
            work.outcome = "ok"
            raise
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            work.code, work.error = _code_of(error), str(error)
            raise
        finally:
            if self._work.get(message.message_id) is work:
                del self._work[message.message_id]
                self._end(work)

    def _begin(self, message: Message, agent: str) -> _Work:
        now, began_s = self.clock.now_ms(), self.clock.monotonic()
        parent = parent_id(message.traceparent)
        turn = Span(
            span_id=turn_span(message.message_id),
            trace_id=trace_id(message.traceparent),
            parent_id=parent,
            kind=SpanKind.TURN,
            name=agent,
            agent_id=message.agent_id,
            message_id=message.message_id,
            session_id=message.session_id,
            attributes={
                "kind": message.kind.value,
                "lane": message.lane.value,
                "attempt": message.attempts,
                "waited_ms": max(0, (message.started_at or now) - message.accepted_at),
                **({"sender": message.sender_agent_id} if message.sender_agent_id else {}),
            },
            is_root=not message.in_reply_to,
            started_at=message.started_at or now,
        )
        segment = self._child(turn, SpanKind.SEGMENT, agent)
        return _Work(message, turn, OpenSpan(segment, began_s))

    def _end(self, work: _Work) -> None:
        """Close the segment and everything that is still open in it."""
        default = SpanState.CRASHED if work.code and not work.outcome else SpanState.CANCELLED
        state = _OUTCOMES.get(work.outcome, default)
        within = SpanState.PARKED if state is SpanState.PARKED else SpanState.CANCELLED
        if state is SpanState.CRASHED:
            within = SpanState.CRASHED
        for call in work.calls.values():
            self.put(self._closed(call, within))
        if work.engine is not None:
            self.put(self._closed(work.engine, within))
        detail = self._short(work.error)
        segment = self._closed(work.segment, state, code=work.code, detail=detail)
        self.put(segment)
        turn, end_at, us = work.turn, None, None
        if work.count > MOST_CALLS:
            turn.attributes["calls_not_shown"] = work.count - MOST_CALLS
        if work.requests > MOST_REQUESTS:
            turn.attributes["requests_not_shown"] = work.requests - MOST_REQUESTS
        if state in (SpanState.OK, SpanState.FAILED):
            end_at = segment.ended_at or turn.started_at
            us = segment.duration_us
            if segment.started_at - turn.started_at > 1000:
                us = 1000 * max(0, end_at - turn.started_at)
        elif state in (SpanState.CANCELLED, SpanState.CRASHED):
            # The message decides whether the turn continues.
            us = segment.duration_us
        self.put(
            replace(
                turn, state=state, code=work.code, detail=detail, ended_at=end_at, duration_us=us
            )
        )

    # -- engines -----------------------------------------------------------------------------------

    @contextmanager
    def engine(
        self, message_id: str, name: str, model: str, provider: str = ""
    ) -> Iterator[EngineTrace]:
        work = self._work.get(message_id)
        if work is None:
            yield EngineTrace()
            return
        span = self._child(work.segment.span, SpanKind.ENGINE, name)
        span.attributes.update({"model": model} if model else {})
        work.engine = opened = OpenSpan(span, self.clock.monotonic())
        self.put(span)
        begin = partial(self._request, work, span, self.redact(provider, NAME_CHARS))
        run = _EngineRun(ModelRequests(begin, self.put, self.clock))
        try:
            yield run
            self._engine_ended(work, opened, run)
        except Exception as error:
            code = _code_of(error)
            run.requests.ended(SpanState.CRASHED, code)
            self.put(self._closed(opened, SpanState.CRASHED, code=code))
            work.engine = None
            raise
        finally:
            run.requests.ended(SpanState.CANCELLED)

    def _engine_ended(self, work: _Work, opened: OpenSpan, run: _EngineRun) -> None:
        state, code, error = SpanState.PARKED, "", ""
        if isinstance(run.end, EngineDone):
            state = {"ok": SpanState.OK, "failed": SpanState.FAILED}.get(
                run.end.outcome, SpanState.CANCELLED
            )
            if state is not SpanState.OK:
                code, error = run.end.code, run.end.error
        work.code, work.error = code, error
        run.requests.ended(state, code)
        attributes = opened.span.attributes
        if run.usage:
            attributes["input_tokens"] = sum(u.input_tokens for u in run.usage)
            attributes["output_tokens"] = sum(u.output_tokens for u in run.usage)
            costs = [u.usd for u in run.usage if u.usd is not None]
            attributes.update({"usd": sum(costs)} if costs else {})
            if any(u.is_estimated for u in run.usage):
                attributes["is_estimated"] = True
        self.put(self._closed(opened, state, code=code, detail=self._short(error)))
        work.engine = None

    def _request(self, work: _Work, engine: Span, provider: str) -> Span | None:
        """The span of a request to a model that begins now; None beyond the limit."""
        work.requests += 1
        if work.requests > MOST_REQUESTS:
            return None
        model = engine.attributes.get("model", "")
        span = self._child(engine, SpanKind.MODEL, model or engine.name)
        facts = {"provider": provider, "model": model}
        span.attributes.update({name: value for name, value in facts.items() if value})
        return span

    # -- calls -------------------------------------------------------------------------------------

    def call_asked(self, call: CallFacts) -> None:
        work = self._work.get(call.message_id)
        if work is not None:
            self._open_call(work, call)

    def _open_call(self, work: _Work, call: CallFacts) -> OpenSpan | None:
        work.count += 1
        if work.count > MOST_CALLS:
            return None
        above = work.engine or work.segment
        span = self._child(above.span, SpanKind.TOOL, call.own_name or call.name)
        span = replace(
            span,
            detail=self._arguments(call.args),
            signature=call.call_id.rpartition(":")[0].rpartition(":")[2],
        )
        span.attributes.update(effect=call.effect.value, safety=call.safety.value)
        if call.origin is not CallOrigin.TOOL:
            span.attributes["origin"] = call.origin.value
        opened = OpenSpan(span, self.clock.monotonic())
        work.calls[call.call_id] = opened
        self.put(span)
        return opened

    def call_judged(self, call: CallFacts, stage: str, verdict: str) -> None:
        opened = self._call(call.message_id, call.call_id)
        if opened is not None:
            opened.span.attributes.setdefault("stages", {})[stage] = verdict

    def call_ended(self, call: CallFacts, result: ToolResult) -> None:
        work = self._work.get(call.message_id)
        if work is None:
            return
        opened = work.calls.pop(call.call_id, None)
        if opened is None:
            opened = self._open_call(work, call)
            work.calls.pop(call.call_id, None)
        if opened is None:
            return
        stages = opened.span.attributes.get("stages", {})
        state = SpanState.OK if result.ok else SpanState.FAILED
        if stages.get(DECISION) == "deny":
            state = SpanState.DENIED
        if result.replayed:
            opened.span.attributes["replayed"] = True
        opened.span.attributes["chars"] = len(result.text)
        self.put(self._closed(opened, state, code=result.code))

    def own_ended(self, message_id: str, name: str, ok: bool) -> None:
        work = self._work.get(message_id)
        if work is None:
            return
        for call_id, opened in work.calls.items():
            span = opened.span
            if span.name == name and span.attributes.get("origin") == CallOrigin.OWN.value:
                del work.calls[call_id]
                self.put(self._closed(opened, SpanState.OK if ok else SpanState.FAILED))
                return

    # -- work caused by a call ---------------------------------------------------------------------

    @contextmanager
    def waiting_for(self, message_id: str, call_id: str, agent: str) -> Iterator[str]:
        opened = self._call(message_id, call_id)
        if opened is None:
            yield ""
            return
        wait = OpenSpan(self._child(opened.span, SpanKind.AGENT, agent), self.clock.monotonic())
        self.put(wait.span)
        state, code = SpanState.CANCELLED, ""
        try:
            yield self._header(message_id, wait.span)
            state = SpanState.OK
        except Exception as error:
            state, code = SpanState.FAILED, _code_of(error)
            raise
        finally:
            self.put(self._closed(wait, state, code=code))

    def header_of(self, message_id: str, call_id: str) -> str:
        opened = self._call(message_id, call_id)
        return "" if opened is None else self._header(message_id, opened.span)

    # -- inside ------------------------------------------------------------------------------------

    def _call(self, message_id: str, call_id: str) -> OpenSpan | None:
        work = self._work.get(message_id)
        return None if work is None else work.calls.get(call_id)

    def _header(self, message_id: str, span: Span) -> str:
        work = self._work.get(message_id)
        return "" if work is None else under(work.message.traceparent, span.span_id)

    def _child(self, above: Span, kind: SpanKind, name: str) -> Span:
        self._number += 1
        seed = f"{self.boot_id}:{self._number}"
        return Span(
            span_id=hashlib.sha256(seed.encode()).hexdigest()[:16],
            trace_id=above.trace_id,
            parent_id=above.span_id,
            kind=kind,
            name=self.redact(name, NAME_CHARS),
            agent_id=above.agent_id,
            message_id=above.message_id,
            session_id=above.session_id,
            started_at=self.clock.now_ms(),
        )

    def _closed(
        self, opened: OpenSpan, state: SpanState, *, code: str = "", detail: str = ""
    ) -> Span:
        return opened.closed(self.clock.monotonic(), state, code=code, detail=detail)

    def _arguments(self, args: dict[str, Any]) -> str:
        """The arguments as short JSON."""
        text = json.dumps(self._plain(args), ensure_ascii=False) if args else ""
        return text if len(text) <= DETAIL_CHARS else text[: DETAIL_CHARS - 1] + "…"

    def _plain(self, value: Any, depth: int = 0) -> Any:
        """Plain data of bounded size and without secrets."""
        if isinstance(value, str):
            return self._short(value)
        if value is None or isinstance(value, bool | int | float):
            text = str(value)
            return value if self.redact(text, DETAIL_CHARS) == text else "…"
        if depth < _MOST_LEVELS and isinstance(value, dict):
            items = itertools.islice(value.items(), _MOST_ITEMS)
            return {
                self.redact(str(key), _KEY_CHARS): self._plain(item, depth + 1)
                for key, item in items
            }
        if depth < _MOST_LEVELS and isinstance(value, list | tuple):
            return [self._plain(item, depth + 1) for item in value[:_MOST_ITEMS]]
        return f"({type(value).__name__})"

    def _short(self, text: str) -> str:
        return self.redact(text, DETAIL_CHARS) if text else ""


def _code_of(error: BaseException) -> str:
    return error.code if isinstance(error, AgentsupError) else type(error).__name__
