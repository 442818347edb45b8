"""An answer while it is written, as people see it on the strict server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentsup.channels.telegram.sender import Sender
from agentsup.model.agent import Streaming
from tests.component.channels.telegram.fixture import AGENT_ID, TelegramFixture, rigged
from tests.support.bound import BOUND_S

QUICK = Streaming(edit_interval_s=0.5, min_chars=8, idle_ms=50, reactions=False, drafts=True)


class Fixture:
    """The rig, with turns whose text is spoken by the test. The agent's gate is closed: an answer
    comes when the test says so."""

    def __init__(self, rig: TelegramFixture) -> None:
        self.rig = rig
        self.people = rig.people
        rig.agent.gate.clear()
        rig.spec = replace(rig.spec, streaming=QUICK)

    async def group(self, *, forum: bool = False) -> str:
        """A group in which Ann may talk to the bot."""
        rig = self.rig
        chat = await self.people.group(
            "Home",
            [rig.ann, rig.bot.bot_id],
            administrators=[rig.ann],
            forum=forum,
            supergroup=forum,
        )
        rig.spec = replace(rig.spec, group_mention_only=False)
        rig.allow(groups=(int(chat),))
        return chat

    async def ask(self, chat: str, text: str = "tell me", *, thread: int | None = None) -> str:
        """Ann asks, and a turn begins; returns the message's id."""
        known = len(await self._messages())
        said: dict[str, Any] = {} if thread is None else {"thread": thread}
        if "@" not in chat:
            said["user"], text = self.rig.ann, f"@bob_bot {text}"
        await self.people.say(chat, text, **said)
        async with asyncio.timeout(BOUND_S):
            while len(found := await self._messages()) == known or found[-1][1] != "leased":
                await asyncio.sleep(0.005)
        message_id, _ = found[-1]
        place = chat.partition("@")[0]
        place = place if thread is None else f"{place}/{thread}"
        self.rig.live.begin(AGENT_ID, f"telegram:{place}", message_id)
        return message_id

    async def _messages(self) -> list[tuple[str, str]]:
        return await self.rig.rows("SELECT message_id, state FROM messages ORDER BY seq")

    def say(self, message_id: str, text: str) -> None:
        self.rig.live.delta(message_id, text)

    def finish(self, message_id: str, answer: str) -> None:
        """The turn ends with ``answer``; for one turn at a time."""
        self.rig.live.end(message_id)
        self.rig.agent.answer = lambda _: answer
        self.rig.agent.gate.set()

    def sender(self) -> Sender:
        """The bot's way out."""
        return self.rig.channel._bots[AGENT_ID].sender

    async def drafts(self, chat: str) -> list[str]:
        """All texts that drafts had in a chat."""
        view = await self.people.view(chat)
        return [text for draft in view["all_drafts"] for text in draft["texts"]]

    async def draft(self, chat: str, part: str) -> None:
        """Wait until a draft shows ``part``."""
        await self.people.wait_for(
            chat, lambda view: any(part in draft["text"] for draft in view["drafts"])
        )

    async def texts(self, chat: str) -> list[str]:
        return await self.people.texts(chat)

    async def recorded(self) -> None:
        """Wait until a stream is on record."""
        async with asyncio.timeout(BOUND_S):
            while not await self.rig.rows("SELECT 1 FROM placeholders"):
                await asyncio.sleep(0.005)

    async def forgotten(self) -> None:
        """Wait until no stream is on record."""
        async with asyncio.timeout(BOUND_S):
            while await self.rig.rows("SELECT 1 FROM placeholders"):
                await asyncio.sleep(0.01)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Fixture]:
    async with rigged(tmp_path) as rig:
        stage = Fixture(rig)
        yield stage
        assert await rig.people.violations() == []


async def test_the_stop_button_of_a_draft_stops_its_turn_and_no_later_one(stage: Fixture) -> None:
    await stage.rig.start()
    message_id = await stage.ask(stage.rig.chat)
    stage.say(message_id, "The first words")
    await stage.draft(stage.rig.chat, "The first words")
    draft_id = await stage.people.stop_draft(stage.rig.chat)
    await stage.people.wait_text(stage.rig.chat, "stopped")
    stage.finish(message_id, "The end.")
    await stage.people.wait_text(stage.rig.chat, "The end.")
    await stage.people.stop_draft(stage.rig.chat, draft_id)
    await stage.people.say(stage.rig.chat, "/ping next")
    await stage.people.wait_text(stage.rig.chat, "pong next")
    await stage.rig.settled()
    assert stage.rig.ran == ["stop", "ping next"]


@pytest.mark.parametrize(
    "method, trouble",
    [
        ("sendMessageDraft", {"kind": "hang", "seconds": 60.0}),
        ("sendMessageDraft", {"kind": "server_error"}),
        ("sendMessageDraft", {"kind": "cut_after"}),
        ("sendChatAction", {"kind": "hang", "seconds": 60.0}),
        ("setMessageReaction", {"kind": "hang", "seconds": 60.0}),
        ("sendMessageDraft", {"kind": "flood", "retry_after": 60}),
        ("sendChatAction", {"kind": "flood", "retry_after": 60}),
        ("setMessageReaction", {"kind": "flood", "retry_after": 60}),
    ],
)
async def test_a_failing_stream_does_not_delay_the_answer(
    stage: Fixture, method: str, trouble: dict[str, Any]
) -> None:
    stage.rig.spec = replace(stage.rig.spec, streaming=replace(QUICK, reactions=True))
    trouble = dict(trouble)
    await stage.people.fault(trouble.pop("kind"), method=method, **trouble)
    await stage.rig.start()
    message_id = await stage.ask(stage.rig.chat)
    stage.say(message_id, "The first words")
    await asyncio.sleep(0.4)
    began = asyncio.get_running_loop().time()
    stage.finish(message_id, "the whole answer")
    await stage.people.wait_text(stage.rig.chat, "the whole answer")
    assert asyncio.get_running_loop().time() - began < 30.0
    assert await stage.texts(stage.rig.chat) == ["the whole answer"]


async def test_a_penalty_that_grows_with_each_early_edit_slows_edits_and_no_answer(
    stage: Fixture,
) -> None:
    """Whoever goes on at the same pace is shut out for longer each time, the answer as well."""
    chat = stage.rig.chat
    await stage.people.fault(
        "error", method="sendMessageDraft", status=400, description="Bad Request: no drafts here"
    )
    await stage.rig.start()
    await stage.people.fault("edit_penalty", seconds=4, retry_after=2, grow=2)
    message_id = await stage.ask(chat)
    loop = asyncio.get_running_loop()
    began_at, number = loop.time(), 0
    while loop.time() - began_at < 8.0:
        stage.say(message_id, f"words number {number}, ")
        number += 1
        await asyncio.sleep(0.1)
    report = await stage.people.report()
    (penalty,) = [
        each for each in await stage.people.get("faults") if each["kind"] == "edit_penalty"
    ]
    assert report["calls"]["editMessageText"] <= 7, "at the usual pace it would be 16"
    assert 1 <= penalty["hits"] <= 4
    assert report["hammered"] == 0
    stage.finish(message_id, "the whole answer")
    await stage.people.wait_text(chat, "the whole answer")
    await stage.forgotten()
    assert await stage.texts(chat) == ["the whole answer"]
    assert (await stage.people.report())["hammered"] == 0


async def test_drafts_that_hang_in_many_chats_leave_room_for_answers(stage: Fixture) -> None:
    rig, people = stage.rig, stage.people
    await people.fault("hang", method=["sendMessageDraft", "sendChatAction"], seconds=2 * BOUND_S)
    await rig.start()
    for number in range(7):
        user = await people.user(f"Person {number}")
        rig.allow(user)
        chat = await people.private(user, rig.bot.bot_id)
        stage.say(await stage.ask(chat), "Words that are not seen")
    message_id = await stage.ask(rig.chat)
    stage.say(message_id, "Words that are not seen")
    await asyncio.sleep(0.5)
    stage.finish(message_id, "the whole answer")
    await people.wait_text(rig.chat, "the whole answer")
    await people.clear_faults()


@pytest.mark.parametrize(
    "kind, facts",
    [("flood", {"retry_after": 60}), ("hang", {"seconds": 5.0}), ("server_error", {})],
)
async def test_trouble_in_one_chat_is_no_trouble_of_another(
    stage: Fixture, kind: str, facts: dict[str, Any]
) -> None:
    rig, people = stage.rig, stage.people
    bo = await people.user("Bo")
    other = await people.private(bo, rig.bot.bot_id)
    rig.allow(bo)
    await people.fault(kind, method=["sendMessageDraft", "sendChatAction"], chat_id=bo, **facts)
    await rig.start()
    sick = await stage.ask(other)
    stage.say(sick, "Words for Bo that are not seen")
    well = await stage.ask(rig.chat)
    stage.say(well, "The first words")
    await stage.draft(rig.chat, "The first words")
    assert await stage.drafts(other) == []
    began = asyncio.get_running_loop().time()
    stage.finish(well, "the whole answer")
    await people.wait_text(rig.chat, "the whole answer")
    assert asyncio.get_running_loop().time() - began < 30.0
