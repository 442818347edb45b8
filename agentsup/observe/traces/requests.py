"""Spans of an engine's requests to its model, from its reports of requests, or else of tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from agentsup.kit.clock import Clock
from agentsup.model.engine import EngineEvent, ModelRequest, ToolFinished, ToolStarted, Usage
from agentsup.model.trace import SpanState
from agentsup.observe.traces.span import Span

MOST_REQUESTS = 200
"""The most spans of requests in one segment; later ones are only counted."""


@dataclass(slots=True)
class OpenSpan:
    """A running span, and its start on the monotonic clock."""

    span: Span
    began_s: float

    def closed(self, now_s: float, state: SpanState, *, code: str = "", detail: str = "") -> Span:
        """The span with its end at ``now_s``."""
        us = max(0, round((now_s - self.began_s) * 1_000_000))
        return replace(
            self.span,
            state=state,
            code=code,
            detail=detail or self.span.detail,
            ended_at=self.span.started_at + us // 1000,
            duration_us=us,
        )


class ModelRequests:
    """The requests of one run, at most one at a time."""

    def __init__(
        self,
        begin: Callable[[], Span | None],
        put: Callable[[Span], None],
        clock: Clock,
    ) -> None:
        """``begin`` makes the span of a request that begins now; None: it is not recorded."""
        self._begin = begin
        self._put = put
        self._clock = clock
        self._open: OpenSpan | None = None
        self._is_answered = False
        self._tells = False
        self._quiet_since_s = clock.monotonic()
        """Since when the engine may be waiting for its model, if it does not report requests."""

    def observe(self, event: EngineEvent) -> None:
        """Handle an event of the engine. The end of an answer comes before its usage."""
        match event:
            case ModelRequest(has_ended=False):
                self.ended(SpanState.CANCELLED)
                self._tells = True
                self._ask(self._clock.monotonic())
                if self._open is not None:
                    self._put(self._open.span)
            case ModelRequest():
                self._is_answered = self._open is not None
            case Usage() if self._tells:
                self._count(event)
                if self._is_answered:
                    self.ended(SpanState.OK)
            case Usage() if event.input_tokens or event.output_tokens:
                self._ask(self._quiet_since_s)
                if self._open is not None:
                    self._open.span.attributes["by_report"] = True
                self._count(event)
                self.ended(SpanState.OK)
            case Usage() | ToolStarted() | ToolFinished():
                pass
            case _:
                return
        self._quiet_since_s = self._clock.monotonic()

    def ended(self, state: SpanState, code: str = "") -> None:
        """Close the open request, if there is one; an answered request is closed as ok."""
        if self._open is None:
            return
        if self._is_answered:
            state, code = SpanState.OK, ""
        self._put(self._open.closed(self._clock.monotonic(), state, code=code))
        self._open, self._is_answered = None, False

    def _ask(self, began_s: float) -> None:
        span = self._begin()
        if span is not None:
            ago_ms = round((self._clock.monotonic() - began_s) * 1000)
            self._open = OpenSpan(replace(span, started_at=span.started_at - ago_ms), began_s)

    def _count(self, usage: Usage) -> None:
        if self._open is None:
            return
        found = self._open.span.attributes
        found["input_tokens"] = found.get("input_tokens", 0) + usage.input_tokens
        found["output_tokens"] = found.get("output_tokens", 0) + usage.output_tokens
