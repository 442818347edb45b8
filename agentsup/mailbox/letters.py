"""The values of the dispatcher: what is sent, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from agentsup.mailbox.bus import BusRequest
from agentsup.model.message import Accepted, Priority

__all__ = ["SHOWN", "Broadcast", "Letter", "Sent"]

SHOWN = 20
"""Agents kept on record of a choice."""


@dataclass(frozen=True, slots=True)
class Letter:
    """What is to be said. ``sender`` names an agent and is for the operator; others are who they
    are. ``subject`` becomes the first line."""

    text: str
    subject: str = ""
    sender: str = ""
    thread_id: str = ""
    priority: Priority = Priority.NORMAL
    silent: bool = False
    idempotency_key: str = ""
    traceparent: str = ""

    def request(self, to: str = "") -> BusRequest:
        """The request that carries it."""
        body = self.text.strip()
        return BusRequest(
            to=to,
            text=f"{self.subject.strip()}\n\n{body}" if self.subject.strip() and body else body,
            sender=self.sender,
            thread_id=self.thread_id,
            priority=self.priority,
            summary=self.subject.strip(),
            silent=self.silent,
            idempotency_key=self.idempotency_key,
            traceparent=self.traceparent,
        )


@dataclass(frozen=True, slots=True)
class Sent:
    """One stored message. ``reason`` says why this agent, where it was chosen; ``duplicate``: the
    key was known, and this is what it stands for."""

    message_id: str
    agent_id: str
    agent: str
    session_id: str
    thread_id: str
    duplicate: bool = False
    reason: str = ""

    @classmethod
    def of(cls, accepted: Accepted, agent_id: str, agent: str, thread_id: str) -> Self:
        """What the mailbox said, with the addressee's name; without a thread it begins one."""
        return cls(
            accepted.message_id,
            agent_id,
            agent,
            accepted.session_id,
            thread_id or accepted.message_id,
            duplicate=accepted.duplicate,
        )


@dataclass(frozen=True, slots=True)
class Broadcast:
    """The copies of one broadcast, in the order of their agents; the id is their thread."""

    broadcast_id: str
    copies: tuple[Sent, ...]
    duplicate: bool = False
