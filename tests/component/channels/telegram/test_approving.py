"""Approvals over the Bot API: a call is allowed once all of it was shown, every command twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from agentsup.model.question import APPROVAL, AskedCall, QuestionState
from tests.component.channels.telegram.menu_fixture import TelegramMenuFixture, menu_rig

OPTIONS = ("once", "run", "pattern:make *", "any", "deny")
LABELS = [["Once"], ["This run"], ["make * here …"], ["Always, every command …"], ["Deny"]]
DIGEST = "d" * 64


@pytest_asyncio.fixture
async def rig(tmp_path: Path) -> AsyncIterator[TelegramMenuFixture]:
    async with menu_rig(tmp_path) as rig:
        yield rig


@pytest_asyncio.fixture
async def ann(rig: TelegramMenuFixture) -> int:
    return await rig.person("Ann")


@pytest_asyncio.fixture
async def chat(rig: TelegramMenuFixture, ann: int) -> str:
    return await rig.people.private(ann, rig.bot.bot_id)


async def approve(rig: TelegramMenuFixture, ann: int, whole: str = "") -> str:
    call = AskedCall('{"tool": "exec", "title": "", "args": {}}', DIGEST, whole)
    asked = await rig.ask(
        str(ann), "May I?", options=OPTIONS, kind=APPROVAL, tool="exec", call=call, call_id="m:k:1"
    )
    return asked.question_id


async def test_a_cut_call_is_allowed_after_all_of_it_was_shown(
    rig: TelegramMenuFixture, ann: int, chat: str
) -> None:
    question = await approve(rig, ann, "all of it, with the hidden part")
    card = (await rig.last(chat))["message_id"]
    assert rig.labels(await rig.last(chat)) == [["Show all of it"], ["Deny"]]
    # A press of what is not there, and words, are told so.
    data = f"q:{question}:0"
    told = await rig.people.pressed(
        await rig.people.press(chat, card, data=data, user=ann, force=True)
    )
    assert "A part of the call only was shown" in told["text"]
    await rig.people.say(chat, "once", reply_to=card)
    await rig.people.say(chat, "always")
    assert (await rig.question(question)).state is QuestionState.OPEN
    assert all("A part of the call only was shown" in each for each in rig.words[:1])
    assert rig.heard == []
    await rig.press(chat, "Show all of it", ann)
    await rig.deliver()
    shown = await rig.until_text(chat, "the hidden part", has_keyboard=True)
    assert rig.labels(shown) == LABELS
    assert (await rig.press(chat, "Once", ann))["text"] == "Answered: Once"
    assert (await rig.question(question)).answer == "once"


async def test_every_command_takes_a_second_press(
    rig: TelegramMenuFixture, ann: int, chat: str
) -> None:
    question = await approve(rig, ann)
    card = (await rig.last(chat))["message_id"]
    assert rig.labels(await rig.last(chat)) == LABELS
    for _ in range(2):  # the same button again is no second press
        await rig.press(chat, "Always, every command …", ann, message=card)
        await rig.deliver()
        assert (await rig.question(question)).state is QuestionState.OPEN
    confirm = await rig.until_text(chat, "without asking", has_keyboard=True)
    assert rig.labels(confirm) == [["Yes, every command"], ["Deny"]]
    assert (await rig.press(chat, "Yes, every command", ann))["text"] == "Answered: Always"
    assert (await rig.question(question)).answer == "always"


async def test_words_mean_what_the_latest_part_offers(
    rig: TelegramMenuFixture, ann: int, chat: str
) -> None:
    question = await approve(rig, ann, "all of it")
    await rig.people.say(chat, "1")
    while await rig.mail.sql("SELECT count(*) FROM outbox WHERE kind = 'question'") != [(2,)]:
        await asyncio.sleep(0.01)  # no topic tells of it
    await rig.deliver()
    await rig.until_text(chat, "all of it", has_keyboard=True)
    await rig.people.say(chat, "make * · until revoked")
    await rig.until_text(chat, "Ann: make * · until revoked")
    assert (await rig.question(question)).answer == "pattern:make *"


async def test_a_pattern_is_given_with_its_end(
    rig: TelegramMenuFixture, ann: int, chat: str
) -> None:
    question = await approve(rig, ann)
    card = (await rig.last(chat))["message_id"]
    for _ in range(2):  # a second press shows nothing more
        await rig.press(chat, "make * here …", ann, message=card)
        await rig.deliver()
        assert (await rig.question(question)).state is QuestionState.OPEN
    shown = await rig.until_text(chat, "Until when?", has_keyboard=True)
    assert "make *" in shown["text"]
    assert "plain words" in shown["text"]
    assert rig.labels(shown) == [
        ["make * · this run"],
        ["make * · today"],
        ["make * · 30 days"],
        ["make * · until revoked"],
        ["Deny"],
    ]
    told = await rig.press(chat, "make * · today", ann)
    assert told["text"] == "Answered: make * · today"
    assert (await rig.question(question)).answer == "pattern:today:make *"


async def test_a_pattern_of_a_cut_call_is_given_after_all_of_it_was_shown(
    rig: TelegramMenuFixture, ann: int, chat: str
) -> None:
    question = await approve(rig, ann, "all of it")
    card = (await rig.last(chat))["message_id"]
    for meaning in ("2", "2.30d"):
        pressed = await rig.people.press(
            chat, card, data=f"q:{question}:{meaning}", user=ann, force=True
        )
        assert "A part of the call only was shown" in (await rig.people.pressed(pressed))["text"]
    for meaning in ("0.30d", "2.never", "9.today", "2.", ".today"):
        pressed = await rig.people.press(
            chat, card, data=f"q:{question}:{meaning}", user=ann, force=True
        )
        await rig.people.pressed(pressed)
    assert (await rig.question(question)).state is QuestionState.OPEN
