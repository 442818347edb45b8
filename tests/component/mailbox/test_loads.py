"""The loads in memory: those of the rows at every instant, whoever fails and whatever comes back.

Every test that ends with ``MailboxFixture.check`` asks the same.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agentsup.mailbox.lifecycle import claim
from agentsup.mailbox.mail import new_mail
from agentsup.mailbox.messages.values import Claimed, Completion, MailboxLimits
from agentsup.model.message import LaneName, Lease, MessageOutcome
from agentsup.model.principal import OPERATOR
from agentsup.store import Tx
from tests.support.dispatcher_fixture import DispatcherFixture, agent_of
from tests.support.mailbox_fixture import MailboxFixture


async def test_what_is_rolled_back_is_no_load(rig: MailboxFixture) -> None:
    await rig.put("stands")
    before = dict(rig.mailbox.context.loads.last_at)
    rig.later(1)

    def refused(tx: Tx) -> None:
        rig.mailbox.queue.accept_tx(tx, rig.new("first"))
        with pytest.raises(LookupError):
            tx.attempt(attempted)
        assert rig.mailbox.context.loads.open["ann"] == 2
        raise ValueError("no")

    def attempted(tx: Tx) -> None:
        rig.mailbox.queue.accept_tx(tx, rig.new("second"))
        assert rig.mailbox.context.loads.open["ann"] == 3
        raise LookupError

    with pytest.raises(ValueError, match="no"):
        await rig.db.write(refused)
    assert dict(rig.mailbox.context.loads.last_at) == before


async def test_an_end_with_nothing_left_looks_for_no_next_message(
    rig: MailboxFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    claim_tx = claim.claim_tx

    def counting(*args: Any, **rest: Any) -> Claimed:
        looks.append("looked")
        return claim_tx(*args, **rest)

    def end(lease: Lease, tx: Tx) -> Claimed | None:
        rig.mailbox.leases.complete_tx(tx, lease, Completion(MessageOutcome.OK, "done"))
        return rig.mailbox.leases.claim_next_tx(tx, "ann", "i1", LaneName.INTERACTIVE, own={})

    monkeypatch.setattr(claim, "claim_tx", counting)
    await rig.put("one")
    first = await rig.one()
    looks.clear()
    assert await rig.db.write(partial(end, first)) == Claimed(())
    assert looks == ["looked"], "before the loads were read, nobody knows"

    await rig.reboot()
    await rig.put("two")
    second = await rig.one()
    await rig.put("three")
    looks.clear()
    claimed = await rig.db.write(partial(end, second))
    assert claimed is not None
    assert [lease.message.state for lease in claimed.leases] == ["leased"]
    assert await rig.db.write(partial(end, claimed.leases[0])) == Claimed(())
    assert looks == ["looked"], "for the third message alone"


async def test_a_delayed_message_is_due_also_beside_one_that_is_claimed(
    rig: MailboxFixture,
) -> None:
    await rig.reboot()
    await rig.put("now")
    await rig.one()
    assert rig.due_at is None
    later = rig.clock.now_ms() + 5_000
    await rig.put("later", conversation="c2", not_before=later)
    await rig.put("now, too", conversation="c3")
    await rig.one()
    assert rig.due_at == later - rig.mailbox.context.steady.step_ms()


async def test_a_failed_message_counts_again_once_it_is_queued_again(tmp_path: Path) -> None:
    rig = await MailboxFixture.open(tmp_path, limits=MailboxLimits(max_attempts=1))
    message_id = (await rig.put()).message_id
    for count in (1, 0):
        await rig.mailbox.leases.retry(await rig.one(), code="net", text="gone")
        assert await rig.state_of(message_id) == "dead"
        await rig.check()
        await (rig.mailbox.failed.requeue if count else rig.mailbox.failed.drop)(
            message_id, OPERATOR
        )
        assert rig.mailbox.context.loads.open["ann"] == count
        await rig.check()
    await rig.close()


async def test_loads_and_idle_times_outlive_a_restart(tmp_path: Path) -> None:
    rig = await DispatcherFixture.open(tmp_path, [(n, {"role": "writer"}) for n in ("w1", "w2")])
    for agent in ("w1", "w2"):
        await rig.mail.put(agent=agent)
        rig.mail.later(1)
    await rig.mail.finish(await rig.mail.one("w2"))
    rig.mail.later(1)
    await rig.mail.finish(await rig.mail.one("w1"))
    before = _loads(rig)
    await rig.reboot()
    assert _loads(rig) == before
    sent = await rig.dispatcher.assign(new_mail("x"), role="writer", caller=OPERATOR)
    assert (sent.agent, sent.reason) == ("w2", "least loaded, 0 open, and idle longest")
    await rig.close()


def _loads(rig: DispatcherFixture) -> tuple[dict[str, int], dict[str, int]]:
    loads = rig.mail.mailbox.context.loads
    return dict(loads.open), dict(loads.last_at)


async def test_many_assignments_share_a_commit_and_read_nothing(tmp_path: Path) -> None:
    rig = await DispatcherFixture.open(
        tmp_path, ["ann", *((f"w{n}", {"role": "writer"}) for n in range(8))]
    )
    rig.mail.clock.stand_still()  # a batch has no end by time
    stats = rig.mail.db.stats
    commits, reads = stats.commits, stats.reads
    assigned = [
        rig.dispatcher.assign(new_mail(f"work {n}"), role="writer", caller=agent_of("ann"))
        for n in range(64)
    ]
    told = rig.dispatcher.broadcast(new_mail("hear"), names=["w1", "w2"], caller=agent_of("ann"))
    sent, _ = await asyncio.gather(asyncio.gather(*assigned), told)
    assert (stats.commits - commits, stats.reads - reads) == (1, 0)
    assert set(Counter(each.agent for each in sent).values()) == {8}
    await rig.close()
