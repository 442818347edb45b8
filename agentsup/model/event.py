"""The types of durable events. An event is written in the transaction of the change it reports."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class EventType(StrEnum):
    MESSAGE_ACCEPTED = "message.accepted"
    """Work was accepted that has no ``chat.in`` event."""
    MESSAGE_STARTED = "message.started"
    MESSAGE_PARKED = "message.parked"
    MESSAGE_RETRY = "message.retry"
    MESSAGE_DONE = "message.done"
    MESSAGE_DEAD = "message.dead"
    MESSAGE_CANCELLED = "message.cancelled"
    CHAT_IN = "chat.in"
    """A person's text was accepted into a conversation (shown to all its clients)."""
    CHAT_EDITED = "chat.edited"
    """A person edited a queued text; ``text`` is the new text."""
    CHAT_OUT = "chat.out"
    """An answer, notice, question or file was delivered to a conversation."""
    CHAT_REFUSED = "chat.refused"
    """The platform no longer accepts parts for that conversation (blocked, removed), and a part was
    given up. ``why`` is the platform's reason, ``text`` the beginning of the part."""
    QUESTION_ASKED = "question.asked"
    QUESTION_CLOSED = "question.closed"
    GRANT_GIVEN = "grant.given"
    """A person granted a tool, for a run or until revoked."""
    GRANT_REVOKED = "grant.revoked"
    TASK_CREATED = "task.created"
    TASK_CHANGED = "task.changed"
    """A task's state changed: its run's state did, or it was set directly."""
    TASK_PROGRESS = "task.progress"
    TASK_DELETED = "task.deleted"
    SLOT_SKIPPED = "task.slot_skipped"
    """A time of a task's schedule was skipped; ``why`` is the skip reason."""
    RUN_STARTED = "run.started"
    """An agent delegated work; ``message_id`` is the run's, ``parent`` the message for which it did
    so."""
    ROUTE_CHOSEN = "route.chosen"
    """An agent was chosen for some work, with the reasons; ``message_id`` is the message that
    needed the work."""
    STOPPED = "stop.applied"
    STRANGER_ASKED = "stranger.asked"
    """A stranger was given a pairing code."""
    STRANGER_DECIDED = "stranger.decided"
    """A stranger with a pairing code was let in or refused; ``by`` says by whom."""
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
