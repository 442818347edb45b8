"""A durable row that waits for a person or an agent; single use, with a deadline."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class QuestionState(StrEnum):
    OPEN = "open"
    ANSWERED = "answered"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Question:
    """``options`` empty = free text. ``kind``: question | uncertain (a blind call's outcome)."""

    question_id: str
    agent_id: str
    session_id: str
    message_id: str
    kind: str
    text: str
    options: tuple[str, ...]
    state: QuestionState
    answer: str
    asked_at: int
    deadline_at: int | None
    answered_at: int | None
    answered_by: str
