"""Traces: W3C trace context as one header string, and the port through which spans are reported.

The header of a message names its trace and the span that caused it. The id of the span of the
message's turn is derived from the message's id, so every segment, boot and reader computes the
same. A header whose span is the beginning of its trace id is a root: nothing caused it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from typing import Final

from agentsup.model.engine import EngineDone, EngineEvent, Suspended, Usage
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
    """The header for work that the span ``span_id`` of the same trace causes; empty if
    ``traceparent`` is malformed."""
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
    """The header of work that came without one: the same for all work with this root message."""
    trace = hashlib.sha256(f"trace:{root_id}".encode()).hexdigest()[:32]
    return f"00-{trace}-{trace[:16]}-01"


def span_of(kind: str, subject: str) -> str:
    """The span id derived from the kind and the subject, the same for every caller."""
    return hashlib.sha256(f"{kind}:{subject}".encode()).hexdigest()[:16]


def turn_span(message_id: str) -> str:
    """The span id of a message's turn, the same for all its segments."""
    return span_of("turn", message_id)


def by_turn_of(message: Message) -> str:
    """The header for work that the turn of ``message`` causes."""
    return under(message.traceparent, turn_span(message.message_id))


# -- spans -----------------------------------------------------------------------------------------


DECISION = "decision"
"""The stage under which a refusal of a call is reported."""


class SpanKind(StrEnum):
    """The subject of a span."""

    TURN = "turn"
    SEGMENT = "segment"
    ENGINE = "engine"
    MODEL = "model"
    """A request to a model, if the engine reports single ones."""
    TOOL = "tool"
    AGENT = "agent"
    """A wait for another agent's answer."""
    PERSON = "person"
    """A wait for a person's answer; read from the questions."""
    DELIVERY = "delivery"
    """The delivery of a part of an answer; read from the outbox."""
    ROUTE = "route"
    """A choice of an agent for some work; read from the events."""


class SpanState(StrEnum):
    """How a span ended, or its present state."""

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
    """The daemon ended during it."""


# -- reports --------------------------------------------------------------------------------------


class SegmentTrace:
    """The span of a segment, while it runs."""

    outcome: str = ""
    """ok | failed | parked | retry; if it is not set, how the block ended decides."""


class EngineTrace:
    """The span of an engine's run."""

    def observe(self, event: EngineEvent) -> None:
        """Report an event of the engine: its requests to its model are spans of their own."""

    def ended(self, end: EngineDone | Suspended, usage: Sequence[Usage]) -> None:
        """Report how the run ended, and what it used."""


class Tracer:
    """Gets reports of work. No method waits, writes or raises: what can't be stored is dropped.

    This one drops everything; ``observe.traces.tracer`` has the one of a daemon.
    """

    def segment(self, message: Message, agent: str) -> AbstractContextManager[SegmentTrace]:
        """Around one segment of the message's turn."""
        return nullcontext(SegmentTrace())

    def engine(
        self, message_id: str, name: str, model: str, provider: str = ""
    ) -> AbstractContextManager[EngineTrace]:
        """Around the engine's run in that turn's segment; ``provider`` is the service behind its
        model."""
        return nullcontext(EngineTrace())

    def call_asked(self, call: CallFacts) -> None:
        """A call reaches its first stage."""

    def call_judged(self, call: CallFacts, stage: str, verdict: str) -> None:
        """The verdict of one stage: allow, deny or suspend."""

    def call_ended(self, call: CallFacts, result: ToolResult) -> None:
        """A call has its result, which may be a denial or come from the journal."""

    def own_ended(self, message_id: str, name: str, ok: bool) -> None:
        """The engine reports that the oldest of its own calls with that name has ended."""

    def waiting_for(self, message_id: str, call_id: str, agent: str) -> AbstractContextManager[str]:
        """Around a call's wait for another agent. Gives the header for the request; empty if the
        call is unknown."""
        return nullcontext("")

    def header_of(self, message_id: str, call_id: str) -> str:
        """The header for work that a call causes and does not wait for; empty if the call is
        unknown."""
        return ""


UNTRACED: Final = Tracer()
