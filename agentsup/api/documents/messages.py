"""Messages with their results and threads, events and questions as documents; for the page, the
Markdown texts of agents come as blocks."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Literal, Self

from pydantic import Field

from agentsup.api.documents.blocks import Blocks
from agentsup.api.documents.document import Document, DoneDocument
from agentsup.mailbox.mail import AgentDirectory, name_in
from agentsup.mailbox.messages import answer_options, worded
from agentsup.model.event import Event, EventType
from agentsup.model.health import AgentState
from agentsup.model.message import TERMINAL, Message, MessageOutcome, MessageState
from agentsup.model.question import AnswerableBy, Question, QuestionState


class EventDocument(Document):
    seq: int
    at: int
    type: str
    agent_id: str
    session_id: str
    message_id: str
    conversation: str
    data: dict[str, Any]
    agent: str | None = Field(None, description="name of the agent, in `/events`")


async def shown(
    events: Iterable[Event], blocks_of: Blocks, language: str = ""
) -> list[EventDocument]:
    """The documents of a conversation's events. Markdown texts of an agent come as blocks, the
    answer of a closed question in the words of ``language``."""
    found = [*events]
    texts = [(event.agent_id or "", _markdown(event)) for event in found]
    made = []
    for event, blocks in zip(found, await blocks_of.all(texts), strict=True):
        data = event.data
        if blocks:
            data = {**data, "blocks": blocks}
        elif event.type == EventType.QUESTION_CLOSED:
            kind, answer = str(data.get("kind")), str(data.get("answer") or "")
            data = {**data, "answer": worded(kind, answer, language)}
        made.append(EventDocument.from_value(event, data=data))
    return made


def _markdown(event: Event) -> str:
    """The text to parse, or empty: notices hold ids and columns that Markdown would break."""
    data = event.data
    is_said = event.type == EventType.CHAT_OUT and data.get("kind") in ("answer", "question")
    return str(data.get("text") or "") if is_said and not data.get("plain") else ""


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


class QuestionDocument(Document):
    id: str
    agent: str
    agent_id: str
    session: str
    message_id: str
    kind: str
    text: str
    blocks: list[dict[str, Any]] | None = Field(None, description="the text, for the page")
    options: list[str]
    labels: list[str] = Field(description="the options in the reader's words, in their order")
    state: QuestionState
    answer: str
    answer_label: str = Field(description="the answer in the reader's words")
    asked_at: int
    deadline_at: int | None
    who: AnswerableBy = Field(description="who may answer; an operator always may")
    tool: str = Field(description="whose call waits for approval; empty for other questions")
    call: dict[str, Any] | None = Field(
        description="all of the call that waits for approval: tool, title, args; secrets masked"
    )
    digest: str = Field(description="of that call; an approval that names it is bound to it")
    whole: str = Field(description="the text that shows all of the call; `text` where that does")
    is_cut: bool = Field(description="whether the text shows a part of the call only")
    answered_at: int | None
    answered_by: str

    @classmethod
    def of(cls, question: Question, directory: AgentDirectory, language: str = "") -> Self:
        """An open or closed question, with its labels in ``language``."""
        call = question.call
        return cls.from_value(
            question,
            id=question.question_id,
            agent=name_in(directory, question.agent_id),
            session=question.session_id,
            labels=answer_options.labels(question.kind, question.options, language),
            answer_label=answer_options.answer_label(question, language),
            call=json.loads(call.document) if call.document else None,
            digest=call.digest,
            whole=call.whole or question.text,
            is_cut=bool(call.whole),
        )


class QuestionList(Document):
    questions: list[QuestionDocument]
    next_cursor: None


def waited_for(question: Question | None, language: str = "") -> dict[str, Any] | None:
    """The question to people that a message waits for, as its sender sees it."""
    if question is None:
        return None
    return {
        "id": question.question_id,
        "kind": question.kind,
        "text": question.text,
        "labels": answer_options.labels(question.kind, question.options, language),
    }


async def asked(
    questions: Iterable[Question],
    directory: AgentDirectory,
    language: str,
    blocks_of: Blocks | None,
) -> list[QuestionDocument]:
    """The documents of questions. Their texts, which are Markdown, come as blocks too if there is a
    ``blocks_of``."""
    found = [*questions]
    made = [QuestionDocument.of(one, directory, language) for one in found]
    if blocks_of is None:
        return made
    texts = await blocks_of.all([(one.agent_id, one.text) for one in found])
    return [
        document.with_members(blocks=blocks) for document, blocks in zip(made, texts, strict=True)
    ]
