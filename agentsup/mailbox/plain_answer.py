"""A plain text as the answer to what is open in a private conversation: which question it means.

The ledger keeps it from being taken twice, and from being an answer where it was a message before
the question was asked. Serves P2 and P8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentsup.mailbox import accept, answering, choices, questions
from agentsup.mailbox.values import Desk
from agentsup.model.errors import Conflict, Forbidden
from agentsup.model.principal import Principal
from agentsup.model.question import OF_AGENTS, Question
from agentsup.store.database import Database, Reader, Tx

__all__ = ["Said", "answer", "answer_tx", "is_free", "meant_by"]


@dataclass(frozen=True, slots=True)
class Said:
    """A text of a person in a private conversation. ``source`` and ``external_id`` name it for
    good, as in the ledger."""

    agent_id: str
    channel: str
    conversation: str
    text: str
    by: Principal
    source: str
    external_id: str


def is_free(question: Question) -> bool:
    """Whether any words can be its answer: an agent asks, and offers nothing to choose from. Leave
    for a call is given by its own words alone."""
    return question.kind in OF_AGENTS and not question.options


def meant_by(asked: Sequence[Question], text: str) -> tuple[Question, str] | None:
    """The question that a plain text answers, of those open in its conversation, and the answer.

    It is the only one whose options name the text, or else the only one that takes any words. Of
    several none is guessed: who means one of them replies to it or names it.
    """
    # A call that is shown in more than one part is one question.
    asked = list({each.question_id: each for each in asked}.values())
    chosen = [(each, option) for each in asked if (option := _option(each, text)) is not None]
    free = [each for each in asked if is_free(each)]
    if chosen:
        is_clear = len(chosen) == 1 and not free and chosen[0][0].kind in OF_AGENTS
        return chosen[0] if is_clear else None
    return (free[0], text) if len(free) == 1 else None


def _option(question: Question, text: str) -> str | None:
    """The option that a text names by its words or its number, without anything behind it."""
    said = " ".join(text.split()).casefold()
    if said.isdecimal() and len(said) <= 3 and 1 <= int(said) <= len(question.options):
        return question.options[int(said) - 1]
    for option in question.options:
        if " ".join(option.split()).casefold() == said:
            return option
    found = choices.meant(question, text) if question.options else None
    return found if found in question.options else None


async def answer(desk: Desk, database: Database, said: Said) -> Question | None:
    """Answer what it means; None where it is a message like any other."""
    # Most texts are no answer, and need no transaction to know.
    if not await database.read(lambda reader: _look(reader, said), name="mailbox.plain_answer"):
        return None
    try:
        return await database.write(
            lambda tx: answer_tx(desk, tx, said), name="mailbox.plain_answer"
        )
    except (Conflict, Forbidden):
        return None  # closed in this very moment, or somebody else's to answer


def _look(reader: Reader, said: Said) -> bool:
    asked = questions.asked_in(reader, said.agent_id, said.channel, said.conversation)
    return meant_by(asked, said.text) is not None


def answer_tx(desk: Desk, tx: Tx, said: Said) -> Question | None:
    """Answer what it means; None where that is nothing, or where it was heard before: then the
    ledger knows what became of it.

    Raises ``Conflict`` (too late) and ``Forbidden`` (not this one's to answer).
    """
    asked = questions.asked_in(tx, said.agent_id, said.channel, said.conversation)
    meant = meant_by(asked, said.text)
    if meant is None:
        return None
    question, answer = meant
    if said.external_id:
        key = (said.source, said.external_id, question.message_id, "", desk.clock.now_ms())
        if tx.execute(accept.ENTER_SQL, key).rowcount == 0:
            return None
    return answering.answer_tx(desk, tx, question.question_id, answer, said.by)
