"""A plain text as the answer to an open question in a private conversation: which one it means.

The ledger prevents a text from being used twice, and from being an answer if it was accepted as a
message before the question was asked. Serves P2 and P8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentsup.mailbox.lifecycle import answering
from agentsup.mailbox.messages import answer_options
from agentsup.mailbox.messages.values import MailboxContext
from agentsup.mailbox.questions import rendering
from agentsup.mailbox.queue import idempotency
from agentsup.model.principal import Principal
from agentsup.model.question import OF_AGENTS, Question
from agentsup.store import Reader, Tx


@dataclass(frozen=True, slots=True)
class PlainAnswer:
    """A person's text in a private conversation; ``source``, ``external_id``: its ledger key."""

    agent_id: str
    channel: str
    conversation: str
    text: str
    by: Principal
    source: str
    external_id: str


def is_free(question: Question) -> bool:
    """Whether any text can be its answer: an agent asks, without options.

    An approval of a call needs its own words.
    """
    return question.kind in OF_AGENTS and not question.options


def meant_by(asked: Sequence[Question], text: str) -> tuple[Question, str] | None:
    """The question that a plain text answers, of those open in its conversation, and the answer.

    It is the only one with an option of that text, or else the only one that accepts any text. With
    several, none is guessed: the person must reply to one of them or name it.
    """
    # A question that is shown in several parts is listed several times.
    asked = list({each.question_id: each for each in asked}.values())
    chosen = [(each, option) for each in asked if (option := _option(each, text)) is not None]
    free = [each for each in asked if is_free(each)]
    if chosen:
        is_clear = len(chosen) == 1 and not free and chosen[0][0].kind in OF_AGENTS
        return chosen[0] if is_clear else None
    return (free[0], text) if len(free) == 1 else None


def _option(question: Question, text: str) -> str | None:
    """The option that a text names by its words or its number, with nothing after it."""
    said = " ".join(text.split()).casefold()
    if said.isdecimal() and len(said) <= 3 and 1 <= int(said) <= len(question.options):
        return question.options[int(said) - 1]
    for option in question.options:
        if " ".join(option.split()).casefold() == said:
            return option
    found = answer_options.meant(question, text) if question.options else None
    return found if found in question.options else None


def is_answer(reader: Reader, said: PlainAnswer) -> bool:
    """Whether the text answers a question that is open in its conversation."""
    asked = rendering.asked_in(reader, said.agent_id, said.channel, said.conversation)
    return meant_by(asked, said.text) is not None


def answer_tx(ctx: MailboxContext, tx: Tx, said: PlainAnswer) -> Question | None:
    """Answer the question that the text means.

    None if it means none, or if the ledger knows the text already. Raises ``Conflict`` (too late)
    and ``Forbidden`` (this person may not answer it).
    """
    asked = rendering.asked_in(tx, said.agent_id, said.channel, said.conversation)
    meant = meant_by(asked, said.text)
    if meant is None:
        return None
    question, answer = meant
    key = (said.source, said.external_id, question.message_id, "")
    if said.external_id and not idempotency.enter_tx(tx, *key, at=ctx.clock.now_ms()):
        return None
    return answering.answer_tx(ctx, tx, question.question_id, answer, said.by)
