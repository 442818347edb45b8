"""A part in pieces: each settled by itself, whatever happens to the one beside it."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from agentsup.mailbox.delivery import outbox
from agentsup.model.channel import (
    ABSENT_BOT,
    Begin,
    Delivery,
    DeliveryOutcome,
    OutboxPart,
    RetryReason,
)
from agentsup.store import Tx
from tests.component.mailbox.test_relay import Fixture, running

pytestmark = pytest.mark.virtual


@pytest_asyncio.fixture
async def context(tmp_path: Path) -> AsyncIterator[Fixture]:
    bench = Fixture(tmp_path / "state.db")
    await bench.boot()
    yield bench
    await bench.database.close()


RETRY = Delivery(DeliveryOutcome.RETRY, "busy")
FREE = Delivery(DeliveryOutcome.RETRY, "no bot", retry_after_s=7.0, is_free=True)
UNKNOWN = Delivery(DeliveryOutcome.UNKNOWN, "cut off")
REFUSED = Delivery(DeliveryOutcome.REFUSED, "blocked")
DELIVERED = Delivery(DeliveryOutcome.DELIVERED, more=True)


class Pieces:
    """Sends the words of a text one by one; keeps what arrived."""

    name = "recording"
    idempotent = False
    in_pieces = True
    is_event = False

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.plan: deque[Delivery | asyncio.Event] = deque()
        self.began = asyncio.Event()

    async def deliver(self, part: OutboxPart, begin: Begin) -> Delivery:
        await begin()
        words = str(part.body["text"]).split()
        if "again" in part.body:
            words = ["NOTE"]
        if part.progress >= len(words):
            return Delivery(DeliveryOutcome.DELIVERED)
        act = self.plan.popleft() if self.plan and words != ["NOTE"] else None
        more = part.progress + 1 < len(words)
        if isinstance(act, asyncio.Event):
            self.sent.append(words[part.progress])
            self.began.set()
            await act.wait()
        elif act is not None and act.outcome is not DeliveryOutcome.UNKNOWN:
            return act
        else:
            self.sent.append(words[part.progress])
            if act is not None:
                return Delivery(act.outcome, act.detail, more=more)
        ids = (f"id-{words[part.progress]}",)
        return Delivery(DeliveryOutcome.DELIVERED, more=more, platform_ids=ids)


async def settle(context: Fixture, channel: Pieces, **limits: float) -> None:
    relay = context.relay(channel, **limits)
    async with running(relay):
        while "pending" in (await context.states()).values():
            await asyncio.sleep(1.0)


async def test_every_piece_is_one_delivery_and_the_ids_are_kept(context: Fixture) -> None:
    channel = Pieces()
    first, second = await context.add("a b c", "d")
    await settle(context, channel)
    assert channel.sent == ["a", "b", "c", "d"]
    row = await context.row(first)
    assert (row["state"], row["progress"], row["attempts"]) == ("delivered", 2, 1)
    assert json.loads(row["platform_ids"]) == ["id-a", "id-b", "id-c"]
    ids = await context.database.read(lambda r: outbox.platform_ids(r, first))
    assert ids == ("id-a", "id-b", "id-c")
    assert (await context.row(second))["state"] == "delivered"


async def test_a_lost_piece_is_noted_once_and_the_rest_goes_on(context: Fixture) -> None:
    channel = Pieces()
    channel.plan.extend([UNKNOWN, UNKNOWN])
    (part,) = await context.add("a b c")
    await settle(context, channel)
    assert channel.sent == ["a", "b", "c", "NOTE"]
    row = await context.row(part)
    assert (row["state"], row["doubts"], row["detail"]) == ("unknown", 2, "cut off")
    note = json.loads((await context.row(part + 1))["body"])
    assert note["again"] == part
    assert note["text"].startswith("A piece of a message may not have reached you")


async def test_a_retry_repeats_its_piece_only(context: Fixture) -> None:
    channel = Pieces()
    channel.plan.extend([Delivery(DeliveryOutcome.DELIVERED, more=True), RETRY, RETRY])
    channel.sent.append("a")
    (part,) = await context.add("a b c")
    await settle(context, channel)
    assert channel.sent == ["a", "b", "c"]
    row = await context.row(part)
    assert (row["state"], row["attempts"]) == ("delivered", 3)


async def test_a_free_retry_costs_no_attempt_and_waits_as_told(context: Fixture) -> None:
    channel = Pieces()
    channel.plan.extend([FREE] * 20)
    began_at = context.clock.now_ms()
    (part,) = await context.add("a")
    await settle(context, channel)
    row = await context.row(part)
    assert (row["state"], row["attempts"]) == ("delivered", 1)
    assert 139_000 < row["ended_at"] - began_at < 150_000


async def test_what_waits_for_a_reason_can_be_woken(context: Fixture) -> None:
    channel = Pieces()
    channel.plan.append(replace(ABSENT_BOT, retry_after_s=900.0))
    (part,) = await context.add("a")
    began_at = context.clock.now_ms()
    async with running(context.relay(channel)):
        while (await context.row(part))["retry_reason"] != "absent_bot":
            await asyncio.sleep(0.01)
        for reason, woken in ((RetryReason.NONE, 0), (RetryReason.ABSENT_BOT, 1)):
            found = await context.database.write(
                partial(outbox.make_due_tx, channel="recording", agent_id="a", reason=reason)
            )
            assert found == woken
        while not channel.sent:
            await asyncio.sleep(0.01)
    assert context.clock.now_ms() - began_at < 1_000


async def test_refused_after_a_doubt_the_part_is_unknown(context: Fixture) -> None:
    channel = Pieces()
    channel.plan.extend([UNKNOWN, REFUSED])
    (part,) = await context.add("a b c")
    await settle(context, channel)
    assert (await context.row(part))["state"] == "unknown"
    assert channel.sent == ["a", "NOTE"]


async def of_call(context: Fixture, **more: Any) -> int:
    """All of a call in three pieces, with what allows it in the last."""
    body = {"text": "a b c", "is_whole": True, **more}

    def add(tx: Tx) -> int:
        return outbox.add_tx(
            tx,
            agent_id="a",
            channel="recording",
            conversation="c",
            kind="question",
            body=body,
            at=0,
        )

    return await context.database.write(add)


async def test_nothing_follows_a_piece_of_a_call_that_did_not_surely_arrive(
    context: Fixture,
) -> None:
    channel = Pieces()
    channel.plan.extend([DELIVERED, UNKNOWN])
    part = await of_call(context)
    await settle(context, channel)
    assert (await context.row(part))["state"] == "unknown"
    assert channel.sent == ["b", "NOTE"]


async def test_a_crash_in_a_piece_of_a_call_ends_it(context: Fixture) -> None:
    channel = Pieces()
    channel.plan.append(asyncio.Event())
    part = await of_call(context)
    relay = asyncio.create_task(context.relay(channel).run(lambda: None, asyncio.Event()))
    await channel.began.wait()
    await context.kill()
    relay.cancel()
    await asyncio.wait({relay})
    await context.boot()
    await settle(context, channel)
    assert channel.sent == ["a", "NOTE"]
    assert (await context.row(part))["state"] == "unknown"


async def test_what_people_wait_for_is_not_refused_without_a_word(context: Fixture) -> None:
    channel = Pieces()
    channel.plan.append(REFUSED)
    part = await of_call(context, if_refused="read elsewhere")
    await settle(context, channel)
    assert (await context.row(part))["state"] == "dropped"
    assert channel.sent == ["read", "elsewhere", "(blocked)"]


async def test_a_kill_after_a_refusal_puts_nothing_in_doubt(context: Fixture) -> None:
    """The piece goes again in another form, and the process ends before that leaves."""

    class Corrects(Pieces):
        async def deliver(self, part: OutboxPart, begin: Begin) -> Delivery:
            await begin()
            await begin.refused()
            self.began.set()
            await asyncio.Event().wait()
            raise AssertionError("it ends before")

    channel = Corrects()
    (part,) = await context.add("a")
    relay = asyncio.create_task(context.relay(channel).run(lambda: None, asyncio.Event()))
    await channel.began.wait()
    assert (await context.row(part))["begun_boot"] == ""
    await context.kill()
    relay.cancel()
    await asyncio.wait({relay})
    await context.boot()
    again = Pieces()
    await settle(context, again)
    assert again.sent == ["a"]
    assert (await context.row(part))["state"] == "delivered"


async def test_what_was_refused_and_hangs_then_goes_again(context: Fixture) -> None:
    class Hangs(Pieces):
        async def deliver(self, part: OutboxPart, begin: Begin) -> Delivery:
            if part.attempts:
                return await super().deliver(part, begin)
            await begin()
            await begin.refused()
            await asyncio.Event().wait()
            raise AssertionError("it is cut")

    channel = Hangs()
    (part,) = await context.add("a")
    await settle(context, channel, timeout_s=5.0)
    assert channel.sent == ["a"]
    assert (await context.row(part))["state"] == "delivered"


@pytest.mark.parametrize("at, left", [(0, ["a", "b", "c"]), (1, ["b", "c"]), (2, ["c"])])
async def test_a_crash_puts_one_piece_in_doubt(context: Fixture, at: int, left: list[str]) -> None:
    channel = Pieces()
    hang = asyncio.Event()
    channel.plan.extend([Delivery(DeliveryOutcome.DELIVERED, more=True)] * at)
    channel.plan.append(hang)
    (part,) = await context.add("a b c")
    relay = asyncio.create_task(context.relay(channel).run(lambda: None, asyncio.Event()))
    await channel.began.wait()
    await context.kill()
    relay.cancel()
    await asyncio.wait({relay})
    await context.boot()
    assert channel.sent == left[:1]
    await settle(context, channel)
    assert channel.sent == [*left, "NOTE"]
    row = await context.row(part)
    assert (row["state"], row["doubts"]) == ("unknown", 1)
    assert "boot1" in row["detail"]


async def test_a_piece_that_hangs_is_given_up_and_the_next_follows(context: Fixture) -> None:
    channel = Pieces()
    channel.plan.append(asyncio.Event())
    (part,) = await context.add("a b")
    await settle(context, channel, timeout_s=5.0)
    assert channel.sent == ["a", "b", "NOTE"]
    assert (await context.row(part))["state"] == "unknown"


async def test_a_file_may_take_longer_than_a_text(context: Fixture) -> None:
    channel = Pieces()
    late = asyncio.Event()
    channel.plan.append(late)
    asyncio.get_running_loop().call_later(100.0, late.set)
    (part,) = await context.add("a")
    await context.database.write(lambda tx: tx.execute("UPDATE outbox SET kind = 'file'") and None)
    await settle(context, channel)
    assert (await context.row(part))["state"] == "delivered"
