"""The catalogue of durable events. An event is written in the transaction of the change it tells."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class EventType(StrEnum):
    MESSAGE_ACCEPTED = "message.accepted"
    """Work was accepted that no ``chat.in`` tells of."""
    MESSAGE_STARTED = "message.started"
    MESSAGE_PARKED = "message.parked"
    MESSAGE_RETRY = "message.retry"
    MESSAGE_DONE = "message.done"
    MESSAGE_DEAD = "message.dead"
    MESSAGE_CANCELLED = "message.cancelled"
    CHAT_IN = "chat.in"
    """A person's text was accepted and entered a conversation (shown to all clients of it)."""
    CHAT_EDITED = "chat.edited"
    """A person corrected a text that waited; ``text`` is what it says now."""
    CHAT_OUT = "chat.out"
    """An answer, notice, question or file was delivered to a conversation."""
    CHAT_REFUSED = "chat.refused"
    """The platform takes a part for that conversation no more (blocked, gone): it was given up.
    ``why`` is what it said, ``text`` the beginning of what was to be said."""
    QUESTION_ASKED = "question.asked"
    QUESTION_CLOSED = "question.closed"
    GRANT_GIVEN = "grant.given"
    """A person gave leave for a tool, for a run or for good."""
    GRANT_REVOKED = "grant.revoked"
    TASK_CREATED = "task.created"
    TASK_CHANGED = "task.changed"
    """A task's state is another one, because its run's is; written by the store itself."""
    TASK_PROGRESS = "task.progress"
    TASK_DELETED = "task.deleted"
    SLOT_SKIPPED = "task.slot_skipped"
    """A time of a task's schedule was let pass; ``why`` says so."""
    RUN_STARTED = "run.started"
    """An agent handed work on; ``message_id`` is the run's, ``parent`` the message it did so for."""
    ROUTE_CHOSEN = "route.chosen"
    """Who was chosen for a piece of work, and why; ``message_id`` is the message it was done for."""
    STOPPED = "stop.applied"
    AGENT_STATE = "agent.state"
    AGENT_ENDED = "agent.ended"
    CONFIG_APPLIED = "config.applied"
    CONFIG_REFUSED = "config.refused"
    DAEMON_STARTED = "daemon.started"
    DAEMON_DRAINING = "daemon.draining"


@dataclass(frozen=True, slots=True)
class Event:
    seq: int
    at: int
    type: str
    agent_id: str
    session_id: str
    message_id: str
    conversation: str
    """``<channel>:<name>`` for chat events, else empty."""
    data: dict[str, Any]
