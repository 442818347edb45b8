"""Where results go: to people, to the asking agent's mailbox, or nowhere but the row."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from agentsup.mailbox.messages import Completion
from agentsup.model.message import (
    IN_STORE,
    DeliverTo,
    Lease,
    MessageKind,
    MessageOutcome,
    MessageState,
    Part,
)
from agentsup.model.principal import OPERATOR, Principal, PrincipalKind
from tests.support.mailbox_fixture import BOB, MailboxFixture

HERE = DeliverTo("chat", agent_id="ann", channel="console", conversation="c1")


async def asked(rig: MailboxFixture, **to: Any) -> tuple[Lease, Lease]:
    """Ann's turn, and Ben's turn on what it asked without waiting."""
    await rig.put("plan my week")
    ann = await rig.one("ann")
    await rig.put(
        "what about monday?",
        "ben",
        session_key="ia-ann",
        deliver_to=DeliverTo(
            "mailbox", agent_id="ann", session_id=ann.message.session_id, then=HERE, **to
        ),
        path=("ann",),
        sender_agent_id="ann",
        in_reply_to=ann.message.message_id,
        root_id=ann.message.root_id,
        silent=True,
    )
    return ann, await rig.one("ben")


async def test_answers_files_and_failures_reach_the_chat(rig: MailboxFixture) -> None:
    await rig.put()
    files = (Part("file", path="out/plan.pdf", name="plan.pdf"),)
    await rig.mailbox.leases.complete(
        await rig.one(), Completion(MessageOutcome.OK, "here", parts=files)
    )
    await rig.put()
    await rig.fail(await rig.one(), "the model is gone")
    rows = await rig.sql("SELECT kind, body, part_no FROM outbox ORDER BY outbox_id")
    assert [(kind, part_no) for kind, _, part_no in rows] == [
        ("answer", 0),
        ("file", 1),
        ("notice", 0),
    ]
    assert json.loads(rows[0][1]) == {"text": "here", "outcome": "ok"}
    assert json.loads(rows[1][1]) == {"path": "out/plan.pdf", "name": "plan.pdf"}
    assert json.loads(rows[2][1]) == {
        "text": "the model is gone",
        "outcome": "failed",
        "code": "engine_failed",
    }


async def test_each_part_carries_the_language_of_whose_message_it_concerns(
    rig: MailboxFixture,
) -> None:
    uli = Principal(PrincipalKind.PERSON, "uli", "Uli", language="de-AT")
    await rig.put(principal=uli)
    question = await rig.park(await rig.one())
    await rig.mailbox.questions.answer(question.question_id, "yes", uli)
    await rig.finish(await rig.one())
    accepted = await rig.put(principal=uli)
    await rig.mailbox.control.cancel(accepted.message_id, uli)
    rows = await rig.sql("SELECT kind, body FROM outbox ORDER BY outbox_id")
    assert [kind for kind, _ in rows] == ["question", "answer", "notice"]
    assert {json.loads(body)["language"] for _, body in rows} == {"de-AT"}
    assert json.loads(rows[2][1])["text"] == "Abgebrochen von Uli."
    assert (await rig.mailbox.messages.get(accepted.message_id)).principal == uli


async def test_the_engine_state_of_the_session_moves_with_the_completion(
    rig: MailboxFixture,
) -> None:
    await rig.put()
    completion = Completion(MessageOutcome.OK, "hi", engine="llm", engine_state=b"state")
    await rig.mailbox.leases.complete(await rig.one(), completion)
    await rig.put()
    await rig.finish(await rig.one())
    assert await rig.sql("SELECT engine, engine_state FROM sessions") == [("llm", b"state")]


async def test_an_answer_to_an_agent_is_a_reply_in_its_session(rig: MailboxFixture) -> None:
    ann, ben = await asked(rig)
    await rig.finish(ann)
    await rig.finish(ben, "monday is free")
    reply = (await rig.one("ann")).message
    assert (reply.kind, reply.session_id) == (MessageKind.REPLY, ann.message.session_id)
    assert (reply.text, reply.principal.name) == ("monday is free", "ben")
    assert (reply.in_reply_to, reply.root_id) == (ben.message.message_id, ann.message.root_id)
    assert (reply.path, reply.deliver_to) == ((), HERE)


async def test_a_failure_is_said_to_be_one(rig: MailboxFixture) -> None:
    ann, ben = await asked(rig)
    await rig.finish(ann)
    await rig.fail(ben, "no model")
    reply = (await rig.one("ann")).message
    assert "ben could not answer" in reply.text
    assert "no model" in reply.text


@pytest.mark.parametrize("restart", [False, True])
async def test_a_stop_of_the_askers_session_leaves_the_answer_to_come(
    rig: MailboxFixture, restart: bool
) -> None:
    ann, ben = await asked(rig)
    await rig.mailbox.control.stop(f"session:{ann.message.session_id}", BOB)
    if restart:
        await rig.reboot()
        ben = await rig.one("ben")
    await rig.finish(ben, "in time")
    assert (await rig.one("ann")).message.text == "in time"


@pytest.mark.parametrize("scope", ["all", "agent:ann"])
@pytest.mark.parametrize("restart", [False, True])
async def test_a_reply_to_an_asker_that_was_stopped_is_refused_and_said_to_be(
    rig: MailboxFixture, scope: str, restart: bool
) -> None:
    _, ben = await asked(rig)
    if scope == "all":
        rig.mailbox.context.epochs.merge("all", 1)  # told by another node: ben's turn here goes on
    else:
        await rig.mailbox.control.stop(scope, BOB)
        if restart:
            await rig.reboot()
            ben = await rig.one("ben")
    await rig.finish(ben, "too late")
    assert await rig.claim("ann") == []
    replies = await rig.sql("SELECT 1 FROM messages WHERE kind = 'reply'")
    assert replies == []
    notes = [row[3] for row in await rig.outbox() if "dropped" in row[3]]
    assert len(notes) == 1


async def test_a_request_after_the_stop_gets_its_reply(rig: MailboxFixture) -> None:
    await rig.mailbox.control.stop("agent:ann", BOB)
    _, ben = await asked(rig)
    await rig.finish(ben, "in time")
    assert await rig.sql("SELECT state FROM messages WHERE kind = 'reply'") == [("queued",)]


async def test_a_waited_answer_stays_in_the_row(rig: MailboxFixture) -> None:
    _, ben = await asked(rig, waited=True)
    await rig.finish(ben, "42")
    assert await rig.sql("SELECT 1 FROM messages WHERE kind = 'reply'") == []
    assert (await rig.mailbox.queue.wait_done(ben.message.message_id, 5)).result_text == "42"


async def test_a_reply_to_an_agent_that_asked_outside_a_turn_reaches_its_people(
    rig: MailboxFixture,
) -> None:
    await rig.put("hi", "ann", conversation="home")
    await rig.finish(await rig.one("ann"))
    await rig.put(
        "from a program",
        "ben",
        session_key="ia-ann",
        deliver_to=DeliverTo("mailbox", agent_id="ann"),
    )
    await rig.finish(await rig.one("ben"), "result")
    reply = await rig.one("ann")
    await rig.finish(reply, "Ben says: result")
    assert (await rig.outbox("kind = 'answer'"))[-1] == (
        "answer",
        "console",
        "home",
        "Ben says: result",
    )


async def test_results_for_programs_and_silent_chats_stay_in_the_row(rig: MailboxFixture) -> None:
    await rig.put(deliver_to=IN_STORE, silent=True)
    await rig.finish(await rig.one(), "42")
    await rig.put(deliver_to=DeliverTo("chat", channel="console", conversation="c1", silent=True))
    await rig.finish(await rig.one(), "43")
    assert await rig.outbox() == []
    results = [
        message.result_text for message in await rig.mailbox.messages.list(state=MessageState.DONE)
    ]
    assert results == ["43", "42"]


async def test_a_dropped_letter_tells_nobody_twice(rig: MailboxFixture) -> None:
    accepted = await rig.put()
    for _ in range(2):
        await rig.one()
        await rig.mailbox.leases.release_all("i1", culprits=None, text="boom")
    assert len(await rig.outbox()) == 1
    await rig.mailbox.failed.drop(accepted.message_id, OPERATOR)
    assert len(await rig.outbox()) == 1
    message = await rig.mailbox.messages.get(accepted.message_id)
    assert (message.state, message.error_code) == (MessageState.CANCELLED, "dropped")


async def test_an_answer_without_words_is_told_as_one(rig: MailboxFixture) -> None:
    await rig.put(principal=replace(BOB, language="de"))
    await rig.finish(await rig.one(), " \n")
    await rig.put()
    await rig.mailbox.leases.complete(
        await rig.one(),
        Completion(MessageOutcome.OK, "", parts=(Part("file", path="a", name="a"),)),
    )
    assert [(kind, text) for kind, _, _, text in await rig.outbox()] == [
        ("answer", "(Der Agent hat ohne einen Text geendet. Frag ihn, was daraus wurde.)"),
        ("file", None),
    ]


@pytest.mark.parametrize("kind, told", [("slot", 0), ("task", 1)])
async def test_a_schedule_with_nothing_new_is_silent(
    rig: MailboxFixture, kind: str, told: int
) -> None:
    """And a task that somebody has just asked for is not."""
    accepted = await rig.put("look around", kind=MessageKind.TASK, summary="the look around")
    await rig.db.write(
        lambda tx: tx.execute(
            "INSERT INTO runs (run_id, task_id, kind, agent_id, created_at)"
            " VALUES (?, 'task_1', ?, 'ann', 0)",
            (accepted.message_id, kind),
        )
    )
    await rig.finish(await rig.one(), "")
    assert len(await rig.outbox()) == told
