"""A plain text in a private conversation answers the one open question that takes any words: once,
over crashes and repeats, and never one that was a message before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agentsup.mailbox.lifecycle import answering
from agentsup.mailbox.questions import PlainAnswer
from agentsup.model.errors import BadRequest, Conflict, Forbidden
from agentsup.model.message import Lease
from agentsup.model.principal import Principal, PrincipalKind
from agentsup.model.question import APPROVAL, AnswerableBy, Question, QuestionState
from tests.support.mailbox_fixture import BOB, MailboxFixture

EVE = Principal(PrincipalKind.PERSON, "eve", "Eve")


def said(text: str, number: str = "1", by: Principal = BOB) -> PlainAnswer:
    return PlainAnswer("ann", "console", "c1", text, by, "console:ann:c1", number)


async def asked(rig: MailboxFixture, text: str = "What is your name?", **changes: Any) -> Question:
    """A turn in the conversation that has asked, and people have seen it."""
    await rig.put(f"about {text}", session_key=f"session of {text}")
    question = await rig.park(await rig.one(), **{"text": text, "options": (), **changes})
    await rig.db.write(
        lambda tx: tx.execute(
            "UPDATE outbox SET state = 'delivered', ended_at = 1 WHERE kind = 'question'"
        )
    )
    return question


async def skip(rig: MailboxFixture, question_id: str, by: Principal) -> Question:
    return await rig.db.write(
        lambda tx: answering.skip_tx(rig.mailbox.context, tx, question_id, by)
    )


async def state_of(rig: MailboxFixture, question: Question) -> tuple[QuestionState, str]:
    found = await rig.mailbox.questions.get(question.question_id)
    return found.state, found.answer


async def test_the_next_text_is_the_answer_and_counts_once(rig: MailboxFixture) -> None:
    question = await asked(rig)
    taken = await rig.mailbox.questions.answer_plain(said("Anna"))
    assert taken is not None
    assert await state_of(rig, question) == (QuestionState.ANSWERED, "Anna")
    # The platform sends it again, after a crash too, while the agent asks the next thing.
    await rig.finish(await rig.one())
    other = await asked(rig, "And your age?")
    await rig.reboot()
    assert await rig.mailbox.questions.answer_plain(said("Anna")) is None
    assert (await state_of(rig, other))[0] is QuestionState.OPEN
    again = await rig.put("Anna", source="console:ann:c1", external_id="1")
    assert (again.duplicate, again.message_id) == (True, question.message_id)


async def test_a_text_that_was_a_message_before_is_no_answer(rig: MailboxFixture) -> None:
    first = await rig.put("hello", source="console:ann:c1", external_id="1", session_key="other")
    question = await asked_behind(rig)
    assert await rig.mailbox.questions.answer_plain(said("hello")) is None
    assert (await state_of(rig, question))[0] is QuestionState.OPEN
    again = await rig.put("hello", source="console:ann:c1", external_id="1", session_key="other")
    assert (again.duplicate, again.message_id) == (True, first.message_id)


async def asked_behind(rig: MailboxFixture) -> Question:
    await rig.finish(await rig.one())
    return await asked(rig)


async def test_of_several_none_is_guessed(rig: MailboxFixture) -> None:
    one, two = await asked(rig), await asked(rig, "And your age?")
    assert await rig.mailbox.questions.answer_plain(said("Anna")) is None
    await rig.mailbox.questions.answer(two.question_id, "7", BOB)
    assert await rig.mailbox.questions.answer_plain(said("Anna", "2")) is not None
    assert await state_of(rig, one) == (QuestionState.ANSWERED, "Anna")


@pytest.mark.parametrize("text, taken", [("Anna", True), ("once", False), ("1", False)])
async def test_leave_is_never_given_by_chance(rig: MailboxFixture, text: str, taken: bool) -> None:
    """With a call that waits for leave beside it, the free question gets what is no word of that."""
    leave = await asked(
        rig, "run make?", kind=APPROVAL, options=("once", "deny"), tool="exec", call_id="c"
    )
    name = await asked(rig)
    assert (await rig.mailbox.questions.answer_plain(said(text)) is not None) == taken
    assert (await state_of(rig, leave))[0] is QuestionState.OPEN
    assert (await state_of(rig, name))[0] is (
        QuestionState.ANSWERED if taken else QuestionState.OPEN
    )


async def test_leave_alone_takes_its_own_words_only(rig: MailboxFixture) -> None:
    leave = await asked(
        rig, "run make?", kind=APPROVAL, options=("once", "deny"), tool="exec", call_id="c"
    )
    assert await rig.mailbox.questions.answer_plain(said("make me a sandwich")) is None
    assert (await state_of(rig, leave))[0] is QuestionState.OPEN


async def test_only_who_may_answer_answers(rig: MailboxFixture) -> None:
    question = await asked(rig, who=AnswerableBy.ASKER)
    assert await rig.mailbox.questions.answer_plain(said("Eve", by=EVE)) is None
    assert (await state_of(rig, question))[0] is QuestionState.OPEN
    assert (await rig.put("Eve", source="console:ann:c1", external_id="1")).duplicate is False


async def test_a_question_may_be_left_unanswered_and_a_late_answer_is_told_so(
    rig: MailboxFixture,
) -> None:
    question = await asked(rig, options=("yes", "no"))
    with pytest.raises(Forbidden):
        await skip(rig, question.question_id, replace(EVE, role=EVE.role.__class__(0)))
    closed = await skip(rig, question.question_id, BOB)
    assert (closed.state, closed.answered_by) == (QuestionState.EXPIRED, BOB.label)
    lease: Lease = await rig.one()
    assert lease.message.message_id == question.message_id, "its turn goes on"
    await rig.finish(lease)
    await rig.reboot()
    for late in (
        skip(rig, question.question_id, BOB),
        rig.mailbox.questions.answer(question.question_id, "yes", BOB),
    ):
        with pytest.raises(Conflict, match="left this question unanswered"):
            await late


async def test_leave_for_a_call_is_not_skipped(rig: MailboxFixture) -> None:
    leave = await asked(
        rig, "run make?", kind=APPROVAL, options=("once", "deny"), tool="exec", call_id="c"
    )
    with pytest.raises(BadRequest, match="must be answered"):
        await skip(rig, leave.question_id, BOB)


async def test_a_place_counts_its_own_session_and_names_whom_it_waits_for(
    rig: MailboxFixture,
) -> None:
    question = await asked(rig)
    ahead = await rig.put("first", session_key="session of What is your name?")
    assert (ahead.position, ahead.eta_s) == (0, None)
    assert ahead.waits_for is not None
    assert ahead.waits_for.question_id == question.question_id
    place = await rig.mailbox.messages.position(ahead.message_id)
    assert (place.position, place.eta_s, place.waits_for) == (0, None, ahead.waits_for)
    behind = await rig.put("second", session_key="session of What is your name?")
    assert behind.position == 1
    # Another conversation is answered at once: nothing of this holds it up.
    other = await rig.put("hello", conversation="c2")
    assert (other.position, other.waits_for) == (0, None)
