"""Messages, their results and threads as documents."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field

from agentsup.api.documents.document import Document, DoneDocument
from agentsup.mailbox.mail import AgentDirectory, name_in
from agentsup.model.health import AgentState
from agentsup.model.message import TERMINAL, Message, MessageOutcome, MessageState


class SendReply(Document):
    sender: str = Field(description="the agent that answered")
    text: str
    success: Literal[True]
    error: Literal[""]
    message_id: str
    session: str


class SendAccepted(DoneDocument):
    task_id: str = Field(description="the message id; fetch /interagent/results/{id}")
    message_id: str
    session: str
    agent_state: AgentState
    duplicate: bool = Field(description="the idempotency key was known; nothing new was stored")


class ResultDocument(Document):
    id: str
    state: MessageState
    success: bool | None = Field(description="null until the message has ended")
    outcome: MessageOutcome | None
    text: str
    error: str
    error_code: str
    agent: str
    session: str
    accepted_at: int
    started_at: int | None
    finished_at: int | None

    @classmethod
    def of(cls, message: Message, agent_name: str) -> Self:
        """The result of a message, as the caller that sent it gets it."""
        ended = message.state in TERMINAL
        ok = message.state is MessageState.DONE and message.outcome is MessageOutcome.OK
        return cls.from_value(
            message,
            id=message.message_id,
            success=ok if ended else None,
            text=message.result_text,
            error="" if ok or not ended else _why(message),
            agent=agent_name,
            session=message.session_id,
        )


class MessageDocument(Document):
    id: str
    seq: int
    agent: str
    agent_id: str
    session: str
    thread_id: str
    kind: str
    lane: str
    priority: str
    state: MessageState
    outcome: MessageOutcome | None
    text: str
    parts: list[dict[str, Any]]
    result_text: str
    error: str
    error_code: str
    sender: str = Field(description="who sent it, as people name them")
    sender_agent_id: str
    principal: dict[str, Any]
    deliver_to: dict[str, Any]
    in_reply_to: str
    root_id: str
    path: list[str]
    replay_of: str
    traceparent: str
    summary: str
    silent: bool
    attempts: int
    crashes: int
    accepted_at: int
    started_at: int | None
    finished_at: int | None
    expires_at: int | None
    not_before: int
    private: bool = Field(description="its words are hidden from who asks")

    @classmethod
    def of(cls, message: Message, directory: AgentDirectory, **members: Any) -> Self:
        """A stored message with all its fields. ``members`` are further ones, or take the place of
        others."""
        return cls.from_value(
            message,
            **{
                "id": message.message_id,
                "agent": name_in(directory, message.agent_id),
                "session": message.session_id,
                "priority": message.priority.name.lower(),
                "parts": [part.to_json() for part in message.parts],
                "error": message.error_text,
                "sender": message.principal.label,
                "principal": message.principal.to_json(),
                "deliver_to": message.deliver_to.to_json(),
                "private": False,
                **members,
            },
        )


class MessageShown(MessageDocument):
    position: int | None = Field(description="messages before it; null unless queued")
    eta_s: float | None
    waits_for: dict[str, Any] | None = Field(description="the question its session waits for")


class MessageList(Document):
    messages: list[MessageDocument]
    next_cursor: int | None


class FailedMessageList(Document):
    dead: list[MessageDocument]
    next_cursor: int | None


class Thread(Document):
    thread_id: str
    messages: list[MessageDocument]


class Replayed(DoneDocument):
    message_id: str
    replay_of: str


def _why(message: Message) -> str:
    if message.error_text:
        return message.error_text
    if message.state is MessageState.CANCELLED:
        return "the message was stopped before it was answered"
    return "the message failed; no reason was recorded"
