"""The chat page of ``agentsup demo``, in a browser: what a person does with it, and with a keyboard."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Locator, Page, expect

from tests.live.browser import Browsing, Device, Scheme, axe, overflow_px
from tests.process.cli.test_demo import Demo


@pytest.fixture
async def demo(tmp_path: Path) -> AsyncIterator[Demo]:
    """The demo, ready."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    made = Demo(temporary, "--port", "0")
    try:
        await asyncio.to_thread(made.says, r"kill -9 (\d+)")
        yield made
        assert "Traceback" not in made.output
        assert await asyncio.to_thread(made.end) == 0
    finally:
        made.close()


def address(demo: Demo) -> str:
    return demo.says(r"The page: (\S+?)/\n")[1]


async def open_chat(page: Page, demo: Demo, name: str = "Main") -> Locator:
    """Open the page and a chat; its log."""
    await page.goto(f"{address(demo)}/")
    await page.get_by_role("navigation", name="Chats").get_by_role("button", name=name).click()
    await expect(page.locator("#chat-title")).to_have_text(name)
    return page.get_by_role("log")


async def say(page: Page, text: str) -> None:
    box = page.get_by_role("textbox", name="Message")
    await box.fill(text)
    await box.press("Enter")
    await expect(box).to_have_value("")


async def test_a_person_chats_watches_presses_and_sends_a_file(
    demo: Demo, page: Page, tmp_path: Path
) -> None:
    log = await open_chat(page, demo)
    bubbles = log.locator("article.message:not(.mine)")
    await say(page, "hello")
    await expect(bubbles.last).to_contain_text("No model is at work here")
    assert await axe(page) == []

    # Streaming: the beginning is there while the end is not.
    await say(page, "report")
    await expect(bubbles.last).to_contain_text("measured")
    assert "That is all." not in await log.inner_text()
    assert await axe(page) == []
    await expect(bubbles.last).to_contain_text("That is all.")
    await expect(log.locator(".draft")).to_have_count(0)
    await expect(bubbles.last.locator("pre")).to_contain_text(["print(sum(beds.values())"])

    # A question is answered by its button, once.
    await say(page, "choose")
    await log.get_by_role("button", name="coffee").click()
    await expect(bubbles.last).to_contain_text("Then coffee it is.")
    await expect(log.get_by_role("button", name="coffee")).to_have_count(0)

    # One without buttons has the input already.
    await say(page, "name")
    await expect(page.locator("#about")).to_contain_text("What shall I call you?")
    await say(page, "Ann")
    await expect(bubbles.last).to_contain_text("Good to meet you, Ann.")

    # A file goes there and comes back.
    file = tmp_path / "seeds.txt"
    file.write_text("tomato, bean\n")
    await page.locator("#file").set_input_files(file)
    await expect(bubbles.last.get_by_role("link", name=re.compile("seeds"))).to_be_visible()
    async with page.expect_download() as downloading:
        await bubbles.last.get_by_role("link", name=re.compile("seeds")).click()
    assert (await (await downloading.value).path()).read_text() == "tomato, bean\n"
    assert await axe(page) == []


async def test_nothing_is_lost_or_doubled_on_the_page_when_the_daemon_is_killed(
    demo: Demo, page: Page
) -> None:
    log = await open_chat(page, demo)
    await say(page, "count")
    await expect(log).to_contain_text("two,")
    os.kill(int(demo.says(r"kill -9 (\d+)")[1]), signal.SIGKILL)
    await page.reload()
    await expect(log).to_contain_text("Counted to the end.")
    await expect(log.locator(".draft")).to_have_count(0)
    shown = await log.inner_text()
    assert shown.count("Counted to the end.") == 1
    assert shown.count("one, ") == 1


@pytest.mark.parametrize("device", ["phone", "desktop"])
async def test_it_fits_and_everybody_can_use_it(
    demo: Demo, browsing: Browsing, device: Device
) -> None:
    page = await browsing.page(device)

    async def check(what: str) -> None:
        schemes: tuple[Scheme, ...] = ("light", "dark")
        for scheme in schemes:
            await page.emulate_media(color_scheme=scheme)
            assert await axe(page) == [], (what, scheme)
            assert await overflow_px(page) <= 0, (what, scheme)
            await page.screenshot(path=browsing.folder / f"demo-{device}-{scheme}-{what}.png")

    await page.goto(f"{address(demo)}/")
    await expect(page.get_by_role("navigation", name="Chats")).to_contain_text("Main")
    await check("chats")
    log = await open_chat(page, demo)
    await page.get_by_role("group", name="To try").get_by_role("button", name="report").click()
    await expect(page.get_by_role("textbox", name="Message")).to_have_value("report")
    await page.get_by_role("textbox", name="Message").press("Enter")
    await expect(log).to_contain_text("That is all.")
    await say(page, "/agents")
    await expect(log.get_by_role("button").first).to_be_visible()
    await page.get_by_role("button", name="Commands").click()
    await expect(page.locator("#commands")).to_contain_text("/status")
    await check("chat")


async def test_a_keyboard_is_enough(demo: Demo, page: Page) -> None:
    log = await open_chat(page, demo)
    await say(page, "choose")
    option = log.get_by_role("button", name="tea")
    await expect(option).to_be_visible()
    for _ in range(40):
        await page.keyboard.press("Shift+Tab")
        if await option.evaluate("(it) => it === document.activeElement"):
            break
    await page.keyboard.press("Enter")
    await expect(log).to_contain_text("Then tea it is.")
