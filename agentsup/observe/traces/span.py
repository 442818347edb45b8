"""A stored span. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from agentsup.model.trace import SpanKind, SpanState

DETAIL_CHARS = 512
"""The most characters of a detail: an error's sentence, a call's arguments."""
NAME_CHARS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One piece of work. Times are wall ms.

    ``duration_us`` is measured, and None while it runs or if the end was not seen. ``detail`` and
    the attributes may hold words of people; known secrets are removed, and they are short.
    """

    span_id: str
    trace_id: str
    parent_id: str
    kind: SpanKind
    name: str
    agent_id: str
    message_id: str
    session_id: str = ""
    state: SpanState = SpanState.RUNNING
    code: str = ""
    detail: str = ""
    signature: str = ""
    """Equal for equal calls of a turn."""
    attributes: dict[str, Any] = field(default_factory=dict)
    is_root: bool = False
    started_at: int = 0
    ended_at: int | None = None
    duration_us: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether it has not ended yet."""
        return self.ended_at is None
