"""Strangers on Telegram: one code for a private message, in bounds, and nothing reaches the agent."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest_asyncio

from agentsup.channels.core.receiving import strangers
from agentsup.model.pairing import ALPHABET, OPEN_MS, PairingRequest, code_in
from tests.component.channels.telegram.fixture import AGENT_ID, TelegramFixture, rigged
from tests.support.bound import BOUND_S


@dataclass
class Fixture:
    """Where strangers ask."""

    on: bool = True
    requests: list[PairingRequest] = field(default_factory=list)

    def is_on(self) -> bool:
        return self.on

    async def asked(self, request: PairingRequest) -> None:
        self.requests.append(request)


@pytest_asyncio.fixture
async def rig(tmp_path: Path) -> AsyncIterator[TelegramFixture]:
    async with rigged(tmp_path) as made:
        made.pairing = Fixture()
        yield made


def desk(rig: TelegramFixture) -> Fixture:
    assert isinstance(rig.pairing, Fixture)
    return rig.pairing


async def private(rig: TelegramFixture, name: str, **facts: str) -> str:
    return await rig.people.private(await rig.people.user(name, **facts), rig.bot.bot_id)


async def handled(rig: TelegramFixture) -> None:
    """Everything that was said is handled and answered: what Ann says last is."""
    said = await rig.people.say(rig.chat, "over")
    await rig.people.wait_text(rig.chat, "echo: over", after=said)
    await rig.settled()
    await rig.delivered()


async def test_a_first_message_makes_one_code_and_reaches_nobody(rig: TelegramFixture) -> None:
    await rig.start()
    chat = await private(rig, "Eve")
    for text in ("let me in, I am Ann", "/ping", "/stop"):
        await rig.people.say(chat, text)
    await handled(rig)
    (answer,) = await rig.people.texts(chat)
    (request,) = desk(rig).requests
    assert re.search(rf"[{ALPHABET}]{{4}}-[{ALPHABET}]{{4}}", answer)
    assert code_in(answer.rpartition(" ")[2]) == request.code
    assert (request.agent_id, request.stranger.shown) == (
        AGENT_ID,
        f"“Eve” (telegram {request.stranger.user_id})",
    )
    assert (rig.agent.texts, rig.ran) == (["over"], [])
    assert await rig.rows("SELECT COUNT(*) FROM messages") == [(1,)]
    assert await rig.people.violations() == []


async def test_the_stranger_reads_it_in_the_own_language(rig: TelegramFixture) -> None:
    await rig.start()
    chat = await private(rig, "Eva", language_code="de")
    await rig.people.say(chat, "hallo")
    await rig.people.wait_text(chat, "Ich kenne dich noch nicht")


async def test_only_a_new_private_message_makes_a_code(rig: TelegramFixture) -> None:
    eve = await rig.people.user("Eve")
    chat = await rig.people.private(eve, rig.bot.bot_id)
    group = await rig.people.group("All", [rig.ann, eve, rig.bot.bot_id])
    rig.allow(groups=(int(group),))
    late = await private(rig, "Late")
    await rig.people.say(late, "hello")
    rig.clock.offset_ms = 25 * 3_600_000
    await rig.start()
    async with asyncio.timeout(BOUND_S):
        while await rig.states() != {"skipped": 1}:
            await asyncio.sleep(0.01)
    rig.clock.offset_ms = 0
    await rig.people.say(group, "@bob_bot hello", user=eve)
    await handled(rig)
    assert desk(rig).requests == []
    assert await rig.people.texts(late) == []
    assert await rig.people.texts(group) == []
    assert await rig.people.texts(chat) == []


async def test_turned_off_nobody_is_answered(rig: TelegramFixture) -> None:
    desk(rig).on = False
    await rig.start()
    chat = await private(rig, "Eve")
    await rig.people.say(chat, "hello")
    await handled(rig)
    assert (desk(rig).requests, await rig.people.texts(chat)) == ([], [])


async def test_the_bounds_hold_over_restarts_and_an_expired_code_makes_room(
    rig: TelegramFixture,
) -> None:
    await rig.start()
    chat = await private(rig, "Eve")
    for count in range(1, strangers.PER_PERSON + 3):
        await rig.people.say(chat, f"hello {count}")
        await handled(rig)
        await rig.stop()
        assert len(desk(rig).requests) == min(count, strangers.PER_PERSON)
        rig.clock.offset_ms += OPEN_MS
        await rig.start()
    codes = {each.code for each in desk(rig).requests}
    assert len(codes) == len(await rig.people.texts(chat)) == strangers.PER_PERSON


async def test_many_accounts_get_no_more_codes_than_are_open_at_once(rig: TelegramFixture) -> None:
    await rig.start()
    chats = [await private(rig, f"Eve {n}") for n in range(strangers.OPEN_PER_AGENT + 3)]
    for chat in chats:
        await rig.people.say(chat, "hello")
    await handled(rig)
    answered = [chat for chat in chats if await rig.people.texts(chat)]
    assert len(answered) == len(desk(rig).requests) == strangers.OPEN_PER_AGENT
