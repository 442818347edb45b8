"""Approvals over the Bot API: a call is allowed once all of it was shown, every command twice."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from agentsup.model.question import APPROVAL, AskedCall, QuestionState
from tests.component.channels.telegram.menu_rig import MenuRig, menu_rig

OPTIONS = ("once", "run", "pattern:make *", "any", "deny")
LABELS = [["Once"], ["This run"], ["Always: make *"], ["Always, every command …"], ["Deny"]]
DIGEST = "d" * 64


@pytest_asyncio.fixture
async def rig(tmp_path: Path) -> AsyncIterator[MenuRig]:
    async with menu_rig(tmp_path) as rig:
        yield rig


@pytest_asyncio.fixture
async def ann(rig: MenuRig) -> int:
    return await rig.person("Ann")


@pytest_asyncio.fixture
async def chat(rig: MenuRig, ann: int) -> str:
    return await rig.people.private(ann, rig.bot.bot_id)


async def approve(rig: MenuRig, ann: int, whole: str = "") -> str:
    call = AskedCall('{"tool": "exec", "title": "", "args": {}}', DIGEST, whole)
    asked = await rig.ask(
        str(ann), "May I?", options=OPTIONS, kind=APPROVAL, tool="exec", call=call, call_id="m:k:1"
    )
    return asked.question_id


async def test_a_cut_call_is_allowed_after_all_of_it_was_shown(
    rig: MenuRig, ann: int, chat: str
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


async def test_every_command_takes_a_second_press(rig: MenuRig, ann: int, chat: str) -> None:
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


async def test_words_mean_what_the_latest_part_offers(rig: MenuRig, ann: int, chat: str) -> None:
    question = await approve(rig, ann, "all of it")
    await rig.people.say(chat, "1")
    while await rig.mail.sql("SELECT count(*) FROM outbox WHERE kind = 'question'") != [(2,)]:
        await asyncio.sleep(0.01)  # no topic tells of it
    await rig.deliver()
    await rig.until_text(chat, "all of it", has_keyboard=True)
    await rig.people.say(chat, "Always: make *")
    await rig.until_text(chat, "Ann: Always: make *")
    assert (await rig.question(question)).answer == "pattern:make *"
