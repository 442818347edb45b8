"""Order, levels, lanes and aging, as claims see them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from agentsup.model.message import LaneName, MessageOutcome, MessageState, Priority
from tests.support.mailbox_fixture import BOB, WIDE, MailboxFixture


async def texts(rig: MailboxFixture, **lanes: int) -> list[str]:
    free = {LaneName(name): count for name, count in lanes.items()} if lanes else WIDE
    return [lease.message.text for lease in await rig.claim(free=free)]


async def test_a_session_runs_strictly_in_order_and_one_at_a_time(rig: MailboxFixture) -> None:
    await rig.put("1", priority=Priority.LOW)
    await rig.put("2", priority=Priority.CRITICAL)
    await rig.put("3")
    for expected in "123":
        lease = await rig.one()
        assert lease.message.text == expected
        assert await rig.claim() == []
        await rig.finish(lease)


async def test_a_parked_or_delayed_message_holds_its_session(rig: MailboxFixture) -> None:
    await rig.put("1")
    await rig.put("2")
    question = await rig.park(await rig.one())
    assert await rig.claim() == []
    await rig.mailbox.questions.answer(question.question_id, "yes", BOB)
    await rig.mailbox.leases.retry(await rig.one(), code="net", text="timeout")
    assert await rig.claim() == []
    rig.later(60)
    assert await texts(rig) == ["1"]


async def test_a_session_stands_at_its_best_level(rig: MailboxFixture) -> None:
    await rig.put("low", conversation="a", priority=Priority.LOW)
    await rig.put("normal", conversation="b")
    await rig.put("critical", conversation="a", priority=Priority.CRITICAL)
    assert await texts(rig, interactive=1) == ["low"]


async def test_old_messages_rise_a_level_each_half_hour(rig: MailboxFixture) -> None:
    await rig.put("old and low", conversation="a", priority=Priority.LOW)
    rig.later(29 * 60)
    await rig.put("young and normal", conversation="b", priority=Priority.NORMAL)
    await rig.put("young and high", conversation="c", priority=Priority.HIGH)
    assert await texts(rig, interactive=1) == ["young and high"]
    rig.later(61)
    assert await texts(rig, interactive=1) == ["old and low"]
    assert await texts(rig, interactive=1) == ["young and normal"]


async def test_lanes_have_slots_of_their_own(rig: MailboxFixture) -> None:
    for i in range(3):
        await rig.put(f"chat{i}", conversation=f"c{i}")
        await rig.put(f"peer{i}", session_key=f"ia-{i}", lane=LaneName.PEER)
        await rig.put(f"task{i}", session_key=f"task:{i}", lane=LaneName.BACKGROUND)
    assert await texts(rig, interactive=2, background=1) == ["chat0", "task0", "chat1"]
    assert await texts(rig, peer=9) == ["peer0", "peer1", "peer2"]
    assert await texts(rig, interactive=0) == []


async def test_agents_do_not_see_each_other(rig: MailboxFixture) -> None:
    await rig.put(agent="ben")
    assert await rig.claim("ann") == []
    assert len(await rig.claim("ben")) == 1


async def test_reprioritising_moves_the_session(rig: MailboxFixture) -> None:
    await rig.put("first", conversation="a")
    late = await rig.put("late", conversation="b")
    changed = await rig.mailbox.queue.reprioritise(late.message_id, Priority.HIGH)
    assert changed.priority is Priority.HIGH
    assert await texts(rig, interactive=1) == ["late"]


async def test_delayed_messages_start_when_they_are_due(rig: MailboxFixture) -> None:
    due_at = rig.clock.now_ms() + 5000
    await rig.put(not_before=due_at)
    assert await rig.claim() == []
    assert rig.due_at == due_at
    rig.later(5)
    assert len(await rig.claim()) == 1


async def test_what_runs_does_not_expire(rig: MailboxFixture) -> None:
    expires_at = rig.clock.now_ms() + 1000
    await rig.put(expires_at=expires_at)
    assert await rig.mailbox.deadlines.next() == expires_at
    lease = await rig.one()
    rig.later(2)
    assert (await rig.mailbox.deadlines.expire()).message_ids == ()
    await rig.finish(lease)
    assert (await rig.mailbox.messages.get(lease.message.message_id)).outcome is MessageOutcome.OK


async def test_the_next_in_the_session_runs_after_an_expired_head(rig: MailboxFixture) -> None:
    first = await rig.put("1", expires_at=rig.clock.now_ms() + 1000)
    await rig.put("2")
    rig.later(2)
    assert await rig.claim() == []
    message = await rig.mailbox.messages.get(first.message_id)
    assert (message.state, message.outcome, message.error_code) == (
        MessageState.DONE,
        MessageOutcome.FAILED,
        "expired",
    )
    assert await texts(rig) == ["2"]
    assert [row[0] for row in await rig.outbox()] == ["notice"]


async def test_expire_closes_queued_messages_without_a_claim(rig: MailboxFixture) -> None:
    accepted = await rig.put(expires_at=rig.clock.now_ms() + 1000)
    assert (await rig.mailbox.deadlines.expire()).message_ids == ()
    rig.later(1)
    assert (await rig.mailbox.deadlines.expire()).message_ids == (accepted.message_id,)
    assert await rig.mailbox.deadlines.next() is None


async def finish(rig: MailboxFixture) -> None:
    await rig.finish(await rig.one())


async def release(rig: MailboxFixture) -> None:
    await rig.mailbox.leases.release(await rig.one())


async def answer(rig: MailboxFixture) -> None:
    question = await rig.park(await rig.one())
    await rig.mailbox.questions.answer(question.question_id, "yes", BOB)


async def crash(rig: MailboxFixture) -> None:
    await rig.one()
    await rig.mailbox.leases.release_all("i1", culprits=None, text="boom")


@pytest.mark.parametrize("move", [finish, release, answer, crash])
async def test_whatever_makes_work_claimable_wakes_the_agent(
    rig: MailboxFixture, move: Callable[[MailboxFixture], Awaitable[None]]
) -> None:
    woken: list[str] = []
    stop_listening = rig.db.listen("agent:ann", lambda: woken.append("ann"))
    await rig.put()
    assert woken == ["ann"]
    woken.clear()
    await move(rig)
    assert woken[-1:] == ["ann"]
    stop_listening()
