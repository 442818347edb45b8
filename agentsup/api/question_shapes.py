"""Shapes of questions, with the call that waits for approval."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from agentsup.api.shapes import Document
from agentsup.model.question import QuestionState, Who


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
    who: Who = Field(description="who may answer; an operator always may")
    tool: str = Field(description="whose call waits for approval; empty for other questions")
    call: dict[str, Any] | None = Field(
        description="all of the call that waits for approval: tool, title, args; secrets masked"
    )
    digest: str = Field(description="of that call; an approval that names it is bound to it")
    whole: str = Field(description="the text that shows all of the call; `text` where that does")
    is_cut: bool = Field(description="whether the text shows a part of the call only")
    answered_at: int | None
    answered_by: str


class QuestionList(Document):
    questions: list[QuestionDocument]
    next_cursor: None
