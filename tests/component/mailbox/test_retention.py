"""Old messages go by the rules; counts, keys and dead letters stay right."""

from __future__ import annotations

from agentsup.mailbox.queue import retention_rules
from agentsup.store import prune
from tests.support.mailbox_fixture import BOB, MailboxFixture

DAY_S = 86_400


async def test_ended_messages_go_and_everything_still_adds_up(rig: MailboxFixture) -> None:
    for i in range(5):
        await rig.put(idempotency_key=f"k{i}")
        await rig.finish(await rig.one())
    await rig.put("asked")
    question = await rig.park(await rig.one())
    await rig.mailbox.questions.answer(question.question_id, "yes", BOB)
    await rig.finish(await rig.one())
    letter = await rig.put("letter")
    for _ in range(2):
        await rig.one()
        await rig.mailbox.leases.release_all("i1", culprits=None, text="boom")
    waiting = await rig.put("waiting")
    rig.later(90 * DAY_S + 60)
    young = await rig.put("young", conversation="c2")

    deleted = await prune(rig.db, retention_rules(keep_days=90), clock=rig.clock, pause_s=0)
    assert (deleted["messages"], deleted["questions"], deleted["ledger"]) == (6, 1, 0)
    left = await rig.sql("SELECT message_id FROM messages ORDER BY seq")
    assert left == [(x.message_id,) for x in (letter, waiting, young)]
    await rig.check()
    _, sums = await rig.mailbox.messages.conservation()
    assert (sums["accepted"], sums["pruned"], sums["dead"], sums["queued"]) == (9, 6, 1, 2)
    assert (await rig.put(idempotency_key="k0")).duplicate

    rig.later(2 * DAY_S)
    deleted = await prune(rig.db, retention_rules(keep_days=90), clock=rig.clock, pause_s=0)
    assert deleted["ledger"] == 5
    assert not (await rig.put(idempotency_key="k0")).duplicate
