"""Setup in the page of a phone: from no model to an answer of a real one, and a bot."""

from __future__ import annotations

import json

import pytest
from playwright.async_api import expect

from tests.live.browser import Browsing, axe, overflow_px
from tests.process.conftest import MakeDaemon
from tests.support.model_server import ModelServer, Reply

KEY = "sk-a-key-of-nobody-4711"


@pytest.mark.timeout(120)
async def test_a_phone_sets_up_a_model(make_daemon: MakeDaemon, browsing: Browsing) -> None:
    daemon = make_daemon([{"name": "main", "engine": "auto"}])
    await daemon.start()
    async with ModelServer(
        lambda asked: Reply("I am here."), models=("good-large", "good-mini"), key=KEY
    ) as server:
        page = await browsing.page("phone")
        link = (await daemon.post("/web/links", {})).body["url"]
        await page.goto(str(link))
        await expect(page.get_by_role("log")).to_be_visible()
        await page.evaluate("() => { location.hash = '#/setup'; }")
        await expect(page.get_by_role("heading", name="Setup", exact=True)).to_be_visible()
        await expect(page.get_by_role("heading", name="Kept running")).to_be_visible()
        await page.get_by_label("Provider").select_option("compatible")
        await page.get_by_label("Address").fill(server.base_url)
        await page.get_by_label("Key", exact=True).fill("sk-wrong-key-of-nobody")
        browsing.forgive("502")
        await page.get_by_role("button", name="Show the models").click()
        await expect(page.get_by_text("does not accept this key")).to_be_visible()
        await page.get_by_label("Key", exact=True).fill(KEY)
        await page.get_by_role("button", name="Show the models").click()
        await expect(page.get_by_text("has 2 models.")).to_be_visible()
        await page.get_by_label("Model", exact=True).fill("good-mini")
        await page.get_by_role("button", name="Try it with one short request").click()
        await expect(page.get_by_text("good-mini answered in")).to_be_visible()
        assert await overflow_px(page) <= 0
        assert await axe(page) == []
        await page.get_by_role("button", name="Use it").click()
        await expect(page.get_by_text("The agents use good-mini now.")).to_be_visible()
        assert await page.get_by_label("Key", exact=True).input_value() == ""
        key = daemon.home / "secrets" / "compatible.key"
        assert (key.read_text(), key.stat().st_mode & 0o777) == (f"{KEY}\n", 0o600)
        await page.evaluate("() => { location.hash = '#/chat/main'; }")
        await page.get_by_role("textbox", name="Message to").fill("hello")
        await page.get_by_role("button", name="Send", exact=True).click()
        await expect(page.get_by_role("log").get_by_text("I am here.")).to_be_visible()


@pytest.mark.timeout(180)
async def test_the_reason_stands_above_the_composer_as_long_as_it_holds(
    make_daemon: MakeDaemon, browsing: Browsing
) -> None:
    daemon = make_daemon([{"name": "main", "engine": "auto", "model": "good-mini"}])
    await daemon.start()
    page = await browsing.page("phone")
    await page.goto(str((await daemon.post("/web/links", {})).body["url"]))
    bar = page.locator("p.trouble", has_text="model good-mini is named but")
    await expect(bar.get_by_role("link", name="Set up a model")).to_be_visible()
    assert await overflow_px(page) <= 0
    assert await axe(page) == []
    await page.get_by_role("button", name="What can you do?").click()
    await expect(page.locator("li .words", has_text="What can you do?")).to_be_visible()
    said = page.locator("li .words", has_text="Model good-mini is named but")
    await expect(said).to_be_visible()
    await expect(bar).to_be_visible()
    async with ModelServer(lambda asked: Reply("I am here."), models=("good-mini",)) as server:
        (daemon.home / "agents.json").write_text(
            json.dumps(
                [
                    {
                        "name": "main",
                        "model": "good-mini",
                        "engine_options": {"base_url": server.base_url},
                    }
                ]
            )
        )
        await expect(bar).to_be_hidden()
