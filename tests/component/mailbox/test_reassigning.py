"""A message given to another agent: from every state it may have, once, and everything adds up."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentsup.mailbox.mail import new_mail
from agentsup.model.errors import Conflict, LoopDetected
from agentsup.model.message import DeliverTo, Lease, MessageKind
from agentsup.model.principal import OPERATOR
from tests.support.dispatcher_fixture import DispatcherFixture, agent_of


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[DispatcherFixture]:
    rig = await DispatcherFixture.open(tmp_path, ["ann", "ben", "cat"])
    yield rig
    await rig.close()


async def remove(rig: DispatcherFixture, name: str) -> None:
    """As the roster does it."""
    rig.agents.remove(name)
    await rig.mail.db.write(
        lambda tx: tx.execute(
            "INSERT INTO agents (agent_id, name, present, created_at) VALUES (?, ?, 0, 1)",
            (name, name),
        )
    )


async def letter(rig: DispatcherFixture) -> str:
    sent = await rig.dispatcher.send("ben", new_mail("the work"), caller=agent_of("ann"))
    return sent.message_id


async def test_everything_about_it_goes_along(rig: DispatcherFixture) -> None:
    first = await rig.mail.put("go", "ann")
    turn = await rig.mail.one("ann")
    old = await rig.mail.put(
        "the work",
        "ben",
        root_id=first.message_id,
        in_reply_to=first.message_id,
        path=("ann",),
        sender_agent_id="ann",
        principal=agent_of("ann"),
        session_key="t7",
        thread_id="t7",
        priority=1,
        expires_at=rig.mail.clock.now_ms() + 60_000,
        summary="what it is",
        deliver_to=DeliverTo(
            "mailbox",
            agent_id="ann",
            session_id=turn.message.session_id,
            then=turn.message.deliver_to,
        ),
    )
    before = await rig.mail.mailbox.messages.get(old.message_id)
    await remove(rig, "ben")
    given = await rig.dispatcher.reassign(old.message_id, "cat", OPERATOR)
    after = await rig.mail.mailbox.messages.get(given.message_id)
    for name in (
        *("parts", "principal", "kind", "lane", "priority", "deliver_to", "in_reply_to"),
        *("thread_id", "root_id", "path", "expires_at", "sender_agent_id", "summary", "epochs"),
    ):
        assert getattr(after, name) == getattr(before, name), name
    assert (after.agent_id, after.replay_of) == ("cat", old.message_id)
    threads = [each.message_id for each in await rig.mail.mailbox.messages.thread("t7")]
    assert threads == [old.message_id, given.message_id]
    assert await rig.mail.outbox("body ->> '$.outcome' IS NOT NULL") == [], "nobody is told an end"


async def test_a_parked_one_takes_its_question_along_to_the_grave(rig: DispatcherFixture) -> None:
    message_id = await letter(rig)
    question = await rig.mail.park(await rig.mail.one("ben"))
    await remove(rig, "ben")
    given = await rig.dispatcher.reassign(message_id, "cat", OPERATOR)
    assert (await rig.mail.mailbox.questions.get(question.question_id)).state.value == "cancelled"
    await rig.mail.finish(await rig.mail.one("cat"))
    assert await rig.mail.state_of(given.message_id) == "done"


async def test_a_dead_letter_lives_on_with_another(rig: DispatcherFixture) -> None:
    message_id = await letter(rig)
    for _ in range(2):
        await rig.mail.one("ben")
        await rig.mail.mailbox.leases.release_all("i1", culprits=None, text="boom")
    assert await rig.mail.state_of(message_id) == "dead"
    await remove(rig, "ben")
    assert [m.message_id for m in await rig.mail.mailbox.messages.list(removed=True)] == [
        message_id
    ]
    await rig.dispatcher.reassign(message_id, "cat", OPERATOR)
    assert await rig.mail.mailbox.failed.list() == []
    assert (await rig.mail.one("cat")).message.attempts == 1


async def test_a_lease_of_a_dead_daemon_is_no_work(rig: DispatcherFixture) -> None:
    message_id = await letter(rig)
    await rig.mail.one("ben")
    await remove(rig, "ben")
    with pytest.raises(Conflict, match="leased"):
        await rig.dispatcher.reassign(message_id, "cat", OPERATOR)
    await rig.reboot()
    given = await rig.dispatcher.reassign(message_id, "cat", OPERATOR)
    assert await rig.mail.state_of(given.message_id) == "queued"


async def test_who_waited_is_told_and_gets_the_answer_as_a_message(rig: DispatcherFixture) -> None:
    await rig.mail.put("go", "ann")
    turn = await rig.mail.one("ann")
    to = DeliverTo("mailbox", agent_id="ann", session_id=turn.message.session_id, waited=True)
    asked = await rig.mail.mailbox.queue.accept(
        rig.mail.new("the work", "ben", sender_agent_id="ann", deliver_to=to), waiter=turn
    )
    await remove(rig, "ben")
    await rig.dispatcher.reassign(asked.message_id, "cat", OPERATOR)
    assert await rig.mail.sql("SELECT 1 FROM waits") == []
    old = await rig.mail.mailbox.queue.wait_done(asked.message_id, 1)
    assert "given to cat" in old.error_text
    await rig.mail.finish(await rig.mail.one("cat"), "here it is")
    await rig.mail.finish(turn)
    reply: Lease = await rig.mail.one("ann")
    assert (reply.message.kind, reply.message.text) == (MessageKind.REPLY, "here it is")


async def test_a_chat_goes_on_with_the_bot_that_is_there(rig: DispatcherFixture) -> None:
    there = await rig.mail.put("for ben", "ben", conversation="there")
    moved = await rig.dispatcher.reassign(there.message_id, "cat", OPERATOR)
    answer = (await rig.mail.mailbox.messages.get(moved.message_id)).deliver_to
    assert answer.agent_id == "ben", "its bot is still there"
    gone = await rig.mail.put("for ben", "ben", conversation="gone")
    await remove(rig, "ben")
    moved = await rig.dispatcher.reassign(gone.message_id, "cat", OPERATOR)
    answer = (await rig.mail.mailbox.messages.get(moved.message_id)).deliver_to
    assert (answer.agent_id, answer.conversation) == ("cat", "gone")


async def test_what_is_refused_changes_nothing(rig: DispatcherFixture) -> None:
    message_id = await letter(rig)
    with pytest.raises(Conflict, match="already"):
        await rig.dispatcher.reassign(message_id, "ben", OPERATOR)
    with pytest.raises(LoopDetected):
        await rig.dispatcher.reassign(message_id, "ann", OPERATOR)
    run = await rig.mail.put("a run", "ben", kind=MessageKind.TASK)
    with pytest.raises(Conflict, match="run of a task"):
        await rig.dispatcher.reassign(run.message_id, "cat", OPERATOR)
    assert await rig.mail.state_of(message_id) == "queued"
    assert await rig.mail.sql("SELECT 1 FROM ledger WHERE source = 'reassign'") == []
