"""A note that a message waits: what it offers is possible, also after a crash."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.component.channels.telegram.fixture import TelegramFixture, rigged
from tests.support.bound import BOUND_S

BEGUN = "▸ Your message waited; its turn has begun."


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[TelegramFixture]:
    async with rigged(tmp_path) as rig:
        rig.agent.gate.clear()
        yield rig
        assert await rig.people.violations() == []


def has_button(message: dict[str, Any]) -> bool:
    return "reply_markup" in message


async def noted(rig: TelegramFixture, chat: str = "") -> dict[str, Any]:
    """Ann says two things, and is told that the second waits; the note."""
    for text in ("first", "second"):
        await rig.people.say(chat or rig.chat, text)
    record = await rig.people.wait_message(chat or rig.chat, has_button)
    message: dict[str, Any] = record["message"]
    return message


async def ended(rig: TelegramFixture, note: dict[str, Any], text: str) -> None:
    """Wait until the note says ``text`` and has no button."""

    def is_over(message: dict[str, Any]) -> bool:
        is_note = bool(message["message_id"] == note["message_id"])
        return is_note and message.get("text") == text and not has_button(message)

    await rig.people.wait_message(rig.chat, is_over)


async def recorded(rig: TelegramFixture) -> None:
    """Wait until no note is on record as having a button."""
    async with asyncio.timeout(BOUND_S):
        while await rig.rows("SELECT 1 FROM outbox WHERE body ->> '$.cancel' IS NOT NULL"):
            await asyncio.sleep(0.01)


async def test_a_turn_that_began_while_the_bot_was_dead_takes_the_button_too(
    rig: TelegramFixture,
) -> None:
    await rig.start()
    note = await noted(rig)
    await rig.die()
    rig.agent.gate.set()
    await rig.settled()
    await rig.start()
    await ended(rig, note, BEGUN)
    await recorded(rig)


async def test_a_message_that_still_waits_keeps_its_button_over_a_restart(
    rig: TelegramFixture,
) -> None:
    await rig.start()
    note = await noted(rig)
    await rig.die()
    await rig.start()
    query = await rig.people.press(rig.chat, note["message_id"])
    assert (await rig.people.pressed(query))["text"] == "taken back"
    await ended(rig, note, "taken back")
    await recorded(rig)
    rig.agent.gate.set()
    await rig.settled()
    assert rig.agent.texts == ["first"]
    await ended(rig, note, "taken back")


async def test_a_note_that_comes_too_late_is_not_sent(rig: TelegramFixture) -> None:
    await rig.people.fault("flood", method="sendMessage", count=1, retry_after=2)
    await rig.start()
    for text in ("first", "second"):
        await rig.people.say(rig.chat, text)
    async with asyncio.timeout(BOUND_S):
        while not await rig.rows("SELECT 1 FROM outbox WHERE body ->> '$.cancel' IS NOT NULL"):
            await asyncio.sleep(0.01)
    rig.agent.gate.set()
    await rig.people.wait_text(rig.chat, "echo: second")
    await recorded(rig)
    assert [text for text in await rig.people.texts(rig.chat) if "waits" in text] == []
