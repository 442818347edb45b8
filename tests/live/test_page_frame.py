"""The page's frame in a browser: who gets in and how, moving about, what stands above the views."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Error, FilePayload, Page, Route, expect

import agentsup.api
from tests.live.browser import Browsing, Scheme, axe, overflow_px
from tests.live.page_fixture import CONFIG, RULES, PageFixture, log, mine, say, text_field, theirs
from tests.process.conftest import MakeDaemon
from tests.support.bound import BOUND_S

PAGE = Path(agentsup.api.__file__).parent / "page"
MOST_BYTES = 152_500
"""All files of the page."""
AT_FIRST_BYTES = 109_000
"""Those that the chat loads; each other view comes with its first visit."""
REFUSED = ("401", "409", "WebSocket connection", "ERR_INCOMPLETE")


@pytest.fixture
async def scene(make_daemon: MakeDaemon, browsing: Browsing) -> AsyncIterator[PageFixture]:
    daemon = make_daemon(["main", "writer"], RULES, CONFIG)
    await daemon.start()
    made = PageFixture(daemon, browsing)
    yield made
    await made.close()


async def choose(page: Page, item: str) -> None:
    """One of the account's menu."""
    await page.locator("#who").click()
    await page.get_by_role("button", name=item, exact=True).click()


def test_the_page_is_small() -> None:
    sizes = {path.name: path.stat().st_size for path in PAGE.iterdir()}
    assert sum(sizes.values()) <= MOST_BYTES, sizes


async def test_a_first_visit_loads_the_chat_alone(scene: PageFixture) -> None:
    page, names = await scene.browsing.page(), set[str]()
    page.on("request", lambda request: names.add(urlsplit(request.url).path.rpartition("/")[2]))
    await page.goto(await scene.link("ann"))
    await expect(text_field(page)).to_be_visible()
    sizes = {each: (PAGE / each).stat().st_size for each in names if (PAGE / each).is_file()}
    sizes["index.html"] = (PAGE / "index.html").stat().st_size
    assert "chat.js" in sizes
    assert not {"agents.js", "setup.js", "strangers.js", "work.js"} & sizes.keys()
    assert sum(sizes.values()) <= AT_FIRST_BYTES, sizes


async def test_a_link_signs_in_once_and_leaves_no_trace(scene: PageFixture) -> None:
    page = await scene.browsing.page()
    link = await scene.link("ann")
    await page.goto(link)
    await expect(page.locator("#who")).to_have_text("ann")
    assert "code" not in page.url
    assert await page.evaluate("() => document.cookie") == ""
    await page.go_back()
    assert "code" not in page.url

    # Again, by somebody else: it says why not, and what to do.
    other = await scene.browsing.page()
    await other.goto(link)
    told = other.get_by_role("status").filter(has_text="used before")
    await expect(told).to_contain_text("agentsup link")
    await expect(other.get_by_label("Operator’s token")).to_be_focused()
    assert await axe(other) == []

    # An old link in a browser that is signed in only says so.
    await page.goto(link)
    await expect(page.locator("#toasts")).to_contain_text("You are signed in already")
    await expect(page.locator("#who")).to_have_text("ann")

    # A fresh one in a tab that stands at the sign-in.
    link = await scene.link("ann")
    code = link.partition("#")[2]
    await other.evaluate("(code) => { location.hash = code; }", code)
    await expect(other.locator("#who")).to_have_text("ann")
    assert "code" not in other.url
    scene.forgive(*REFUSED)


async def test_the_token_signs_in_and_a_wrong_one_is_told(scene: PageFixture) -> None:
    page = await scene.browsing.page(device="phone", scheme="dark")
    await page.goto(scene.daemon.url)
    token = page.get_by_label("Operator’s token")
    await token.fill("agentsup_wrong")
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_text("This is not the operator’s token")).to_be_visible()
    assert await axe(page) == []
    assert await overflow_px(page) == 0
    await token.fill(f" {scene.daemon.token} ")
    await page.keyboard.press("Enter")
    await expect(page.locator("#who")).to_have_text("operator")
    await choose(page, "Sign out")
    await expect(page.get_by_text("You are signed out.")).to_be_visible()
    await expect(token).to_have_value("")
    await page.reload()
    await expect(token).to_be_visible()
    scene.forgive(*REFUSED)


async def test_an_ended_session_is_told_and_nothing_typed_is_lost(scene: PageFixture) -> None:
    page = await scene.page("ann")
    other = await scene.page("ann")
    await text_field(page).fill("not sent yet")
    await choose(other, "Sign out everywhere")
    await expect(page.get_by_text("You were signed out")).to_be_visible()
    await page.goto(await scene.link("ann"))
    await expect(text_field(page)).to_have_value("not sent yet")

    # Who signs out leaves nothing behind in the browser.
    await choose(page, "Sign out")
    await expect(page.get_by_text("You are signed out.")).to_be_visible()
    kept = "() => [...Object.keys(localStorage), ...Object.keys(sessionStorage)]"
    assert await page.evaluate(kept) == []
    scene.forgive(*REFUSED)


async def test_an_upload_that_ends_after_one_signed_out_is_forgotten(scene: PageFixture) -> None:
    page = await scene.page()
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(route: Route) -> None:
        begun.set()
        await go_on.wait()
        with suppress(Error):  # the page may have given it up
            await route.fulfill(status=201, json={"path": "inbox/diary.txt", "name": "diary.txt"})

    await page.route("**/web/uploads*", slow)
    secret: FilePayload = {"name": "diary.txt", "mimeType": "text/plain", "buffer": b"x"}
    await page.locator("input[type=file]").set_input_files([secret])
    await begun.wait()
    await choose(page, "Sign out")
    await expect(page.get_by_text("You are signed out.")).to_be_visible()
    go_on.set()
    await page.evaluate("() => fetch('/healthz').then((answer) => answer.text())")
    await page.evaluate("() => new Promise(requestAnimationFrame)")
    kept = "() => [...Object.keys(localStorage), ...Object.keys(sessionStorage)]"
    assert await page.evaluate(kept) == []
    scene.forgive(*REFUSED)


async def test_one_moves_about_by_address_and_by_keyboard(scene: PageFixture) -> None:
    page = await scene.page()
    views = page.get_by_role("navigation", name="Views")
    names = ("Agents", "Work", "Questions", "Failed messages", "Statistics")
    for name in names:
        await views.get_by_role("link", name=name).click()
        heading = page.get_by_role("heading", name=name, level=1)
        await expect(heading).to_be_focused()
        await expect(page).to_have_title(re.compile(rf"^{name}"))
        await expect(views.get_by_role("link", name=name)).to_have_attribute("aria-current", "page")
        assert await axe(page) == []
    await page.go_back()
    await expect(page.get_by_role("heading", name="Failed messages")).to_be_visible()
    await page.goto(f"{scene.daemon.url}/#/log/main")
    await expect(page.get_by_role("heading", level=1)).to_contain_text("main")
    await page.goto(f"{scene.daemon.url}/#/nonsense")
    await expect(log(page)).to_be_visible()

    # By keyboard: past the skip link, through the menu, out again.
    await page.reload()
    await expect(log(page)).to_be_visible()
    skip = page.get_by_role("link", name="Skip to the content")
    await skip.focus()
    await expect(skip).to_be_in_viewport()
    await page.keyboard.press("Enter")
    await expect(page.locator("#view")).to_be_focused()
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("link", name="main")).to_be_focused()
    await page.locator("#who").press("Enter")
    await expect(page.get_by_role("button", name="Sign out", exact=True)).to_be_visible()
    assert await axe(page) == []
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("button", name="Sign out", exact=True)).to_be_hidden()
    await expect(page.locator("#who")).to_be_focused()


BROKEN = """() => {
	const found = [];
	for (const label of document.querySelectorAll('#views a, button, .button, .count')) {
		const walk = document.createTreeWalker(label, NodeFilter.SHOW_TEXT);
		for (let text = walk.nextNode(); text; text = walk.nextNode()) {
			for (const word of text.data.matchAll(/\\S+/g)) {
				const range = document.createRange();
				range.setStart(text, word.index);
				range.setEnd(text, word.index + word[0].length);
				const tops = new Set([...range.getClientRects()].map((one) => Math.round(one.top)));
				if (tops.size > 1) found.push(word[0]);
			}
		}
	}
	return found;
}"""
"""Words of labels that stand on more than one line."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_no_label_breaks_inside_a_word_at_any_width(
    scene: PageFixture, scheme: Scheme
) -> None:
    """Phones, upright tablets and halves of a screen, in both languages."""
    page = await scene.page(scheme=scheme)
    await say(page, "hello")
    views = ("#/chat/main", "#/agents", "#/work", "#/questions", "#/dead", "#/figures")
    for width in (320, 390, 769, 820, 870, 1000, 1280):
        await page.set_viewport_size({"width": width, "height": 700})
        for view in views:
            await page.goto(f"{scene.daemon.url}/{view}")
            await expect(page.locator("#view")).to_be_visible()
            where = (width, view)
            assert (where, await page.evaluate(BROKEN)) == (where, [])
            assert (where, await overflow_px(page)) == (where, 0)
    await page.set_viewport_size({"width": 390, "height": 844})
    await page.goto(f"{scene.daemon.url}/#/chat/main")
    await page.get_by_role("button", name="Sessions").click()
    await expect(page.get_by_text("A session is what the agent remembers")).to_be_visible()
    # The first is named so long that its button has as little room as there may be.
    for name in ("all about the garden and its birds " * 3).strip(), "":
        await page.get_by_role("textbox", name="Name of the new session").fill(name)
        await page.get_by_role("button", name="New session").click()
        await page.get_by_role("button", name="Sessions").click()
        await expect(page.get_by_role("button", name=re.compile("^Switch")).first).to_be_visible()
    await expect(page.get_by_role("button", name=re.compile("^Switch"))).to_have_count(2)
    assert await page.evaluate(BROKEN) == []


async def test_questions_are_counted_and_everything_is_stopped(scene: PageFixture) -> None:
    page = await scene.page()
    views = page.get_by_role("navigation", name="Views")
    await say(page, "tea")
    await expect(views.get_by_role("link", name="Questions")).to_contain_text("1 open")
    await scene.daemon.send("writer", "slow one")
    await page.locator("#who").click()
    await page.get_by_role("button", name="Stop everything").click()
    asked = page.get_by_role("dialog")
    await expect(asked).to_contain_text("ends what runs (1) and drops what waits (1)")
    assert await axe(page) == []
    await page.keyboard.press("Escape")
    await expect(asked).to_be_hidden()
    assert (await scene.daemon.agents())["writer"]["running"] == 1
    await choose(page, "Stop everything")
    await asked.get_by_role("button", name="Stop everything").click()
    await expect(page.locator("#toasts")).to_contain_text("Stopped: 1 running, 1 waiting")
    await expect(page.get_by_role("button", name="black")).to_be_disabled()
    await expect(page.locator("#open-questions")).to_be_hidden()
    await expect(mine(page, "tea")).not_to_contain_text("waits")


async def test_somebody_else_finds_nothing_of_who_was_here(scene: PageFixture) -> None:
    page = await scene.page("ann")
    await text_field(page).fill("a secret draft")
    await say(page, "hello")
    await expect(theirs(page, "you said hello")).to_be_visible()
    await text_field(page).fill("a secret draft")
    await page.goto(await scene.link())
    await page.get_by_role("button", name="Sign in as operator").click()
    await expect(page.locator("#who")).to_have_text("operator")
    await expect(log(page)).to_be_visible()
    await expect(text_field(page)).to_have_value("")
    await expect(log(page)).not_to_contain_text("hello")
    await page.goto(f"{scene.daemon.url}/#/chat/main/ann")
    await expect(theirs(page, "you said hello")).to_be_visible()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("ann")
    scene.forgive(*REFUSED)


async def test_a_foreign_link_asks_before_it_replaces_a_session(scene: PageFixture) -> None:
    page = await scene.page(device="phone")
    foreign = await scene.link("ann")
    await page.goto(foreign)
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("You wrote here as operator")
    assert await axe(page) == []
    assert "code" not in page.url
    await dialog.get_by_role("button", name="Cancel").click()
    await expect(page.locator("#who")).to_have_text("operator")
    await expect(log(page)).to_be_visible()
    await page.reload()
    await expect(page.locator("#who")).to_have_text("operator")
    await page.goto(foreign)
    await dialog.get_by_role("button", name="Sign in as ann").click()
    await expect(page.locator("#who")).to_have_text("ann")
    scene.forgive(*REFUSED)


async def test_a_link_is_kept_while_the_daemon_refuses_or_is_away(scene: PageFixture) -> None:
    page = await scene.browsing.page()
    link = await scene.link("ann")
    refused = {"status": 503, "json": {"detail": "not now"}}
    await page.route("**/web/login", lambda route: route.fulfill(**refused))
    await page.goto(link)
    await expect(page.get_by_text("not now")).to_be_visible()
    assert "code" not in page.url
    await page.unroute("**/web/login")
    await page.get_by_role("button", name="Try the link again").click()
    await expect(page.locator("#who")).to_have_text("ann")
    scene.forgive("503", *REFUSED)


async def test_the_page_speaks_the_language_of_its_person(scene: PageFixture) -> None:
    config = scene.daemon.home / "config.toml"
    config.write_text(
        config.read_text().replace("[people.ann]\n", '[people.ann]\nlanguage = "de"\n')
    )
    page = await scene.browsing.page()
    await page.goto(scene.daemon.url)
    await expect(page.get_by_role("button", name="Sign in")).to_be_visible()
    await expect(page.locator("html")).to_have_attribute("lang", re.compile("^en"))
    await page.goto("about:blank")
    async with asyncio.timeout(BOUND_S):
        while True:  # the daemon takes the edit when it sees it
            context = await scene.browsing.context()
            page = await context.new_page()
            await page.goto(await scene.link("ann"))
            await expect(page.locator("#who")).to_have_text("ann")
            if await page.locator("html").get_attribute("lang") == "de":
                break
    await expect(page.get_by_role("textbox", name="Nachricht an main")).to_be_visible()
    for name in ("Agenten", "Arbeit", "Fragen", "Fehlgeschlagene Nachrichten", "Statistik"):
        await (
            page.get_by_role("navigation", name="Ansichten").get_by_role("link", name=name).click()
        )
        await expect(page.get_by_role("heading", name=name, level=1)).to_be_focused()
        await expect(page.locator(".loading")).to_have_count(0)
        assert await axe(page) == []
    await page.locator("#who").click()
    await expect(page.get_by_role("button", name="Überall abmelden")).to_be_visible()
    await page.goto(f"{scene.daemon.url}/#/chat/main")
    await page.get_by_role("textbox", name="Nachricht an main").fill("/status")
    await page.get_by_role("button", name="Senden", exact=True).click()
    await expect(log(page)).to_contain_text("läuft, seit")

    # Where nobody has said it, the browser does.
    context = await scene.browsing.context(locale="de-CH")
    page = await context.new_page()
    await page.goto(scene.daemon.url)
    await expect(page.get_by_role("button", name="Anmelden")).to_be_visible()
    await expect(page.locator("html")).to_have_attribute("lang", "de-CH")
    assert await axe(page) == []
    scene.forgive(*REFUSED)


async def test_a_tab_asks_before_it_goes_on_as_somebody_else(scene: PageFixture) -> None:
    page = await scene.page("ann")
    other = await page.context.new_page()
    await other.goto(scene.daemon.url)
    await expect(other.locator("#who")).to_have_text("ann")
    await text_field(page).fill("of ann")
    third = await page.context.new_page()
    await third.goto(scene.daemon.url)
    await choose(third, "Sign out everywhere")
    await expect(page.get_by_text("You were signed out.")).to_be_visible()
    await expect(other.get_by_text("You were signed out.")).to_be_visible()
    await expect(third.get_by_text("You are signed out.")).to_be_visible()  # it forgot its secret
    await third.close()

    # A link of somebody else where ann was: it signs nobody in unasked.
    link = await scene.link()
    await other.goto(link)
    asked = other.get_by_role("dialog")
    await expect(asked).to_contain_text("ann")
    await asked.get_by_role("button", name="Cancel").click()
    await expect(other.get_by_label("Operator’s token")).to_be_visible()
    # The sign-in stands below the dialog, so it is visible before the page has signed out.
    await other.wait_for_function("() => !localStorage['agentsup:secret']")
    await expect(page.locator("#shell")).to_be_hidden()

    # In a new tab it does, and each tab of ann's asks for itself.
    fresh = await page.context.new_page()
    await fresh.goto(await scene.link())
    await expect(fresh.locator("#who")).to_have_text("operator")
    asked = page.get_by_role("dialog")
    await expect(asked).to_contain_text("ann")
    await expect(page.locator("#shell")).to_be_hidden()
    assert await axe(page) == []
    await page.reload()
    await expect(asked).to_contain_text("ann")
    await asked.get_by_role("button", name="Sign in as operator").click()
    await expect(page.locator("#who")).to_have_text("operator")
    await expect(text_field(page)).to_have_value("")
    asked = other.get_by_role("dialog")
    await asked.get_by_role("button", name="Cancel").click()
    await expect(other.get_by_text("operator is signed in")).to_be_visible()

    # As ann again, a tab that never was another's asks nothing.
    await choose(fresh, "Sign out")
    await fresh.goto(await scene.link("ann"))
    await expect(other.locator("#who")).to_have_text("ann")
    scene.forgive(*REFUSED)


HEARD_TWICE = """() => {
    for (const _ of [1, 2]) dispatchEvent(new StorageEvent('storage', { key: 'agentsup:secret' }));
}"""


async def test_all_tabs_follow_who_signs_in_and_out(scene: PageFixture) -> None:
    page = await scene.page("ann")
    other = await page.context.new_page()
    await other.goto(scene.daemon.url)
    await expect(other.locator("#who")).to_have_text("ann")
    await text_field(page).fill("of ann")
    await other.goto(await scene.link())
    await other.get_by_role("button", name="Sign in as operator").click()
    await expect(other.locator("#toasts")).to_contain_text("You are signed in as operator.")
    # A tab may hear of it twice: by its connection, which ends, and by the browser's storage.
    await page.evaluate(HEARD_TWICE)
    await page.get_by_role("button", name="Sign in as operator").click()
    await expect(page.locator("#who")).to_have_text("operator")
    await expect(text_field(page)).to_have_value("")
    await say(page, "of the operator")
    await expect(theirs(other, "you said of the operator")).to_be_visible()
    await choose(other, "Sign out")
    for tab in (page, other):
        await expect(tab.get_by_label("Operator’s token")).to_be_visible()
    await expect(page.get_by_text("You were signed out.")).to_be_visible()
    assert await page.evaluate("() => localStorage['agentsup:secret']") is None
    scene.forgive(*REFUSED)


async def test_a_session_that_ended_meanwhile_is_told_as_such_and_a_new_browser_is_not(
    scene: PageFixture,
) -> None:
    page = await scene.page("ann", device="phone")
    await page.goto("about:blank")
    other = await scene.page("ann")
    await choose(other, "Sign out everywhere")
    await expect(other.get_by_text("You are signed out.")).to_be_visible()
    await page.goto(scene.daemon.url)
    await expect(page.get_by_text("You were signed out. Sign in again")).to_be_visible()
    assert await axe(page) == []
    fresh = await scene.browsing.page()
    await fresh.goto(scene.daemon.url)
    await expect(fresh.get_by_label("Operator’s token")).to_be_focused()
    await expect(fresh.locator("#sign-in-why")).to_be_empty()
    scene.forgive(*REFUSED)
