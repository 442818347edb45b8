"""Bots on the page: a stranger is let in, and the bot of an agent is offered to be created."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from agentsup.fakes.telegram import TelegramDriver
from tests.live.browser import Browsing, axe, overflow_px
from tests.process.conftest import MakeDaemon
from tests.support.daemon_process import DaemonProcess
from tests.support.telegram_process import FakeTelegramProcess

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]

TOKEN = "7001:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
NAME = "Eve <img src=x>"


@dataclass
class Fixture:
    daemon: DaemonProcess
    browsing: Browsing
    people: TelegramDriver
    bot: int

    async def page(self, person: str | None = None) -> Page:
        made = await self.daemon.post("/web/links", {"person": person})
        page = await self.browsing.page(device="phone")
        await page.goto(str(made.body["url"]))
        await expect(page.get_by_role("log")).to_be_visible()
        await page.goto(f"{page.url.partition('#')[0]}#/agents")
        return page


@pytest.fixture
async def door(
    make_daemon: MakeDaemon, browsing: Browsing, tmp_path: Path
) -> AsyncIterator[Fixture]:
    async with (
        FakeTelegramProcess(tmp_path / "fake") as fake,
        TelegramDriver(fake.url) as people,
    ):
        bot = await people.add_bot(TOKEN, username="main_bot", can_manage_bots=True)
        entry = {"name": "main", "telegram_token": TOKEN, "telegram_base_url": fake.url}
        rules = [{"match": "(.+)", "steps": [{"say": "you said $1"}]}]
        daemon = make_daemon([entry, {"name": "poet"}], rules, '[people.ann]\nrole = "user"\n')
        await daemon.start()
        yield Fixture(daemon, browsing, people, bot)
        for context in browsing.browser.contexts:
            await context.close()


async def test_a_stranger_is_let_in_on_the_page(door: Fixture) -> None:
    page = await door.page()
    asking = page.get_by_role("heading", name="Who wants to be let in")
    await expect(page.get_by_role("heading", name="main", exact=True)).to_be_visible()
    await expect(asking).to_be_hidden()
    chats = []
    for name in (NAME, "Mallory"):
        chats.append(await door.people.private(await door.people.user(name), door.bot))
        await door.people.say(chats[-1], "read this")
    await expect(asking).to_be_visible()
    eve = page.get_by_role("article", name="wrote to main").filter(has_text="Eve")
    mallory = page.get_by_role("article", name="wrote to main").filter(has_text="Mallory")
    await expect(mallory).to_be_visible()
    await expect(eve.get_by_role("img")).to_have_count(0)
    assert await axe(page) == []
    assert await overflow_px(page) == 0
    await eve.get_by_label("Name here").fill("eve")
    await eve.get_by_role("button", name="Let in").click()
    await expect(page.locator("#toasts")).to_contain_text("eve may talk to main now")
    await expect(eve).to_be_hidden()
    await mallory.get_by_role("button", name="Refuse").click()
    await expect(asking).to_be_hidden()
    said = await door.people.say(chats[0], "hello")
    await door.people.wait_text(chats[0], "you said hello", after=said)
    # Who is no operator sees nothing of it.
    other = await door.page("ann")
    await expect(other.get_by_role("heading", name="main", exact=True)).to_be_visible()
    await expect(other.get_by_role("heading", name="Who wants to be let in")).to_have_count(0)


async def test_the_bot_of_an_agent_is_offered_as_a_link_and_a_code_to_scan(door: Fixture) -> None:
    page = await door.page()
    poet = page.get_by_role("article", name="poet")
    await poet.get_by_role("button", name="Telegram bot").click()
    link = page.get_by_label("The link", exact=True)
    await expect(link).to_have_value(
        re.compile(r"^https://t\.me/newbot/main_bot/poet_\w+_bot\?name=poet$")
    )
    await expect(page.get_by_role("img", name="The link as a QR code")).to_be_visible()
    assert await axe(page) == []
    assert await overflow_px(page) == 0
    main = page.get_by_role("article", name="main")
    await expect(main.get_by_role("button", name="Telegram bot")).to_have_count(0)
