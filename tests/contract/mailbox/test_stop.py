"""Stop means stop: nothing in the scope runs, returns or comes back, also after a restart."""

from __future__ import annotations

import asyncio

import pytest

from agentsup.model.errors import BadRequest, LeaseLost, StoreUnavailable
from agentsup.model.message import IN_STORE, DeliverTo, MessageKind, MessageState
from tests.support.mailbox_fixture import BOB, MailboxFixture


async def busy(rig: MailboxFixture, agent: str = "ann") -> None:
    """One leased, one parked, two queued."""
    await rig.put("run", agent, conversation="r")
    await rig.put("ask", agent, conversation="a")
    for lease in await rig.claim(agent):
        if lease.message.text == "ask":
            await rig.park(lease)
    await rig.put("wait", agent, conversation="a")
    await rig.put("wait", agent, conversation="q")


@pytest.mark.parametrize("scope,stopped", [("all", ("ann", "ben")), ("agent:ann", ("ann",))])
async def test_exact_counts_and_nothing_left(
    rig: MailboxFixture, scope: str, stopped: tuple[str, ...]
) -> None:
    await busy(rig, "ann")
    await busy(rig, "ben")
    counts = await rig.mailbox.control.stop(scope, BOB)
    n = len(stopped)
    assert (counts.running, counts.parked, counts.queued, counts.epoch) == (n, n, 2 * n, 1)
    assert len(counts.message_ids) == 2 * n
    for agent in ("ann", "ben"):
        states = (await rig.mailbox.messages.counts())[agent]
        assert states["cancelled"] == (4 if agent in stopped else 0)
    await rig.reboot()
    for agent in stopped:
        assert await rig.claim(agent) == []
        await rig.put("after", agent)
        assert (await rig.one(agent)).message.text == "after"
    assert (await rig.mailbox.control.stop(scope, BOB)).epoch == 2


async def test_one_session_alone(rig: MailboxFixture) -> None:
    await rig.put("1")
    await rig.put("2")
    other = await rig.put("other", conversation="c2")
    lease = next(x for x in await rig.claim() if x.message.text == "1")
    counts = await rig.mailbox.control.stop(f"session:{lease.message.session_id}", BOB)
    assert (counts.running, counts.queued) == (1, 1)
    assert await rig.state_of(other.message_id) == "leased"
    with pytest.raises(BadRequest):
        await rig.mailbox.control.stop("everything", BOB)


async def test_what_waits_for_another_attempt_is_stopped_too(rig: MailboxFixture) -> None:
    await rig.put("1")
    await rig.put("2")
    lease = await rig.one()
    await rig.mailbox.leases.retry(lease, code="net", text="timeout")
    counts = await rig.mailbox.control.stop(f"session:{lease.message.session_id}", BOB)
    assert (counts.running, counts.queued) == (0, 2)
    assert await rig.state_of(lease.message.message_id) == "cancelled"


async def test_interrupt_ends_the_turn_and_leaves_the_queue(rig: MailboxFixture) -> None:
    first = await rig.put("1")
    await rig.put("2")
    lease = await rig.one()
    cancelled = await rig.mailbox.control.interrupt(lease.message.session_id, BOB)
    assert cancelled is not None
    assert (cancelled.message_id, cancelled.was) == (first.message_id, MessageState.LEASED)
    assert (await rig.one()).message.text == "2"
    assert await rig.mailbox.control.interrupt("ses_none", BOB) is None


async def test_one_note_per_asker_and_none_for_those_who_are_stopped(rig: MailboxFixture) -> None:
    for text in "123":
        await rig.put(text)
    await rig.put(conversation="c2")
    await rig.put(deliver_to=IN_STORE, session_key="task:1", silent=True)
    await rig.put(
        "cid asks",
        kind=MessageKind.CHAT,
        session_key="ia-cid",
        silent=True,
        deliver_to=DeliverTo("mailbox", agent_id="cid", session_id=""),
    )
    await rig.mailbox.control.stop("agent:ann", BOB)
    notes = [row for row in await rig.outbox() if row[0] == "notice"]
    assert [(row[2], row[3]) for row in notes] == [
        ("c1", "3 messages were stopped by Bob."),
        ("c2", "The message was stopped by Bob."),
    ]
    reply = await rig.one("cid")
    assert reply.message.kind is MessageKind.REPLY
    assert "could not answer" in reply.message.text
    await rig.mailbox.control.stop("all", BOB)
    assert await rig.claim("cid") == []


async def test_a_stop_in_memory_already_holds_back_claims_and_completions(
    rig: MailboxFixture,
) -> None:
    await rig.put("running", conversation="a")
    lease = await rig.one()
    await rig.put("waiting", conversation="b")
    rig.mailbox.context.epochs.raise_now("agent:ann")
    assert await rig.claim() == []
    with pytest.raises(LeaseLost):
        await rig.finish(lease)
    counts = await rig.mailbox.control.stop("agent:ann", BOB)
    assert (counts.running, counts.queued, counts.epoch) == (1, 1, 1)
    await rig.put("after")
    assert len(await rig.claim()) == 1


async def test_a_claim_on_its_way_is_overtaken_by_the_stop(rig: MailboxFixture) -> None:
    await rig.put()
    claiming = asyncio.ensure_future(rig.claim())
    stopping = asyncio.ensure_future(rig.mailbox.control.stop("all", BOB))
    leases, counts = await asyncio.gather(claiming, stopping)
    assert leases == []
    assert counts.running + counts.queued + counts.parked == 1


async def test_a_stop_that_could_not_be_written_is_carried_out_by_the_next_claim(
    rig: MailboxFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await rig.put("before")
    write = rig.db.write

    async def full(*args: object, **kwargs: object) -> None:
        raise StoreUnavailable("disk full")

    monkeypatch.setattr(rig.db, "write", full)
    with pytest.raises(StoreUnavailable):
        await rig.mailbox.control.stop("all", BOB)
    monkeypatch.setattr(rig.db, "write", write)
    rig.later(1)
    await rig.put("after", conversation="c2")
    assert [lease.message.text for lease in await rig.claim()] == ["after"]
    assert await rig.state_of(first.message_id) == "cancelled"
    assert await rig.sql("SELECT scope, counter FROM epochs") == [("all", 1)]


async def test_cancelling_one_message_tells_its_asker(rig: MailboxFixture) -> None:
    first = await rig.put("1")
    second = await rig.put("2")
    cancelled = await rig.mailbox.control.cancel(second.message_id, BOB)
    assert (cancelled.was, cancelled.session_id) == (MessageState.QUEUED, first.session_id)
    assert [row[3] for row in await rig.outbox()] == ["Cancelled by Bob."]


async def test_epochs_survive_and_merge(rig: MailboxFixture) -> None:
    await rig.mailbox.control.stop("agent:ann", BOB)
    await rig.mailbox.control.stop("agent:ann", BOB)
    await rig.reboot()
    assert rig.mailbox.context.epochs.current("agent:ann") == 2
    rig.mailbox.context.epochs.merge("agent:ann", 9)
    assert (await rig.mailbox.control.stop("agent:ann", BOB)).epoch == 10
