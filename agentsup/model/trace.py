"""Traces: W3C trace context as one header string, and the port through which work tells its spans.

The header of a message names the trace it belongs to and the span that caused it; the span of the
message's turn has an id that follows from the message's, so that every segment, boot and reader
comes to the same. A header whose span is the beginning of its trace id is a root: nothing caused it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from typing import Protocol

from agentsup.model.engine import Done, EngineEvent, Suspended, Usage
from agentsup.model.hook import CallFacts
from agentsup.model.message import Message
from agentsup.model.tool import ToolResult

_TRACEPARENT = re.compile(r"^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$")


# -- the header ------------------------------------------------------------------------------------


def trace_id(traceparent: str) -> str:
    """The 32 hex digits of the trace, or an empty string for a malformed header."""
    match = _TRACEPARENT.match(traceparent)
    return match.group(1) if match and match.group(1) != "0" * 32 else ""


def parent_id(traceparent: str) -> str:
    """The 16 hex digits of the span that caused the work; empty for a root or a malformed header."""
    trace = trace_id(traceparent)
    span = traceparent[36:52]
    return "" if not trace or span in (trace[:16], "0" * 16) else span


def under(traceparent: str, span_id: str) -> str:
    """The header for work that the span ``span_id`` of the same trace causes; empty for a
    malformed one."""
    trace = trace_id(traceparent)
    return f"00-{trace}-{span_id}-01" if trace else ""


def child_of(traceparent: str, hex_digits: Callable[[int], str]) -> str:
    """The header of new work: ``traceparent`` itself if it is valid, else that of a new trace.

    ``hex_digits(n)`` yields n random hex digits (from the entropy port).
    """
    if trace_id(traceparent):
        return traceparent
    trace = hex_digits(32)
    return f"00-{trace}-{trace[:16]}-01"


def of_root(root_id: str) -> str:
    """The header of work that came without one: the same for all that goes back to one message."""
    trace = hashlib.sha256(f"trace:{root_id}".encode()).hexdigest()[:32]
    return f"00-{trace}-{trace[:16]}-01"


def span_of(kind: str, subject: str) -> str:
    """The span id that follows from what the span is about, the same for everybody."""
    return hashlib.sha256(f"{kind}:{subject}".encode()).hexdigest()[:16]


def turn_span(message_id: str) -> str:
    """The span of a message's turn, all its segments together."""
    return span_of("turn", message_id)


def by_turn_of(message: Message) -> str:
    """The header for work that the turn of ``message`` causes."""
    return under(message.traceparent, turn_span(message.message_id))


# -- spans -----------------------------------------------------------------------------------------


DECISION = "decision"
"""The stage under which it is told that a call does not happen."""


class SpanKind(StrEnum):
    """What a span is about."""

    TURN = "turn"
    SEGMENT = "segment"
    ENGINE = "engine"
    MODEL = "model"
    """A request to a model, as far as the engine tells of single ones."""
    TOOL = "tool"
    AGENT = "agent"
    """A wait for another agent's answer."""
    PERSON = "person"
    """A wait for a person's answer; read from the questions."""
    DELIVERY = "delivery"
    """A part of an answer on its way; read from the outbox."""
    ROUTE = "route"
    """Who was chosen for a piece of work; read from the events."""


class SpanState(StrEnum):
    """How a span ended, or how it is."""

    RUNNING = "running"
    OK = "ok"
    FAILED = "failed"
    DENIED = "denied"
    """A stage refused the call."""
    PARKED = "parked"
    """It waits for an answer."""
    RETRY = "retry"
    """It failed and is tried again."""
    CANCELLED = "cancelled"
    CRASHED = "crashed"
    INTERRUPTED = "interrupted"
    """The daemon ended under it."""


# -- the port --------------------------------------------------------------------------------------


class SegmentTrace(Protocol):
    """The span of a segment, while it runs."""

    outcome: str
    """ok | failed | parked | retry; unless it is said, how the block ended decides."""


class EngineTrace(Protocol):
    """The span of an engine's run."""

    def heard(self, event: EngineEvent) -> None:
        """Say what the engine told: its requests to its model are spans of their own."""

    def ended(self, end: Done | Suspended, usage: Sequence[Usage]) -> None:
        """Say how the run ended, and what it used."""


class Tracer(Protocol):
    """Hears what happens. No method waits, writes or raises: what can't be kept is dropped."""

    def segment(self, message: Message, agent: str) -> AbstractContextManager[SegmentTrace]:
        """Around one segment of the message's turn."""

    def engine(
        self, message_id: str, name: str, model: str, provider: str = ""
    ) -> AbstractContextManager[EngineTrace]:
        """Around the engine's run in that turn's segment; ``provider`` is whose service it uses."""

    def call_asked(self, call: CallFacts) -> None:
        """A call comes to its first stage."""

    def call_judged(self, call: CallFacts, stage: str, verdict: str) -> None:
        """What one stage said: allow, deny or suspend."""

    def call_ended(self, call: CallFacts, result: ToolResult) -> None:
        """A call has its result, a denial and one made before included."""

    def own_ended(self, message_id: str, name: str, ok: bool) -> None:
        """The engine tells that the oldest call of its own of that name has ended."""

    def waiting_for(self, message_id: str, call_id: str, agent: str) -> AbstractContextManager[str]:
        """Around a call's wait for another agent: the header for what it is asked, empty where
        nothing is known of the call."""

    def header_of(self, message_id: str, call_id: str) -> str:
        """The header for work that a call causes and does not wait for; empty as above."""


class _Unheard:
    outcome = ""

    def heard(self, event: EngineEvent) -> None: ...

    def ended(self, end: Done | Suspended, usage: Sequence[Usage]) -> None: ...


class Untraced:
    """A ``Tracer`` that keeps nothing."""

    def segment(self, message: Message, agent: str) -> AbstractContextManager[SegmentTrace]:
        return nullcontext(_Unheard())

    def engine(
        self, message_id: str, name: str, model: str, provider: str = ""
    ) -> AbstractContextManager[EngineTrace]:
        return nullcontext(_Unheard())

    def call_asked(self, call: CallFacts) -> None: ...

    def call_judged(self, call: CallFacts, stage: str, verdict: str) -> None: ...

    def call_ended(self, call: CallFacts, result: ToolResult) -> None: ...

    def own_ended(self, message_id: str, name: str, ok: bool) -> None: ...

    def waiting_for(self, message_id: str, call_id: str, agent: str) -> AbstractContextManager[str]:
        return nullcontext("")

    def header_of(self, message_id: str, call_id: str) -> str:
        return ""


UNTRACED: Tracer = Untraced()
