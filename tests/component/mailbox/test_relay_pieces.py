"""A part in pieces: each settled by itself, whatever happens to the one beside it."""

import asyncio
import json
from collections import deque
from functools import partial
from typing import Any

import pytest

from agentsup.mailbox import outbox
from agentsup.model.channel import Begin, Delivery, DeliveryOutcome, OutboxPart
from agentsup.store import Tx
from tests.component.mailbox.test_relay import Bench, bench, running

__all__ = ["bench"]  # the fixture

pytestmark = pytest.mark.virtual

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


async def settle(bench: Bench, channel: Pieces, **limits: float) -> None:
    relay = bench.relay(channel, **limits)
    async with running(relay):
        while "pending" in (await bench.states()).values():
            await asyncio.sleep(1.0)


async def test_every_piece_is_one_delivery_and_the_ids_are_kept(bench: Bench) -> None:
    channel = Pieces()
    first, second = await bench.add("a b c", "d")
    await settle(bench, channel)
    assert channel.sent == ["a", "b", "c", "d"]
    row = await bench.row(first)
    assert (row["state"], row["progress"], row["attempts"]) == ("delivered", 2, 1)
    assert json.loads(row["platform_ids"]) == ["id-a", "id-b", "id-c"]
    ids = await bench.database.read(lambda r: outbox.platform_ids(r, first))
    assert ids == ("id-a", "id-b", "id-c")
    assert (await bench.row(second))["state"] == "delivered"


async def test_a_lost_piece_is_noted_once_and_the_rest_goes_on(bench: Bench) -> None:
    channel = Pieces()
    channel.plan.extend([UNKNOWN, UNKNOWN])
    (part,) = await bench.add("a b c")
    await settle(bench, channel)
    assert channel.sent == ["a", "b", "c", "NOTE"]
    row = await bench.row(part)
    assert (row["state"], row["doubts"], row["detail"]) == ("unknown", 2, "cut off")
    note = json.loads((await bench.row(part + 1))["body"])
    assert note["again"] == part
    assert note["text"].startswith("A piece of a message may not have reached you")


async def test_a_retry_repeats_its_piece_only(bench: Bench) -> None:
    channel = Pieces()
    channel.plan.extend([Delivery(DeliveryOutcome.DELIVERED, more=True), RETRY, RETRY])
    channel.sent.append("a")
    (part,) = await bench.add("a b c")
    await settle(bench, channel)
    assert channel.sent == ["a", "b", "c"]
    row = await bench.row(part)
    assert (row["state"], row["attempts"]) == ("delivered", 3)


async def test_a_free_retry_costs_no_attempt_and_waits_as_told(bench: Bench) -> None:
    channel = Pieces()
    channel.plan.extend([FREE] * 20)
    began_at = bench.clock.now_ms()
    (part,) = await bench.add("a")
    await settle(bench, channel)
    row = await bench.row(part)
    assert (row["state"], row["attempts"]) == ("delivered", 1)
    assert 139_000 < row["ended_at"] - began_at < 150_000


async def test_what_waits_for_a_reason_can_be_woken(bench: Bench) -> None:
    channel = Pieces()
    channel.plan.append(Delivery(DeliveryOutcome.RETRY, "no bot", 900.0, is_free=True))
    (part,) = await bench.add("a")
    began_at = bench.clock.now_ms()
    async with running(bench.relay(channel)):
        while (await bench.row(part))["detail"] != "no bot":
            await asyncio.sleep(0.01)
        for detail, woken in (("else", 0), ("no bot", 1)):
            found = await bench.database.write(
                partial(outbox.wake_tx, channel="recording", agent_id="a", detail=detail)
            )
            assert found == woken
        while not channel.sent:
            await asyncio.sleep(0.01)
    assert bench.clock.now_ms() - began_at < 1_000


async def test_refused_after_a_doubt_the_part_is_unknown(bench: Bench) -> None:
    channel = Pieces()
    channel.plan.extend([UNKNOWN, REFUSED])
    (part,) = await bench.add("a b c")
    await settle(bench, channel)
    assert (await bench.row(part))["state"] == "unknown"
    assert channel.sent == ["a", "NOTE"]


async def of_call(bench: Bench, **more: Any) -> int:
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

    return await bench.database.write(add)


async def test_nothing_follows_a_piece_of_a_call_that_did_not_surely_arrive(bench: Bench) -> None:
    channel = Pieces()
    channel.plan.extend([DELIVERED, UNKNOWN])
    part = await of_call(bench)
    await settle(bench, channel)
    assert (await bench.row(part))["state"] == "unknown"
    assert channel.sent == ["b", "NOTE"]


async def test_a_crash_in_a_piece_of_a_call_ends_it(bench: Bench) -> None:
    channel = Pieces()
    channel.plan.append(asyncio.Event())
    part = await of_call(bench)
    relay = asyncio.create_task(bench.relay(channel).run(lambda: None, asyncio.Event()))
    await channel.began.wait()
    await bench.kill()
    relay.cancel()
    await asyncio.wait({relay})
    await bench.boot()
    await settle(bench, channel)
    assert channel.sent == ["a", "NOTE"]
    assert (await bench.row(part))["state"] == "unknown"


async def test_what_people_wait_for_is_not_refused_without_a_word(bench: Bench) -> None:
    channel = Pieces()
    channel.plan.append(REFUSED)
    part = await of_call(bench, if_refused="read elsewhere")
    await settle(bench, channel)
    assert (await bench.row(part))["state"] == "dropped"
    assert channel.sent == ["read", "elsewhere", "(blocked)"]


async def test_a_kill_after_a_refusal_puts_nothing_in_doubt(bench: Bench) -> None:
    """The piece goes again in another form, and the process ends before that leaves."""

    class Corrects(Pieces):
        async def deliver(self, part: OutboxPart, begin: Begin) -> Delivery:
            await begin()
            await begin.refused()
            self.began.set()
            await asyncio.Event().wait()
            raise AssertionError("it ends before")

    channel = Corrects()
    (part,) = await bench.add("a")
    relay = asyncio.create_task(bench.relay(channel).run(lambda: None, asyncio.Event()))
    await channel.began.wait()
    assert (await bench.row(part))["begun_boot"] == ""
    await bench.kill()
    relay.cancel()
    await asyncio.wait({relay})
    await bench.boot()
    again = Pieces()
    await settle(bench, again)
    assert again.sent == ["a"]
    assert (await bench.row(part))["state"] == "delivered"


async def test_what_was_refused_and_hangs_then_goes_again(bench: Bench) -> None:
    class Hangs(Pieces):
        async def deliver(self, part: OutboxPart, begin: Begin) -> Delivery:
            if part.attempts:
                return await super().deliver(part, begin)
            await begin()
            await begin.refused()
            await asyncio.Event().wait()
            raise AssertionError("it is cut")

    channel = Hangs()
    (part,) = await bench.add("a")
    await settle(bench, channel, timeout_s=5.0)
    assert channel.sent == ["a"]
    assert (await bench.row(part))["state"] == "delivered"


@pytest.mark.parametrize("at, left", [(0, ["a", "b", "c"]), (1, ["b", "c"]), (2, ["c"])])
async def test_a_crash_puts_one_piece_in_doubt(bench: Bench, at: int, left: list[str]) -> None:
    channel = Pieces()
    hang = asyncio.Event()
    channel.plan.extend([Delivery(DeliveryOutcome.DELIVERED, more=True)] * at)
    channel.plan.append(hang)
    (part,) = await bench.add("a b c")
    relay = asyncio.create_task(bench.relay(channel).run(lambda: None, asyncio.Event()))
    await channel.began.wait()
    await bench.kill()
    relay.cancel()
    await asyncio.wait({relay})
    await bench.boot()
    assert channel.sent == left[:1]
    await settle(bench, channel)
    assert channel.sent == [*left, "NOTE"]
    row = await bench.row(part)
    assert (row["state"], row["doubts"]) == ("unknown", 1)
    assert "boot1" in row["detail"]


async def test_a_piece_that_hangs_is_given_up_and_the_next_follows(bench: Bench) -> None:
    channel = Pieces()
    channel.plan.append(asyncio.Event())
    (part,) = await bench.add("a b")
    await settle(bench, channel, timeout_s=5.0)
    assert channel.sent == ["a", "b", "NOTE"]
    assert (await bench.row(part))["state"] == "unknown"


async def test_a_file_may_take_longer_than_a_text(bench: Bench) -> None:
    channel = Pieces()
    late = asyncio.Event()
    channel.plan.append(late)
    asyncio.get_running_loop().call_later(100.0, late.set)
    (part,) = await bench.add("a")
    await bench.database.write(lambda tx: tx.execute("UPDATE outbox SET kind = 'file'") and None)
    await settle(bench, channel)
    assert (await bench.row(part))["state"] == "delivered"
