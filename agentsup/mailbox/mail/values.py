"""The values of the dispatcher: mail to send, and mail as it was stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from agentsup.mailbox.mail.bus import BusRequest
from agentsup.model.message import Accepted

SHOWN = 20
"""Number of agents that are listed in the record of a choice."""


def new_mail(text: str, subject: str = "", **more: Any) -> BusRequest:
    """Mail to send, without its addressee. ``subject`` becomes the first line.

    ``more`` are other fields of ``BusRequest``.
    """
    body, summary = text.strip(), subject.strip()
    text = f"{summary}\n\n{body}" if summary and body else body
    return BusRequest(to="", text=text, summary=summary, **more)


@dataclass(frozen=True, slots=True)
class SentMail:
    """One stored message.

    ``reason`` says why this agent was chosen, if there was a choice. ``duplicate``: the key was
    known, and this is the message that it stands for.
    """

    message_id: str
    agent_id: str
    agent: str
    session_id: str
    thread_id: str
    duplicate: bool = False
    reason: str = ""

    @classmethod
    def of(cls, accepted: Accepted, agent_id: str, agent: str, thread_id: str) -> Self:
        """The mailbox's result with the addressee's name; without a thread it begins one."""
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
    copies: tuple[SentMail, ...]
    duplicate: bool = False
