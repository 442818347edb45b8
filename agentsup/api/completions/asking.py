"""A question in a completion: it is the answer's text, and the next request answers it. Pure.

Which question a client has been told stands at the end of that text, so that it is known again in
whatever language it was asked, after a restart, and when it was closed meanwhile.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from agentsup.catalogue import load
from agentsup.channels.cards import clock_time, option_of_text, outcome_text
from agentsup.mailbox.choices import ANY, DENY
from agentsup.model.message import Message, State
from agentsup.model.question import APPROVAL, Question, QuestionState

_TOLD: Final = re.compile(r"\((q_[0-9a-z]+)\)[\s.]*\Z")


@dataclass(frozen=True, slots=True)
class Given:
    """What a text means for a question. Without an `option` there is a `note` for the person."""

    option: str | None = None
    note: str = ""


def told(question: Question, language: str = "") -> str:
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
    return "\n\n".join(block for block in blocks if block)


def told_id(answer: str) -> str | None:
    """The id of the question that an answer ends with."""
    found = _TOLD.search(answer)
    return found[1] if found else None


def is_waiting(question: Question, message: Message, now: int) -> bool:
    """Whether its turn waits for an answer that may still be given."""
    return (
        message.state is State.PARKED
        and question.state is QuestionState.OPEN
        and (question.deadline_at is None or question.deadline_at > now)
    )


def given(question: Question, text: str, language: str = "") -> Given:
    """What a text says to a question that waits."""
    if not question.options:
        return Given(text)
    options = _offered(question)
    option = option_of_text(options, text)
    if option is not None:
        return Given(option)
    listed = " · ".join(options)
    return Given(note=load().text("question.which", language, options=listed))


def given_untold(question: Question, text: str, language: str = "") -> Given:
    """What a text says to a question that its client does not show to have been told: what allows
    a call names the id as well, which stands below all of the call."""
    if question.kind != APPROVAL:
        return given(question, text, language)
    words, is_named = text.rstrip(" .)"), False
    if words.endswith(question.question_id):
        words, is_named = words.removesuffix(question.question_id).rstrip(" ("), True
    found = given(question, words if is_named else text, language)
    if is_named or found.option == DENY:
        return found
    example = {"option": _offered(question)[0], "id": question.question_id}
    return Given(note=load().text("question.name_it", language, **example))


def _offered(question: Question) -> list[str]:
    """The options, but leave for every command: there is no place for a second press."""
    return [one for one in question.options if one != ANY]


def late(question: Question, language: str = "") -> str:
    """The word to a text that came after the question was closed, the same before and after its
    row says that its time is over."""
    if question.state in (QuestionState.OPEN, QuestionState.EXPIRED):
        question = replace(question, state=QuestionState.EXPIRED, answered_at=question.deadline_at)
    return outcome_text(question, language=language)


def joined(*blocks: str) -> str:
    """Blocks of text, those that are empty left out."""
    return "\n\n".join(block for block in blocks if block)
