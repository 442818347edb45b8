"""P8: a question to a person is durable, single use and honest."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentsup.channels.core.receiving import ChatOrigin
from agentsup.mailbox import Mailbox
from agentsup.mailbox.lifecycle import answering
from agentsup.mailbox.messages import find_question
from agentsup.mailbox.questions.asking import Questions
from agentsup.model.errors import Conflict, Refused
from agentsup.model.question import Question, QuestionState
from agentsup.store import Reader
from tests.component.proofs.house import EVA, ProofDaemon, agent
from tests.component.proofs.proof import Claim, Proof, Removal

claim = Claim("P8")
ASKS = [
    {
        "match": "ask",
        "steps": [
            {"question": {"text": "May I?", "options": ["yes", "no"], "timeout": 60}},
            {"say": "you said <$result>"},
        ],
    }
]
NAMES = [
    {
        "match": "begin",
        "steps": [
            {"question": {"text": "Your name?"}},
            {"question": {"text": "And your age?"}},
            {"say": "both are known"},
        ],
    }
]


async def asked(house: ProofDaemon) -> str:
    """Have a question asked; its id, as the person's button holds it."""
    await house.say("main", "ask")

    def shown() -> list[str]:
        return [p.body["question_id"] for p in house.channel.sent if p.kind == "question"]

    await claim.comes(shown, 10, "no question was shown")
    (part,) = (p for p in house.channel.sent if p.kind == "question")
    claim.holds(part.body["deadline_at"], "the question shows no deadline")
    return shown()[0]


async def press(house: ProofDaemon, question_id: str, answer: str) -> str:
    """Press a button; empty if it was taken, else what the person is told."""
    try:
        await house.daemon.mailbox.questions.answer(question_id, answer, EVA)
    except Refused as refusal:
        return str(refusal)
    return ""


async def an_old_button_works_once(home: Path) -> None:
    """A kill between question and answer; then the button is pressed twice."""
    async with ProofDaemon(home, [agent("main", ASKS)]) as house:
        question_id = await asked(house)
        await house.crash()
        await house.open()
        refusal = await press(house, question_id, "yes")
        claim.holds(not refusal, f"the button of before the restart is dead: {refusal}")
        await claim.comes(lambda: house.heard("you said <yes>"), 10, "the turn did not go on")
        again = await press(house, question_id, "no")
        claim.holds("answered by Eva" in again, f"the second press was told {again!r}")
        await asyncio.sleep(30)
        told = [text for text in house.channel.texts() if text.startswith("you said")]
        claim.holds(told == ["you said <yes>"], f"the turn went on as {told}")


async def a_late_press_is_called_late(home: Path) -> None:
    """The deadline passes, the turn goes on without an answer, then comes the press."""
    async with ProofDaemon(home, [agent("main", ASKS)]) as house:
        question_id = await asked(house)
        await asyncio.sleep(59)
        claim.holds(not house.heard("you said"), "it expired before its deadline")
        await claim.comes(
            lambda: house.heard("you said <>"), 10, "the turn waits past its deadline"
        )
        late = await press(house, question_id, "yes")
        claim.holds("expired at" in late, f"the late press was told {late!r}")


async def of_two_presses_one_wins(home: Path) -> None:
    """Two people press different buttons in the same instant."""
    async with ProofDaemon(home, [agent("main", ASKS)]) as house:
        question_id = await asked(house)
        told = await asyncio.gather(
            *(press(house, question_id, answer) for answer in ("yes", "no"))
        )
        claim.holds(told.count("") == 1, f"{told.count('')} presses were taken")
        won = ("yes", "no")[told.index("")]
        await claim.comes(lambda: house.heard(f"you said <{won}>"), 10, f"{won} was not heeded")


async def said(house: ProofDaemon, text: str) -> None:
    """One text of a person, each time the same to its platform."""
    await house.daemon.inbox.say(
        agent_name="main",
        where=ChatOrigin("console", "c1", is_private=True),
        text=text,
        principal=EVA,
        external_id="the one text",
    )
    await asyncio.sleep(1)


# -- removals --------------------------------------------------------------------------------------


def _always_open(reader: Reader, question_id: str) -> Question:
    question = find_question(reader, question_id)
    return replace(question, state=QuestionState.OPEN, deadline_at=None)


def _no_state_check(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(answering, "find_question", _always_open)


def _checked_outside(patch: pytest.MonkeyPatch) -> None:
    """The state is looked at first, and the answer written in another transaction."""
    original = Questions.answer

    async def answer(self: Questions, question_id: str, *args: Any, **more: Any) -> Question:
        question = await self.get(question_id)
        if question.state is not QuestionState.OPEN:
            raise Conflict(f"answered by {question.answered_by}")
        await asyncio.sleep(0.1)
        return await original(self, question_id, *args, **more)

    patch.setattr(Questions, "answer", answer)
    patch.setattr(answering, "find_question", _always_open)


def _in_memory_only(patch: pytest.MonkeyPatch) -> None:
    """What a restart leaves of questions that live in memory."""
    original = Mailbox.load

    async def load(self: Mailbox) -> None:
        await self.database.write(
            lambda tx: (
                tx.execute("UPDATE questions SET state = 'cancelled' WHERE state = 'open'").rowcount
            )
        )
        await original(self)

    patch.setattr(Mailbox, "load", load)


PROOFS = (
    Proof(
        "an old button works once",
        "P8",
        an_old_button_works_once,
        Removal("questions in memory only", _in_memory_only),
    ),
    Proof(
        "a late press is called late",
        "P8",
        a_late_press_is_called_late,
        Removal("answers without a look at the state", _no_state_check),
    ),
    Proof(
        "of two presses one wins",
        "P8",
        of_two_presses_one_wins,
        Removal("the state looked at outside the transaction", _checked_outside),
    ),
)
