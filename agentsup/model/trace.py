"""W3C trace context, as one header string."""

from __future__ import annotations

import re
from collections.abc import Callable

_TRACEPARENT = re.compile(r"^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$")


def trace_id(traceparent: str) -> str:
    """The 32 hex digits of the trace, or an empty string for a malformed header."""
    match = _TRACEPARENT.match(traceparent)
    return match.group(1) if match and match.group(1) != "0" * 32 else ""


def child_of(traceparent: str, hex_digits: Callable[[int], str]) -> str:
    """A header for new work: the trace of ``traceparent`` if it is valid, else a fresh one.

    ``hex_digits(n)`` yields n random hex digits (from the entropy port).
    """
    trace = trace_id(traceparent) or hex_digits(32)
    return f"00-{trace}-{hex_digits(16)}-01"
