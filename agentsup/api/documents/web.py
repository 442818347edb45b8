"""Documents for the web page."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field

from agentsup.api.documents.document import Document, DoneDocument
from agentsup.api.documents.messages import EventDocument
from agentsup.mailbox.messages import ConversationSession


class SignedInDocument(Document):
    who: str = Field(description="the person's name, or operator")
    role: str
    language: str = Field(description="what the person reads, or empty: as the browser says")
    is_operator: bool
    may: list[Literal["look", "talk", "steer", "work"]]
    conversation: str = Field(description="this person's own conversation")
    expires_at: int = Field(description="when the session ends unless it is used before")
    version: str
    node_id: str
    agents: list[str]
    max_upload_bytes: int


class SignIn(SignedInDocument):
    secret: str = Field(description="sent as a bearer token with each request; answered once")


class PageWords(Document):
    language: str = Field(description="of the words: as asked, or `en` where there are none")
    words: dict[str, str] = Field(description="texts by the English ones; empty for English")


class SignedOut(DoneDocument):
    ended: int = Field(description="sessions that ended")


class LoginLinkDocument(Document):
    url: str = Field(description="signs a browser in, once")
    code: str
    expires_at: int
    person: str | None = Field(description="null: the operator")
    role: str
    doubts: list[Literal["here", "near", "open"]] = Field(
        description="why it may not work from another machine, or not safely"
    )
    warnings: list[str] = Field(description="the same as sentences")
    qr: str = Field(description="the link as a QR code, an SVG picture; empty if not asked for")


class PersonShown(Document):
    name: str
    role: str


class PeopleList(Document):
    people: list[PersonShown]


class HistoryDocument(Document):
    events: list[EventDocument] = Field(description="oldest first")
    more: bool = Field(description="there are older ones")


class FinishedBlocks(Document):
    blocks: list[dict[str, Any]] = Field(description="what is finished of the text, as in answers")
    units: int = Field(description="the length of that in the text, in UTF-16 units")


class SessionShown(Document):
    id: str
    title: str
    key: str = Field(description="the place where it was begun")
    created_at: int
    updated_at: int
    is_current: bool

    @classmethod
    def of(cls, session: ConversationSession, current: str) -> Self:
        """A session; ``current`` is the id of the one that the conversation is in."""
        is_current = session.session_id == current
        return cls.from_value(session, id=session.session_id, is_current=is_current)


class SessionList(Document):
    current: str = Field(description="the session that the conversation is in, or empty")
    sessions: list[SessionShown]


class SessionChanged(DoneDocument):
    session: SessionShown


class Uploaded(Document):
    path: str = Field(description="in the agent's workspace")
    name: str
    size: int


class LogLine(Document):
    at: int
    source: Literal["log", "event"]
    level: str
    text: str
    facts: dict[str, Any]


class Log(Document):
    lines: list[LogLine] = Field(description="oldest first")


class AgentPageStatistics(Document):
    agent: str
    agent_id: str
    turns: int
    failed: int
    cancelled: int
    p50_s: float | None = Field(description="from accepted to finished; null if nothing ended")
    p95_s: float | None
    wait_p50_s: float | None = Field(description="from accepted to started")
    input_tokens: int
    output_tokens: int
    usd: float | None
    unpriced: int = Field(description="reports of usage without a price")
    by_hour: list[int] = Field(description="messages that ended, in equal spans, oldest first")


class PageStatisticsDocument(Document):
    since: int
    until: int
    hours: int
    agents: list[AgentPageStatistics]
