"""Events to subscribers: once each, in the change they tell, and never for ever."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agentsup.mailbox.mail import Subscriptions, subscribers_of
from agentsup.mailbox.messages import MailboxLimits
from agentsup.model.agent import AgentSpec
from agentsup.model.errors import LeaseLost
from agentsup.model.message import LaneName, MessageKind, Priority
from agentsup.model.principal import OPERATOR
from agentsup.store import Tx
from tests.support.mailbox_fixture import MailboxFixture


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[MailboxFixture]:
    limits = MailboxLimits(queue_limit_of=lambda agent: 2 if agent == "small" else None)
    rig = await MailboxFixture.open(tmp_path, limits=limits)
    yield rig
    await rig.check()
    await rig.close()


def watch(rig: MailboxFixture, **subscriptions: tuple[str, ...]) -> None:
    """Agents are named by their ids here; ``ben`` is always there."""
    specs = {name: AgentSpec(name, subscriptions=text) for name, text in subscriptions.items()}
    rig.subscribers = subscribers_of({"ben": AgentSpec("ben"), "cat": AgentSpec("cat"), **specs})


async def events_of(rig: MailboxFixture, agent: str) -> list[tuple[str, str]]:
    """(what, message id) of the events in an agent's mailbox, in order."""
    rows = await rig.sql(
        "SELECT parts ->> '$[1].data.event', parts ->> '$[1].data.message_id' FROM messages"
        " WHERE agent_id = ? AND kind = 'event' ORDER BY seq",
        agent,
    )
    return [(row[0], row[1]) for row in rows]


async def test_started_finished_and_failed_are_told(rig: MailboxFixture) -> None:
    watch(rig, ann=("ben",), dan=("*:failed",))
    good = await rig.put("well", "ben")
    await rig.finish(await rig.one("ben"))
    bad = await rig.put("ill", "ben")
    await rig.fail(await rig.one("ben"), "no model")
    assert await events_of(rig, "ann") == [
        ("started", good.message_id),
        ("finished", good.message_id),
        ("started", bad.message_id),
        ("failed", bad.message_id),
    ]
    assert await events_of(rig, "dan") == [("failed", bad.message_id)]
    message = (await rig.mailbox.messages.list(agent_id="dan"))[0]
    assert (message.kind, message.lane, message.priority) == (
        MessageKind.EVENT,
        LaneName.BACKGROUND,
        Priority.LOW,
    )
    assert (message.sender_agent_id, message.deliver_to.kind) == ("ben", "none")
    assert "no model" in message.text
    assert await rig.outbox("kind = 'notice' AND agent_id = 'dan'") == []


async def test_dead_and_expired_work_has_failed_and_a_stop_is_neither(rig: MailboxFixture) -> None:
    watch(rig, ann=("ben:failed", "ben:finished"))
    dead = await rig.put("crashes", "ben")
    for _ in range(2):
        await rig.one("ben")
        await rig.mailbox.leases.release_all("i1", culprits=None, text="boom")
    late = await rig.put("late", "ben", expires_at=rig.clock.now_ms() + 1_000)
    rig.later(2)
    await rig.mailbox.deadlines.expire()
    await rig.put("stopped", "ben")
    await rig.one("ben")
    await rig.mailbox.control.stop("agent:ben", OPERATOR)
    assert await events_of(rig, "ann") == [("failed", dead.message_id), ("failed", late.message_id)]


async def test_a_take_over_begins_nothing_anew(rig: MailboxFixture) -> None:
    watch(rig, ann=("ben:started",))
    one = await rig.put("long", "ben")
    await rig.one("ben")
    await rig.reboot()
    watch(rig, ann=("ben:started",))
    await rig.one("ben", instance="i2")
    assert await events_of(rig, "ann") == [("started", one.message_id)]


async def test_what_is_undone_was_never_told(rig: MailboxFixture) -> None:
    watch(rig, ann=("ben",))
    await rig.put("x", "ben")
    lease = await rig.one("ben")
    await rig.reboot()
    watch(rig, ann=("ben",))
    await rig.one("ben", instance="i2")
    with pytest.raises(LeaseLost):
        await rig.finish(lease)
    assert [what for what, _ in await events_of(rig, "ann")] == ["started"]


async def test_two_that_watch_each_other_come_to_rest(rig: MailboxFixture) -> None:
    watch(rig, ann=("*",), ben=("*",))
    await rig.put("x", "ben")
    await rig.finish(await rig.one("ben"))
    for _ in range(5):
        for agent in ("ann", "ben"):
            for lease in await rig.claim(agent):
                # What an event sets off is told to nobody.
                await rig.put(
                    f"because of {lease.message.message_id}",
                    "ben" if agent == "ann" else "ann",
                    root_id=lease.message.root_id,
                )
                await rig.finish(lease)
    assert len(await events_of(rig, "ann")) == 2
    assert await events_of(rig, "ben") == []


async def test_a_full_queue_misses_it_and_holds_up_nobody(
    rig: MailboxFixture, caplog: pytest.LogCaptureFixture
) -> None:
    watch(rig, small=("ben",))
    with caplog.at_level(logging.WARNING):
        for n in range(3):
            await rig.put(f"m{n}", "ben")
            await rig.finish(await rig.one("ben"))
    assert len(await events_of(rig, "small")) == 2
    said = [r.getMessage() for r in caplog.records if "events are not told" in r.getMessage()]
    assert len(said) == 1, "said once while it is full"
    assert "small" in said[0]


async def test_where_nobody_subscribed_it_costs_no_statement(
    rig: MailboxFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    plain = Tx.execute

    def record(self: Any, sql: str, params: Any = ()) -> Any:
        seen.append(sql)
        return plain(self, sql, params)

    monkeypatch.setattr(Tx, "execute", record)
    statements = []
    for follow in (False, True):
        with monkeypatch.context() as patch:
            if not follow:
                patch.setattr(Subscriptions, "changed_tx", lambda *args, **more: None)
            watch(rig, ann=("cat",))
            await rig.put("x", "ben")
            seen.clear()
            await rig.finish(await rig.one("ben"))
            statements.append(seen[:])
    assert statements[0] == statements[1] != []


def test_who_hears_of_whom() -> None:
    specs = {
        "a": AgentSpec("ann", subscriptions=("*:failed", "Ben")),
        "b": AgentSpec("ben", subscriptions=("ben", "cat:started", "cat:finished")),
        "c": AgentSpec("cat"),
    }
    found = subscribers_of(specs)
    told = {w: [(e.agent_id, sorted(e.what)) for e in each] for w, each in found.items()}
    assert told == {
        "b": [("a", ["failed", "finished", "started"])],
        "c": [("a", ["failed"]), ("b", ["finished", "started"])],
    }
