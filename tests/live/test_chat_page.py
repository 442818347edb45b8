"""The chat page over the fake Telegram alone: what bots and other people do is seen, and answered.

The bots are spoken for by raw calls; no daemon runs. ``test_demo_page`` has the whole demo.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Locator, Page, expect

from agentsup.fakes.telegram import Bot, FakeTelegram, TelegramDriver
from tests.live.browser import Browsing, axe


@dataclass(slots=True)
class Fixture:
    """Ann at the page, with two bots and a group that has topics."""

    people: TelegramDriver
    page: Page
    main: Bot
    writer: Bot
    ann: int
    ben: int
    chat: str
    """Ann's with Main."""
    group: str

    async def call(self, method: str, *, bot: Bot | None = None, **fields: Any) -> Any:
        """A bot (Main, unless another one is given) calls a method."""
        answer = await self.people.call((bot or self.main).token, method, **fields)
        assert answer["ok"], answer
        return answer["result"]

    async def send(self, text: str, *, bot: Bot | None = None, **fields: Any) -> int:
        """A bot writes, to Ann unless another chat is given; the message's number."""
        sent = await self.call(
            "sendMessage", bot=bot, text=text, **({"chat_id": self.ann} | fields)
        )
        return int(sent["message_id"])

    async def open(self, name: str) -> Locator:
        """Open a chat of the list; its log."""
        chats = self.page.get_by_role("navigation", name="Chats")
        await chats.get_by_role("button", name=name).click()
        await expect(self.page.locator("#chat-title")).to_have_text(name)
        return self.page.get_by_role("log")

    @property
    def text(self) -> Locator:
        return self.page.get_by_role("textbox", name="Message")

    async def write(self, text: str) -> None:
        await self.text.fill(text)
        await self.text.press("Enter")
        await expect(self.text).to_have_value("")

    async def last(self, chat: str | None = None) -> dict[str, Any]:
        """The newest message, as the server has it."""
        message: dict[str, Any] = (await self.people.messages(chat or self.chat))[-1]["message"]
        return message


@pytest.fixture
async def scene(tmp_path: Path, browsing: Browsing) -> AsyncIterator[Fixture]:
    async with FakeTelegram(tmp_path / "fake") as fake, TelegramDriver(fake.url) as people:
        main = fake.bot(username="main_bot", name="Main", has_topics_enabled=True)
        writer = fake.bot(username="writer_bot", name="Writer")
        ann, ben = await people.user("Ann"), await people.user("Ben")
        chat = await people.private(ann, main.bot_id)
        group = await people.group(
            "Household", [ann, ben], administrators=[main.bot_id, writer.bot_id], forum=True
        )
        page = await browsing.page()
        await page.goto(f"{fake.url}/")
        yield Fixture(people, page, main, writer, ann, ben, chat, group)
        await page.close()


async def test_a_bot_that_asks_for_a_reply_gets_one(scene: Fixture) -> None:
    about = scene.page.locator("#about")
    await scene.open("Main")
    asked = {"force_reply": True, "input_field_placeholder": "Your name"}
    number = await scene.send("What shall I call you?", reply_markup=asked)
    await expect(about).to_contain_text("Reply to: What shall I call you?")
    await expect(scene.text).to_be_focused()
    await expect(scene.text).to_have_attribute("placeholder", "Your name")
    assert await axe(scene.page) == []
    await scene.page.keyboard.type("Ann")
    await scene.page.keyboard.press("Enter")
    await expect(about).to_be_hidden()
    await expect(scene.text).to_have_attribute("placeholder", "Message")
    assert (await scene.last())["reply_to_message"]["message_id"] == number

    # It asks once, and no longer when it is answered elsewhere or taken back.
    await scene.send("And whose garden is it?", reply_markup=asked)
    await expect(about).to_be_visible()
    await scene.page.keyboard.press("Escape")
    await expect(about).to_be_hidden()
    await scene.send("Take your time.")
    await expect(scene.page.get_by_role("log")).to_contain_text("Take your time.")
    await expect(about).to_be_hidden()
    await scene.send("Who waters it?", reply_markup=asked)
    await expect(about).to_be_visible()
    await scene.people.say(scene.chat, "said on another device")
    await expect(about).to_be_hidden()
    number = await scene.send("Who weeds it?", reply_markup=asked)
    await expect(about).to_be_visible()
    await scene.call("deleteMessage", chat_id=scene.ann, message_id=number)
    await expect(about).to_be_hidden()


async def test_what_changes_is_seen_to_change(scene: Fixture) -> None:
    log = await scene.open("Main")
    newest = log.locator("article").last
    number = await scene.send("first wording")
    target: dict[str, Any] = {"chat_id": scene.ann, "message_id": number}
    await scene.call("editMessageText", text="second wording", **target)
    await expect(newest).to_contain_text("second wording")
    await expect(newest).to_contain_text("edited")

    button = log.get_by_role("button", name="Go", exact=True)
    keyboard = {"inline_keyboard": [[{"text": "Go", "callback_data": "x"}]]}
    target["message_id"] = number = await scene.send("with a button", reply_markup=keyboard)
    await expect(button).to_be_visible()
    await scene.call("editMessageReplyMarkup", **target)
    await expect(button).to_have_count(0)
    await expect(newest).not_to_contain_text("edited")

    # What one is about to answer goes away under one's hands.
    await newest.get_by_role("button", name="What to do").click()
    await newest.get_by_role("button", name="Reply").click()
    await expect(scene.page.locator("#about")).to_contain_text("with a button")
    await scene.call("deleteMessage", **target)
    await expect(scene.page.locator("#about")).to_be_hidden()
    await expect(log).not_to_contain_text("with a button")

    draft = log.locator(".draft")
    for text in ("half a", "half a sentence", "half a sentence, and the other half"):
        await scene.call("sendMessageDraft", chat_id=scene.ann, draft_id=7, text=text)
        await expect(draft).to_contain_text(text)
    await expect(scene.page.locator("#chat-note")).to_have_text("is writing …")
    await scene.send("half a sentence, and the other half.")
    await expect(draft).to_have_count(0)
    await expect(log.locator("article", has_text="half a sentence")).to_have_count(1)


def picture(side: int) -> bytes:
    """A PNG, all one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)

    head = struct.pack(">2I5B", side, side, 8, 2, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\x2f\x7d\x6b" * side) * side)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


async def test_files_and_pictures_go_both_ways(scene: Fixture) -> None:
    log = await scene.open("Main")
    await scene.text.fill("our beds")
    chosen = scene.page.locator("#file")
    await chosen.set_input_files(
        {"name": "beds.png", "mimeType": "image/png", "buffer": picture(64)}
    )
    mine = log.locator(".mine")
    await expect(mine.get_by_role("img", name="our beds")).to_have_js_property("naturalWidth", 64)
    await expect(scene.text).to_have_value("")
    sent = await scene.last()
    assert sent["caption"] == "our beds"
    assert await scene.people.download(sent["photo"][0]["file_unique_id"]) == picture(64)
    await chosen.set_input_files(
        {"name": "seeds.txt", "mimeType": "text/plain", "buffer": b"tomato\n"}
    )
    await expect(mine.get_by_role("link", name="seeds.txt")).to_contain_text("7 B")

    sent = await scene.last()
    again = await scene.call("getUpdates")
    named = next(u["message"]["document"] for u in again if "document" in u.get("message", {}))
    await scene.call(
        "sendDocument", chat_id=scene.ann, document=named["file_id"], caption="yours again"
    )
    theirs = log.locator("article:not(.mine)")
    async with scene.page.expect_download() as downloading:
        await theirs.get_by_role("link", name="seeds.txt").click()
    assert (await (await downloading.value).path()).read_bytes() == b"tomato\n"
    assert (await downloading.value).suggested_filename == "seeds.txt"
    await expect(theirs).to_contain_text("yours again")


async def test_each_chat_is_of_one_person_and_one_agent(scene: Fixture) -> None:
    page = scene.page
    chats = page.get_by_role("navigation", name="Chats")
    await scene.open("Main")
    await scene.write("for Main alone")
    await scene.people.private(scene.ann, scene.writer.bot_id)
    await scene.send("one", bot=scene.writer)
    await scene.send("two", bot=scene.writer)
    row = chats.get_by_role("button", name="Writer")
    await expect(row.locator(".unread")).to_have_text("2")
    log = await scene.open("Writer")
    await expect(row.locator(".unread")).to_have_count(0)
    await expect(log).to_contain_text("two")
    await expect(log).not_to_contain_text("for Main alone")
    await page.get_by_label("Who you are").select_option(label="Ben")
    log = await scene.open("Main")
    await expect(log.get_by_role("button", name="Start")).to_be_visible()
    await log.get_by_role("button", name="Start").click()
    await expect(log.locator(".mine")).to_contain_text("/start")
    assert [one["message"]["text"] for one in await scene.people.messages(scene.chat)] == [
        "for Main alone"
    ]
