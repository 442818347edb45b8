"""Questions as documents, with the call that waits for approval."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Self

from pydantic import Field

from agentsup.api.documents.blocks import Blocks
from agentsup.api.documents.document import Document
from agentsup.mailbox.mail import AgentDirectory, name_in
from agentsup.mailbox.messages import answer_options
from agentsup.model.question import AnswerableBy, Question, QuestionState


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
