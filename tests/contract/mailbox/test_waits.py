"""Waiting: answers wake, patience ends, and a wait that would never end is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentsup.model.errors import LeaseLost, NotFound, TimedOut, WouldDeadlock
from agentsup.model.message import DeliverTo, Lease, MessageState, NewMessage
from agentsup.model.principal import OPERATOR
from tests.support.mailbox_fixture import BOB, MailboxFixture


def ask(rig: MailboxFixture, lease: Lease, to: str, **changes: Any) -> NewMessage:
    """What a turn asks another agent while it waits."""
    asker = lease.message
    changes.setdefault("session_key", f"ia-{asker.agent_id}")
    return rig.new(
        f"{asker.agent_id} asks {to}",
        to,
        sender_agent_id=asker.agent_id,
        in_reply_to=asker.message_id,
        root_id=asker.root_id,
        path=(*asker.path, asker.agent_id),
        deliver_to=DeliverTo(
            "mailbox", agent_id=asker.agent_id, session_id=asker.session_id, waited=True
        ),
        silent=True,
        **changes,
    )


async def chat_with(rig: MailboxFixture, *agents: str) -> list[Lease]:
    leases = []
    for agent in agents:
        await rig.put(agent=agent)
        leases.append(await rig.one(agent))
    return leases


async def test_a_waiter_is_woken_by_the_end(rig: MailboxFixture) -> None:
    accepted = await rig.put()
    waiting = asyncio.gather(
        *(rig.mailbox.queue.wait_done(accepted.message_id, 10) for _ in range(3))
    )
    await rig.finish(await rig.one(), "42")
    assert [message.result_text for message in await waiting] == ["42"] * 3
    assert (await rig.mailbox.queue.wait_done(accepted.message_id, 10)).state is MessageState.DONE


async def test_patience_ends_and_the_message_goes_on(rig: MailboxFixture) -> None:
    accepted = await rig.put()
    with pytest.raises(TimedOut) as ended:
        await rig.mailbox.queue.wait_done(accepted.message_id, 0.01)
    assert ended.value.facts["message_id"] == accepted.message_id
    assert await rig.state_of(accepted.message_id) == "queued"
    with pytest.raises(NotFound):
        await rig.mailbox.queue.wait_done("msg_none", 1)


async def test_two_turns_that_wait_for_each_other(rig: MailboxFixture) -> None:
    await rig.db.write(
        lambda tx: (
            tx.execute(
                "INSERT INTO agents (agent_id, name, created_at) VALUES ('ann', 'Ann', 0)"
            ).rowcount
        )
    )
    ann, ben = await chat_with(rig, "ann", "ben")
    # Each joins the other's own conversation, so each request queues behind the turn that waits.
    await rig.mailbox.queue.accept(ask(rig, ann, "ben", session_key="chat:console:c1"), waiter=ann)
    before = await rig.sql("SELECT COUNT(*) FROM messages")
    with pytest.raises(WouldDeadlock) as refused:
        await rig.mailbox.queue.accept(
            ask(rig, ben, "ann", session_key="chat:console:c1"), waiter=ben
        )
    assert refused.value.facts["cycle"] == ["ben", "Ann", "ben"]
    assert await rig.sql("SELECT COUNT(*) FROM messages") == before
    await rig.finish(ben)
    await rig.finish(await rig.one("ben"))
    await rig.finish(ann)


async def test_the_triangle_is_refused_at_its_last_edge(rig: MailboxFixture) -> None:
    ann, ben, cid = await chat_with(rig, "ann", "ben", "cid")
    own = "chat:console:c1"
    await rig.mailbox.queue.accept(ask(rig, ann, "ben", session_key=own), waiter=ann)
    await rig.mailbox.queue.accept(ask(rig, ben, "cid", session_key=own), waiter=ben)
    with pytest.raises(WouldDeadlock) as refused:
        await rig.mailbox.queue.accept(ask(rig, cid, "ann", session_key=own), waiter=cid)
    assert refused.value.facts["cycle"] == ["cid", "ann", "ben", "cid"]
    await rig.finish(cid)
    await rig.finish(await rig.one("cid"))


async def test_a_triangle_over_peer_sessions_has_no_cycle(rig: MailboxFixture) -> None:
    turns = await chat_with(rig, "ann", "ben", "cid")
    for turn, to in zip(turns, ("ben", "cid", "ann"), strict=True):
        await rig.mailbox.queue.accept(ask(rig, turn, to), waiter=turn)
    for agent in ("ann", "ben", "cid"):
        await rig.finish(await rig.one(agent))
    for turn in turns:
        await rig.finish(turn)
    assert await rig.sql("SELECT * FROM waits") == []


async def test_a_cycle_through_a_message_that_started_later(rig: MailboxFixture) -> None:
    ann, ben = await chat_with(rig, "ann", "ben")
    await rig.put("ahead", "ben", session_key="ia-ann")
    asked = await rig.mailbox.queue.accept(ask(rig, ann, "ben"), waiter=ann)
    ahead = await rig.one("ben")
    with pytest.raises(WouldDeadlock):
        await rig.wait_for(ahead, ann.message.message_id)
    await rig.wait_for(ahead, ben.message.message_id)
    with pytest.raises(WouldDeadlock):
        await rig.wait_for(ben, asked.message_id)
    await rig.finish(ben)
    await rig.finish(ahead)
    await rig.finish(await rig.one("ben"))


async def test_waiting_for_oneself_and_for_what_has_ended(rig: MailboxFixture) -> None:
    (ann,) = await chat_with(rig, "ann")
    with pytest.raises(WouldDeadlock):
        await rig.wait_for(ann, ann.message.message_id)
    behind = await rig.put()
    with pytest.raises(WouldDeadlock):
        await rig.wait_for(ann, behind.message_id)
    await rig.put(agent="ben")
    ben = await rig.one("ben")
    await rig.finish(ben)
    await rig.wait_for(ann, ben.message.message_id)
    assert await rig.sql("SELECT * FROM waits") == []


@pytest.mark.parametrize("how", ["finish", "retry", "release", "park", "crash", "stop", "boot"])
async def test_an_edge_ends_with_the_lease_of_its_waiter(rig: MailboxFixture, how: str) -> None:
    ann, ben = await chat_with(rig, "ann", "ben")
    await rig.wait_for(ann, ben.message.message_id)
    if how == "finish":
        await rig.finish(ann)
    elif how == "retry":
        await rig.mailbox.leases.retry(ann, code="net", text="x")
    elif how == "release":
        await rig.mailbox.leases.release(ann)
    elif how == "park":
        await rig.park(ann)
    elif how == "crash":
        await rig.mailbox.leases.release_all("i1", culprits=None, text="boom")
        ben = await rig.one("ben")
    elif how == "stop":
        await rig.mailbox.control.stop("agent:ann", OPERATOR)
    else:
        await rig.reboot()
        ben = await rig.one("ben")
    await rig.wait_for(ben, (await rig.put(conversation="c2")).message_id)
    if how in ("retry", "release", "park"):
        await rig.wait_for(ben, ann.message.message_id)


async def test_a_lost_turn_can_neither_wait_nor_ask(rig: MailboxFixture) -> None:
    ann, ben = await chat_with(rig, "ann", "ben")
    await rig.mailbox.control.stop("agent:ann", BOB)
    with pytest.raises(LeaseLost):
        await rig.wait_for(ann, ben.message.message_id)
    with pytest.raises(LeaseLost):
        await rig.mailbox.queue.accept(ask(rig, ann, "cid"), waiter=ann)
    with pytest.raises(LeaseLost):
        await rig.mailbox.queue.accept(ask(rig, ann, "cid"))
    assert await rig.claim("cid") == []


async def test_a_repeated_request_waits_for_the_message_there_is(rig: MailboxFixture) -> None:
    (ann,) = await chat_with(rig, "ann")
    new = ask(rig, ann, "ben", idempotency_key="k")
    first = await rig.mailbox.queue.accept(new)
    again = await rig.mailbox.queue.accept(new, waiter=ann)
    assert again.duplicate
    assert await rig.sql("SELECT waiter_id, target_id FROM waits") == [
        (ann.message.message_id, first.message_id)
    ]
