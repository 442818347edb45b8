"""Traces: W3C trace context as one header string, and the words for what a trace has.

The header of a message names its trace and the span that caused it. The id of the span of the
message's turn is derived from the message's id, so every segment, boot and reader computes the
same. A header whose span is the beginning of its trace id is a root: nothing caused it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from enum import StrEnum

from agentsup.model.message import Message

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


class SpanKind(StrEnum):
    """The subject of a span."""

    TURN = "turn"
    SEGMENT = "segment"
    ENGINE = "engine"
    TOOL = "tool"
    AGENT = "agent"
    """A request to another agent; it is counted, and in a trace it is that agent's turn."""
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
    PARKED = "parked"
    """It waits for an answer."""
    RETRY = "retry"
    """It failed and is tried again."""
    CANCELLED = "cancelled"
    CRASHED = "crashed"
    INTERRUPTED = "interrupted"
    """The daemon ended during it."""
