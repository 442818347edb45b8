"""Questions: durable, single use, with an honest word for those who come late."""

from __future__ import annotations

import pytest

from agentsup.model.errors import BadRequest, Conflict, NotFound
from agentsup.model.message import IN_STORE
from agentsup.model.question import QuestionState
from tests.support.mailbox_fixture import BOB, MailboxFixture


async def test_a_question_parks_its_turn_and_is_shown_where_the_message_came_from(
    rig: MailboxFixture,
) -> None:
    await rig.put(conversation="c7")
    question = await rig.park(await rig.one(), timeout_s=60.0)
    assert question.deadline_at == question.asked_at + 60_000
    assert await rig.outbox() == [("question", "console", "c7", "May I?")]
    assert [q.question_id for q in await rig.mailbox.questions.list()] == [question.question_id]
    types = [row[0] for row in await rig.sql("SELECT type FROM events ORDER BY seq DESC LIMIT 2")]
    assert types == ["question.asked", "message.parked"]


async def test_a_question_of_work_without_a_chat_goes_to_the_latest_conversation(
    rig: MailboxFixture,
) -> None:
    await rig.put("hi", conversation="c3")
    await rig.finish(await rig.one())
    await rig.put(deliver_to=IN_STORE, session_key="task:1", silent=True)
    await rig.park(await rig.one())
    assert (await rig.outbox("kind = 'question'"))[0][:3] == ("question", "console", "c3")


async def test_an_answer_resumes_the_turn_once_also_after_a_restart(rig: MailboxFixture) -> None:
    await rig.put()
    question = await rig.park(await rig.one())
    await rig.reboot()
    with pytest.raises(BadRequest):
        await rig.mailbox.questions.answer(question.question_id, "perhaps", BOB)
    answered = await rig.mailbox.questions.answer(question.question_id, "yes", BOB)
    assert (answered.state, answered.answer, answered.answered_by) == (
        QuestionState.ANSWERED,
        "yes",
        "Bob",
    )
    with pytest.raises(Conflict, match=r"was answered by Bob at 20.* UTC: yes"):
        await rig.mailbox.questions.answer(question.question_id, "no", BOB)
    lease = await rig.one()
    assert lease.resumed
    assert await rig.mailbox.questions.list() == []


async def test_a_deadline_resumes_without_an_answer(rig: MailboxFixture) -> None:
    await rig.put()
    question = await rig.park(await rig.one(), timeout_s=60.0)
    assert await rig.mailbox.deadlines.next() == question.deadline_at
    rig.later(61)
    with pytest.raises(Conflict, match="expired at"):
        await rig.mailbox.questions.answer(question.question_id, "yes", BOB)
    assert (await rig.mailbox.deadlines.expire()).question_ids == (question.question_id,)
    assert (await rig.mailbox.questions.get(question.question_id)).state is QuestionState.EXPIRED
    with pytest.raises(Conflict, match="expired at"):
        await rig.mailbox.questions.answer(question.question_id, "yes", BOB)
    assert (await rig.one()).resumed


async def test_stopping_withdraws_the_question_shown_or_not(rig: MailboxFixture) -> None:
    await rig.put()
    question = await rig.park(await rig.one())
    await rig.mailbox.control.stop("agent:ann", BOB)
    with pytest.raises(Conflict, match="withdrawn"):
        await rig.mailbox.questions.answer(question.question_id, "yes", BOB)
    assert await rig.outbox("kind = 'question' AND state = 'pending'") == []
    assert await rig.claim() == []


async def test_free_text_and_unknown_questions(rig: MailboxFixture) -> None:
    await rig.put()
    question = await rig.park(await rig.one(), options=())
    assert (
        await rig.mailbox.questions.answer(question.question_id, "anything", BOB)
    ).answer == "anything"
    with pytest.raises(NotFound):
        await rig.mailbox.questions.answer("q_none", "x", BOB)
