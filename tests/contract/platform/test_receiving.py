"""What every platform does with an update: stored, then confirmed, and handled once, in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentsup.channels.core import ChannelState
from agentsup.channels.core.receiving.handler import MessageHandler
from agentsup.channels.matrix import life as matrix
from agentsup.fakes.telegram import FakeTelegram, TelegramDriver
from agentsup.kit import faults
from tests.contract.platform.receivers import (
    AGENT,
    MatrixReceiver,
    Receiver,
    TelegramReceiver,
    ToyReceiver,
)
from tests.support.mailbox_fixture import MailboxFixture


@pytest.fixture(params=["telegram", "matrix", "toy"])
async def receiver(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Receiver]:
    """A bot that was started once and does not run now."""
    async with AsyncExitStack() as stack:
        mail = await MailboxFixture.open(tmp_path, threads=True)
        stack.push_async_callback(mail.close)
        made: Receiver
        if request.param == "telegram":
            server = FakeTelegram(tmp_path / "fake", clock=mail.clock)
            fake = await stack.enter_async_context(server)
            people = await stack.enter_async_context(TelegramDriver(fake.url))
            made = bot = TelegramReceiver(mail, tmp_path)
            await bot.enter(people, fake.url)
        elif request.param == "matrix":
            made = account = MatrixReceiver(mail, tmp_path)
            monkeypatch.setattr(matrix, "MatrixClient", lambda url, http: account.server)
        else:
            made = ToyReceiver(mail, tmp_path)
        stack.push_async_callback(made.close)
        await made.start()
        await made.stop()
        yield made


class Died(Exception):
    """The process ends here."""


@contextmanager
def dying_at(point: str) -> Iterator[None]:
    def pass_point(channel: str, step: str) -> None:
        if f"{channel}.{step}" == point:
            raise Died

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(faults, "platform_point", pass_point)
        yield


# -- once ------------------------------------------------------------------------------------------


async def test_what_was_said_while_no_bot_ran_is_heard_in_order(receiver: Receiver) -> None:
    for number in range(5):
        await receiver.say(f"text {number}")
    await receiver.start()
    await receiver.until_heard(*(f"text {number}" for number in range(5)))
    await receiver.until_states(done=5)


async def test_nothing_is_confirmed_before_it_is_stored(receiver: Receiver) -> None:
    await receiver.say("not yet")
    with dying_at(f"{receiver.channel}.before_commit"):
        receiver.begin()
        with pytest.raises(Died):
            await receiver.ended()
    assert await receiver.states() == {}
    await receiver.start()
    await receiver.until_heard("not yet")


async def test_what_a_life_has_stored_the_next_one_handles_once_though_it_comes_again(
    receiver: Receiver,
) -> None:
    before = await receiver.position()
    await receiver.say("stored")
    with dying_at(f"{receiver.channel}.after_commit"):
        receiver.begin()
        with pytest.raises(Died):
            await receiver.ended()
    assert await receiver.states() == {"received": 1}
    await receiver.read_from(before)
    await receiver.start()
    await receiver.say("next")
    await receiver.until_heard("stored", "next")
    await receiver.until_states(done=2)


async def test_what_was_handled_and_not_marked_has_no_second_effect(receiver: Receiver) -> None:
    await receiver.start()
    await receiver.say("only once")
    await receiver.until_states(done=1)
    await receiver.stop()
    await receiver.mail.db.write(
        lambda tx: tx.execute("UPDATE received SET state = 'received', message_id = ''")
    )
    await receiver.start()
    await receiver.say("next")
    await receiver.until_states(done=2)
    assert await receiver.heard() == ["only once", "next"]


# -- in order --------------------------------------------------------------------------------------


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """While it is not set, the text "slow" takes long to be handled."""
    opened, real = asyncio.Event(), MessageHandler.handle

    async def handle(self: Any, item: Any, event: Any, principal: Any, lane: Any) -> None:
        if event.text == "slow":
            await opened.wait()
        await real(self, item, event, principal, lane)

    monkeypatch.setattr(MessageHandler, "handle", handle)
    return opened


async def test_what_takes_long_delays_its_own_chat_only(
    receiver: Receiver, gate: asyncio.Event
) -> None:
    await receiver.start()
    for text in ("slow", "behind it", "and on"):
        await receiver.say(text)
    await receiver.say("elsewhere", by="ben")
    await receiver.until_heard("elsewhere")
    gate.set()
    await receiver.until_heard("elsewhere", "slow", "behind it", "and on")


async def test_a_stop_passes_what_waits_in_its_chat(
    receiver: Receiver, gate: asyncio.Event
) -> None:
    await receiver.start()
    await receiver.say("slow")
    await receiver.say("/stop")
    await receiver.until(lambda: receiver.commands.ran == ["/stop"])
    assert await receiver.heard() == []
    gate.set()
    await receiver.until_heard("slow")


# -- edits -----------------------------------------------------------------------------------------


async def test_an_edit_before_the_turn_replaces_the_text(receiver: Receiver) -> None:
    await receiver.start()
    said = await receiver.say("teh end")
    await receiver.until_heard("teh end")
    await receiver.edit(said, "the end")
    await receiver.until_heard("the end")


async def test_an_edit_of_what_the_agent_has_read_is_a_new_message(receiver: Receiver) -> None:
    await receiver.start()
    said = await receiver.say("teh end")
    await receiver.until_heard("teh end")
    await receiver.mail.claim(AGENT)
    await receiver.edit(said, "the end")
    await receiver.until_heard("teh end", "(edited) the end")


# -- what is refused -------------------------------------------------------------------------------


async def test_a_stranger_is_not_let_in_and_gets_no_answer(receiver: Receiver) -> None:
    await receiver.start()
    await receiver.say("let me in", by="eve")
    await receiver.say("/stop", by="eve")
    await receiver.say("hello")
    await receiver.until_states(skipped=2, done=1)
    assert await receiver.heard() == ["hello"]
    assert receiver.commands.ran == []
    assert await receiver.mail.outbox() == []


async def test_what_can_not_be_read_is_set_aside_and_reported(receiver: Receiver) -> None:
    await receiver.start()
    await receiver.poison()
    await receiver.say("good")
    await receiver.until_heard("good")
    await receiver.until(lambda: receiver.reports[-1].quarantined == 1)
    assert await receiver.states() == {"quarantined": 1, "done": 1}


# -- trouble ---------------------------------------------------------------------------------------


async def test_a_platform_that_fails_is_asked_again_and_the_operator_told(
    receiver: Receiver,
) -> None:
    receiver.limits = replace(receiver.limits, deaf_after_s=0.1)
    await receiver.fail()
    receiver.begin()
    await receiver.until(lambda: len(receiver.told) == 1)
    assert "has heard nothing" in receiver.told[0]
    assert receiver.is_reported(ChannelState.RETRYING)
    assert receiver.reports[-1].detail
    await receiver.recover()
    await receiver.until(lambda: receiver.is_reported(ChannelState.UP))
    await receiver.until(lambda: len(receiver.told) == 2)
    assert "hears again" in receiver.told[1]
    await receiver.say("at last")
    await receiver.until_heard("at last")
