"""Tasks and the settings of agents on the page: seen, created, paused, changed, deleted."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Locator, Page, expect

from tests.live.browser import Browsing, axe, overflow_px
from tests.live.page_fixture import PageFixture
from tests.process.conftest import MakeDaemon

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]

RULES = [
    {"match": "wait (.+)", "steps": [{"sleep": 600}]},
    {"match": "(.+)", "steps": [{"say": "did $1"}]},
]


@pytest.fixture
async def scene(make_daemon: MakeDaemon, browsing: Browsing) -> AsyncIterator[PageFixture]:
    daemon = make_daemon(
        [{"name": "main"}, {"name": "cook"}], RULES, '[people.ann]\nrole = "user"\n'
    )
    await daemon.start()
    made = PageFixture(daemon, browsing)
    yield made
    await made.close()


def item(page: Page, text: str) -> Locator:
    return page.locator("#view .item", has_text=text)


async def show(page: Page, view: str) -> None:
    await page.get_by_role("navigation", name="Views").get_by_role("link", name=view).click()
    await expect(page.get_by_role("heading", name=view)).to_be_visible()


async def agree(page: Page, button: str) -> None:
    await page.get_by_role("dialog").get_by_role("button", name=button, exact=True).click()


async def test_a_task_is_created_run_again_and_deleted_on_a_phone(scene: PageFixture) -> None:
    page = await scene.page(device="phone")
    await show(page, "Tasks")
    await expect(page.get_by_text("No tasks. Create one here")).to_be_visible()
    await page.get_by_role("button", name="New task").click()
    dialog = page.get_by_role("dialog", name="New task")
    await dialog.get_by_label("To do").fill("count <b>birds</b>")
    await dialog.get_by_label("Agent").select_option("cook")
    assert await axe(page) == []
    await agree(page, "Create")

    birds = item(page, "birds")
    await expect(birds.locator(".tag")).to_have_text("done")
    await expect(birds).to_contain_text("cook")
    await birds.locator("summary").click()
    await expect(birds).to_contain_text("did count <b>birds</b>")
    await birds.get_by_role("button", name="Run now").click()
    await expect(birds).to_contain_text("2 runs")
    assert await axe(page) == []
    assert await overflow_px(page) <= 0
    await birds.get_by_role("button", name="Delete").click()
    await agree(page, "Delete")
    await expect(page.get_by_text("No tasks. Create one here")).to_be_visible()


async def test_a_schedule_is_paused_goes_on_and_is_cancelled(scene: PageFixture) -> None:
    schedule = {"cron": "30 8 * * MON-FRI", "timezone": "Europe/Berlin"}
    body = {"prompt": "read the feeds", "schedule": schedule}
    assert (await scene.daemon.post("/tasks/create", body)).status == 200
    page = await scene.page()
    await show(page, "Tasks")
    feeds = item(page, "read the feeds")
    await expect(feeds).to_contain_text("next run")
    await feeds.get_by_role("button", name="Pause").click()
    await expect(feeds).to_contain_text("schedule paused")
    await expect(feeds.get_by_role("button", name="Pause")).to_be_hidden()
    await feeds.get_by_role("button", name="Go on").click()
    await expect(feeds).to_contain_text("next run")
    await feeds.locator("summary").click()
    await expect(feeds).to_contain_text("30 8 * * MON-FRI (Europe/Berlin)")
    await feeds.get_by_role("button", name="Cancel").click()
    await agree(page, "Cancel it")
    await expect(feeds.locator(".tag")).to_have_text("cancelled")
    await expect(feeds).not_to_contain_text("next run")


async def test_who_is_no_operator_has_tasks_in_the_chat_only(scene: PageFixture) -> None:
    page = await scene.page("ann")
    links = page.get_by_role("navigation", name="Views").get_by_role("link")
    await expect(links.filter(has_text="Work")).to_be_visible()
    await expect(links.filter(has_text="Tasks")).to_have_count(0)
    await page.evaluate("() => { location.hash = '#/tasks'; }")
    await expect(page.get_by_role("log")).to_be_visible()


async def test_a_setting_is_changed_and_given_back_to_the_files(scene: PageFixture) -> None:
    page = await scene.page(device="phone")
    await show(page, "Agents")
    await expect(page.get_by_role("article", name="main")).not_to_contain_text("true")
    cook = page.get_by_role("article", name="cook")
    for given, value in (("600", 600), ("", 1800)):
        await cook.get_by_role("button", name="Settings").click()
        dialog = page.get_by_role("dialog", name="Settings of cook")
        await dialog.get_by_label("turn_timeout_s").fill(given)
        await expect(dialog.locator("#about-turn_timeout_s")).to_be_visible()
        await expect(dialog.locator("tbody")).not_to_contain_text('"–"')
        assert await axe(page) == []
        assert await overflow_px(page) <= 0
        async with page.expect_response(lambda answer: answer.request.method == "POST"):
            await agree(page, "Save")
        await expect(page.get_by_text("Saved.").last).to_be_visible()
        fields = (await scene.daemon.get("/agents/cook/overrides"))["fields"]
        (limit,) = (each for each in fields if each["field"] == "turn_timeout_s")
        assert limit["value"] == value
