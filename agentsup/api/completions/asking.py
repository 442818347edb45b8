"""A question in a completion: it is sent as the answer, and the next request answers it. Pure.

The text of the question ends with its id. By that id the question is recognised in any language,
after a restart, and after it was closed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from agentsup.catalogue import load
from agentsup.channels.core.sending import clock_time, option_of_text, outcome_text
from agentsup.mailbox.messages import ANY, DENY, answer_options
from agentsup.model.message import Message, MessageState
from agentsup.model.question import APPROVAL, Question, QuestionState

_QUESTION_ID: Final = re.compile(r"\((q_[0-9a-z]+)\)[\s.]*\Z")


@dataclass(frozen=True, slots=True)
class QuestionAnswer:
    """The meaning of a text for a question: an ``option``, else a ``note`` for the person."""

    option: str | None = None
    note: str = ""


def question_text(question: Question, language: str = "") -> str:
    """The question as its reader sees it, with how to answer."""
    words = load()
    blocks = [(question.call.whole or question.text).strip()]
    if options := _offered(question):
        blocks.append("\n".join(f"{n}. {one}" for n, one in enumerate(options, 1)))
    if question.deadline_at is not None:
        when = clock_time(question.deadline_at)
        blocks.append("⏳ " + words.text("question.until", language, when=when))
    how = "question.choose" if question.options else "question.next"
    blocks.append("✎ " + words.text(how, language, id=question.question_id))
    return joined(*blocks)


def question_id_in(answer: str) -> str | None:
    """The id of the question that an answer ends with, or None."""
    found = _QUESTION_ID.search(answer)
    return found[1] if found else None


def is_waiting(question: Question, message: Message, now: int) -> bool:
    """Whether the turn of ``message`` waits for an answer that may still be given."""
    return (
        message.state is MessageState.PARKED
        and question.state is QuestionState.OPEN
        and (question.deadline_at is None or question.deadline_at > now)
    )


def answer_from(question: Question, text: str, language: str = "") -> QuestionAnswer:
    """The answer that a text gives to a waiting question."""
    if not question.options:
        return QuestionAnswer(text)
    options = _offered(question)
    option = option_of_text(options, text)
    if option is not None:
        return QuestionAnswer(option)
    listed = " · ".join(options)
    return QuestionAnswer(note=load().text("question.which", language, options=listed))


def answer_from_unasked(question: Question, text: str, language: str = "") -> QuestionAnswer:
    """The answer that a text gives to a question that its client may not have shown.

    A text that approves a call must name the question's id, which is shown below the whole call.
    """
    if question.kind != APPROVAL:
        return answer_from(question, text, language)
    words, is_named = text.rstrip(" .)"), False
    if words.endswith(question.question_id):
        words, is_named = words.removesuffix(question.question_id).rstrip(" ("), True
    found = answer_from(question, words if is_named else text, language)
    if is_named or found.option == DENY:
        return found
    example = {"option": _offered(question)[0], "id": question.question_id}
    return QuestionAnswer(note=load().text("question.name_it", language, **example))


def _offered(question: Question) -> list[str]:
    """The options, except an approval of every command, which would need a second confirmation. A
    pattern is offered with each of its ends."""
    if question.kind != APPROVAL:
        return [*question.options]
    named = [answer_options.ends_of(one) or (one,) for one in question.options if one != ANY]
    return [one for each in named for one in each]


def late(question: Question, language: str = "") -> str:
    """The reply to a text that came after the question was closed. It is the same before and after
    the row of an expired question is updated."""
    if question.state in (QuestionState.OPEN, QuestionState.EXPIRED):
        question = replace(question, state=QuestionState.EXPIRED, answered_at=question.deadline_at)
    return outcome_text(question, language=language)


def joined(*blocks: str) -> str:
    """The non-empty blocks of text, with empty lines between."""
    return "\n\n".join(block for block in blocks if block)
