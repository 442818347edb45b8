"""The page's views beside the chat, in a browser, with a real daemon behind them."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final

import pytest
from playwright.async_api import Locator, Page, expect

from tests.live.browser import Browsing, Device, Scheme, axe, overflow_px
from tests.process.conftest import MakeDaemon
from tests.support.bound import BOUND_S
from tests.support.daemon_process import DaemonProcess

VIEWS: Final = ("agents", "work", "tasks", "questions", "dead", "log/main", "figures", "setup")
WIDER: Final = "(it) => it.scrollWidth - it.clientWidth"
"""The part of the page that scrolls, beyond its width."""
RULES: Final[list[dict[str, Any]]] = [
    {"match": "wait (.+)", "steps": [{"sleep": 600}, {"say": "waited for $1"}]},
    {"match": "choose", "steps": [{"question": {"text": "Tea?", "options": ["tea", "coffee"]}}]},
    {"match": "name(.*)", "steps": [{"question": {"text": "Whose name$1?"}}, {"say": "$result"}]},
    {
        "match": "soon",
        "steps": [{"question": {"text": "Quick?", "options": ["yes"], "timeout": 3000}}],
    },
    {"match": "crash (.+)", "steps": [{"crash": "boom $1"}]},
    {"match": "fail (.+)", "steps": [{"fail": "it can't be done: $1"}]},
    {
        "match": "pay",
        "steps": [{"usage": {"input": 1200, "output": 300, "usd": 0.25}}, {"say": "paid"}],
    },
    {"match": "(.+)", "steps": [{"say": "you said $1"}]},
]
LEAVE: Final[list[dict[str, Any]]] = [
    {
        "match": "run",
        "steps": [
            {"tool": {"name": "exec", "args": {"argv": ["echo", "this one"]}}},
            {"say": "it said $result"},
        ],
    },
]
WORDS: Final = {
    "en": {
        "message": "Message to main",
        "edit": "Edit",
        "other": "Arguments, as JSON",
        "once": "Once",
        "closed": "Closed questions",
        "answered": "Answered by ann: Once",
    },
    "de": {
        "message": "Nachricht an main",
        "edit": "Bearbeiten",
        "other": "Argumente, als JSON",
        "once": "Einmal",
        "closed": "Geschlossene Fragen",
        "answered": "Von ann beantwortet: Einmal",
    },
}
CONFIG: Final = '[people.ann]\nrole = "user"\n[people.vic]\nrole = "viewer"\n'


@dataclass(slots=True)
class Fixture:
    """A daemon with three agents, and pages of people who are signed in."""

    daemon: DaemonProcess
    browsing: Browsing

    async def page(
        self,
        view: str,
        person: str | None = None,
        device: Device = "desktop",
        scheme: Scheme = "light",
    ) -> Page:
        """A page that shows ``view``, signed in by a one-time link."""
        made = await self.daemon.post("/web/links", {"person": person})
        page = await self.browsing.page(device, scheme)
        await page.goto(made.body["url"])
        await expect(page.get_by_role("navigation", name="Views")).to_be_visible()
        await show(page, view)
        return page

    async def crashed(self, agent: str, text: str) -> str:
        """A message that the agent crashes over until it is given up; its id."""
        message_id = await self.daemon.send(agent, f"crash {text}")
        assert (await self.daemon.result(message_id, BOUND_S))["state"] == "dead"
        return message_id

    async def asked(self, agent: str, text: str) -> str:
        """A message whose question is open; its id."""
        message_id = await self.daemon.send(agent, text, new_session=True)
        async for _ in self.daemon.events(types="question.asked"):
            found = (await self.daemon.get("/questions"))["questions"]
            if any(question["message_id"] == message_id for question in found):
                break
        return message_id


async def show(page: Page, view: str) -> None:
    """Go to a view of the page."""
    await page.evaluate("(hash) => { location.hash = hash; }", f"#/{view}")
    name = re.split("[/?]", view)[0]
    await expect(page.locator(f"#view .{name} h1")).to_be_visible()
    await expect(page.get_by_text("Loading…")).to_have_count(0)


async def show_chat(page: Page) -> None:
    await page.evaluate("() => { location.hash = '#/chat/main'; }")
    await expect(page.get_by_role("log")).to_be_visible()


@pytest.fixture
async def house(make_daemon: MakeDaemon, browsing: Browsing) -> AsyncIterator[Fixture]:
    agents = [
        {"name": "main"},
        {"name": "writer", "role": "chronicler", "model": "large"},
        {"name": "cook"},
    ]
    daemon = make_daemon(agents, RULES, CONFIG)
    await daemon.start()
    yield Fixture(daemon, browsing)
    for context in browsing.browser.contexts:
        await context.close()


def card(page: Page, name: str) -> Locator:
    return page.get_by_role("article", name=name)


def item(page: Page, text: str) -> Locator:
    return page.locator("#view .item", has_text=text)


async def has_focus(found: Locator) -> bool:
    return bool(await found.evaluate("(it) => it === document.activeElement"))


# -- agents ----------------------------------------------------------------------------------------


async def test_agents_are_watched_stopped_and_started(house: Fixture) -> None:
    page = await house.page("agents")
    writer = card(page, "writer")
    await expect(writer).to_contain_text("running for")
    await expect(writer).to_contain_text("chronicler")
    await expect(writer).to_contain_text("large")
    await expect(page.locator("#view .board > .soft")).to_have_text("3 of 3 agents up")
    await expect(card(page, "main").get_by_role("button", name="Stop")).to_have_count(0)

    # What waits and runs is told at once, and a stop says what becomes of it.
    await house.daemon.send("writer", "wait here")
    await house.daemon.send("writer", "second")
    await expect(writer).to_contain_text("1 running (thinking) · 1 waiting")
    stop = writer.get_by_role("button", name="Stop")
    await stop.click()
    asked = page.get_by_role("dialog")
    await expect(asked).to_contain_text("Turns under way: 1")
    await expect(asked).to_contain_text("Waiting: 1; this is kept")
    await house.daemon.send("writer", "third")
    await expect(writer).to_contain_text("2 waiting")
    await expect(asked).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(asked).to_be_hidden()
    assert await has_focus(stop)
    assert (await house.daemon.agents())["writer"]["desired"] == "up"

    # Cook has nothing to end.
    cook = card(page, "cook")
    await cook.get_by_role("button", name="Stop").click()
    await asked.get_by_role("button", name="Stop it").click()
    await expect(cook).to_contain_text("stopped")
    await expect(page.locator("#view .board > .soft")).to_have_text("2 of 3 agents up")
    assert (await house.daemon.agents())["cook"]["desired"] == "down"
    start = cook.get_by_role("button", name="Start")
    await expect(start).to_be_focused()
    before = (await house.daemon.agents())["cook"]["instance_id"]
    await page.keyboard.press("Enter")
    await expect(cook).to_contain_text("running for")
    life = (await house.daemon.agents())["cook"]["instance_id"]
    assert life != before
    await cook.get_by_role("button", name="Restart").click()
    await house.daemon.until("cook", "running")
    assert (await house.daemon.agents())["cook"]["instance_id"] != life

    # Time goes on by itself; what others do is seen without asking.
    await expect(cook).to_contain_text(re.compile(r"running for [3-9] s"))
    await house.daemon.post("/agents/cook/stop")
    await expect(cook).to_contain_text("stopped")


async def test_an_agent_is_added(house: Fixture) -> None:
    page = await house.page("agents")
    await page.get_by_role("button", name="Add agent").click()
    dialog = page.get_by_role("dialog", name="New agent")
    await dialog.get_by_label("Name").fill("gardener")
    await dialog.get_by_label("What it is for").fill("knows the beds")
    assert (await axe(page), await overflow_px(page)) == ([], 0)
    house.browsing.forgive("409")  # there is no bot of main's that could make it one
    await dialog.get_by_role("button", name="Add", exact=True).click()
    await expect(card(page, "gardener")).to_contain_text("running")
    (entry,) = [
        each
        for each in json.loads((house.daemon.home / "agents.json").read_text())
        if each["name"] == "gardener"
    ]
    assert entry["description"] == "knows the beds"


async def test_an_agent_tells_its_settings_its_edits_and_why_it_failed(house: Fixture) -> None:
    page = await house.page("agents")
    writer = card(page, "writer")
    await writer.get_by_role("button", name="Settings").click()
    dialog = page.get_by_role("dialog", name="Settings of writer")
    await dialog.locator("summary").click()
    row = dialog.get_by_role("row", name=re.compile("^model "))
    await expect(row).to_contain_text("large")
    await expect(row).to_contain_text("agents.json")
    # What somebody has set comes first.
    origins = await dialog.locator("tbody td:last-child").all_inner_texts()
    assert origins[-1] == "built-in"
    assert sorted(origins, key=lambda origin: origin == "built-in") == origins
    assert await axe(page) == []
    await page.keyboard.press("Escape")

    # An edit of a busy agent waits for its turn, and is told.
    await house.daemon.send("writer", "wait here")
    await expect(writer).to_contain_text("1 running")
    path = house.daemon.home / "agents.json"
    entries = json.loads(path.read_text())
    entries[1]["engine_options"] = {"rules": []}
    path.write_text(json.dumps(entries))
    await expect(writer).to_contain_text("Edit: rebuild pending")
    await expect(page.get_by_role("heading", name="Edits")).to_be_visible()
    await expect(page.locator("#view .card", has_text="Edits")).to_contain_text("writer:")
    path.write_text(path.read_text()[:-2])
    await expect(page.locator("#view .card", has_text="Edits")).to_contain_text("agents.json")

    cook = card(page, "cook")
    await house.daemon.send("cook", "crash over the soup")
    await expect(cook).to_contain_text("boom over the soup")


# -- work ------------------------------------------------------------------------------------------


async def test_work_is_seen_cancelled_and_moved_up(house: Fixture) -> None:
    page = await house.page("work")
    await expect(page.get_by_text("Nothing runs and nothing waits.")).to_be_visible()
    first = await house.daemon.send("writer", "wait here")
    await expect(item(page, "wait here")).to_contain_text("running")
    second = await house.daemon.send("writer", "second")
    third = await house.daemon.send("writer", "third")
    await expect(item(page, "third")).to_contain_text("1 before it")
    await expect(page.locator("#view .board > .soft")).to_have_text("1 running · 2 waiting")
    shown = await page.locator("#view .item .clamp").all_text_contents()
    assert shown == ["wait here", "third", "second"], "what runs, then the newest"

    # Nothing that is shown anew closes what was opened.
    await item(page, "third").locator("summary").click()
    await expect(item(page, "third")).to_contain_text(third)
    await item(page, "third").get_by_label("Priority").select_option("high")
    await expect(item(page, "third")).to_contain_text("high priority")
    await expect(item(page, "third").locator("details")).to_have_attribute("open", "")
    assert (await house.daemon.get(f"/messages/{third}"))["priority"] == "high"

    # By keyboard: the neighbour gets the focus of what has gone.
    await item(page, "second").get_by_role("button", name="Cancel").focus()
    await page.keyboard.press("Enter")
    await expect(item(page, "second")).to_have_count(0)
    assert (await house.daemon.result(second, 0))["state"] == "cancelled"
    assert await has_focus(page.locator("#view .item summary").nth(1))

    await item(page, "wait here").get_by_role("button", name="Cancel").click()
    await page.get_by_role("dialog").get_by_role("button", name="Cancel it").click()
    await expect(page.get_by_text("Nothing runs and nothing waits.")).to_be_visible()
    assert (await house.daemon.result(first, 0))["state"] == "cancelled"
    assert (await house.daemon.result(third))["text"] == "you said third"


# -- questions -------------------------------------------------------------------------------------


async def test_questions_are_answered(house: Fixture) -> None:
    page = await house.page("questions")
    await expect(page.get_by_text("No agent has a question.")).to_be_visible()
    chosen = await house.asked("main", "choose")
    await expect(item(page, "Tea?").get_by_role("button")).to_have_count(2)
    named = await house.asked("writer", "name")
    answer = item(page, "Whose name?").get_by_label("Your answer")
    await answer.fill("An")
    # Another one comes while one types.
    await house.asked("cook", "soon")
    await expect(item(page, "Quick?")).to_contain_text(re.compile(r"ends in (50|49) min"))
    await page.keyboard.type("n")
    await expect(answer).to_have_value("Ann")
    await page.keyboard.press("Enter")
    await expect(item(page, "Whose name?")).to_have_count(0)
    assert (await house.daemon.result(named))["text"] == "Ann"
    await item(page, "Tea?").get_by_role("button", name="coffee").click()
    await expect(item(page, "Tea?")).to_have_count(0)
    assert (await house.daemon.result(chosen))["success"]

    # Answered elsewhere meanwhile: it goes by itself; who answered stays known.
    found = (await house.daemon.get("/questions"))["questions"]
    await house.daemon.post(f"/questions/{found[0]['id']}/answer", {"answer": "yes"})
    await expect(page.get_by_text("No agent has a question.")).to_be_visible()
    await page.get_by_text("Closed questions").click()
    await expect(item(page, "Tea?")).to_contain_text("Answered by operator: coffee")
    await expect(item(page, "Whose name?")).to_contain_text("Answered by operator: Ann")
    await expect(page.locator("#view .item")).to_have_count(3)
    await expect(page.locator("#view :is(button, input):enabled")).to_have_count(0)


@pytest.mark.parametrize("language", ["en", "de"])
@pytest.mark.parametrize("view", ["questions", "chat"])
async def test_a_call_gets_leave_with_other_arguments(
    make_daemon: MakeDaemon, browsing: Browsing, language: str, view: str
) -> None:
    config = f'[people.ann]\nrole = "operator"\nlanguage = "{language}"\n'
    daemon = make_daemon([{"name": "main", "tools": ["exec"]}], LEAVE, config)
    await daemon.start()
    page = await browsing.page()
    await page.goto((await daemon.post("/web/links", {"person": "ann"})).body["url"])
    words = WORDS[language]
    await page.get_by_role("textbox", name=words["message"]).fill("run")
    await page.keyboard.press("Enter")
    if view == "questions":
        await show(page, view)
    card = page.locator(".question")
    # What is to be called stands there as code, not as its marks.
    await expect(card.locator("pre")).to_contain_text("exec")
    await expect(card).not_to_contain_text("```")
    assert await axe(page) == []
    other = card.get_by_role("textbox", name=words["other"])
    await expect(other).to_have_count(0)
    await card.get_by_role("button", name=words["edit"]).click()
    await expect(other).to_be_focused()
    assert json.loads(await other.input_value()) == {"argv": ["echo", "this one"]}
    assert await axe(page) == []
    await other.fill("{not json")
    await card.get_by_role("button", name=words["once"]).click()
    await expect(page.locator("#toasts")).to_contain_text("JSON")
    await other.fill('{"argv": 5}')
    await card.get_by_role("button", name=words["once"]).click()
    await expect(page.locator("#toasts")).to_contain_text("argv")
    await other.fill('{"argv": ["echo", "the other one"]}')
    await card.get_by_role("button", name=words["once"]).click()
    if view == "questions":
        await expect(card).to_have_count(0)
        await page.get_by_text(words["closed"]).click()
    await expect(card).to_contain_text(words["answered"])
    await expect(other).to_have_count(0)
    await expect(card.get_by_role("button", name=words["once"])).to_be_disabled()
    await show_chat(page)
    await expect(page.get_by_role("log")).to_contain_text("it said")
    await expect(page.get_by_role("log")).to_contain_text("the other one")
    await expect(card).to_contain_text(words["answered"])
    await page.context.close()
    browsing.forgive()  # what was refused


@pytest.mark.parametrize("view", ["questions", "chat"])
async def test_a_long_call_is_seen_whole_and_every_command_confirmed(
    make_daemon: MakeDaemon, browsing: Browsing, view: str
) -> None:
    hidden = "the part in the middle"
    args = {"argv": ["echo", f"{'x' * 4000} {hidden} {'y' * 4000}"]}
    rules = [
        {"match": "long", "steps": [{"tool": {"name": "exec", "args": args}}, {"say": "ran"}]},
        *LEAVE,
    ]
    daemon = make_daemon([{"name": "main", "tools": ["exec"]}], rules, CONFIG)
    await daemon.start()
    page = await browsing.page("phone")
    await page.goto((await daemon.post("/web/links", {"person": None})).body["url"])
    await page.get_by_role("textbox", name="Message to main").fill("long")
    await page.get_by_role("button", name="Send", exact=True).click()
    if view == "questions":
        await show(page, view)
    card = page.locator(".question")
    await expect(card).to_contain_text("A part of this call only")
    await expect(card).not_to_contain_text(hidden)
    await expect(card.get_by_role("button", name="Once")).to_have_count(0)
    await expect(card.get_by_role("button", name="Deny")).to_be_visible()
    await card.get_by_role("button", name="Show all of it").click()
    await expect(card).to_contain_text(hidden)
    assert await axe(page) == []
    assert await overflow_px(page) == 0
    await card.get_by_role("button", name="Once").click()
    await show_chat(page)
    await expect(page.get_by_role("log")).to_contain_text("ran")
    await page.get_by_role("textbox", name="Message to main").fill("run")
    await page.get_by_role("button", name="Send", exact=True).click()
    if view == "questions":
        await show(page, view)
    card = page.locator(".question", has_text="this one")
    await card.get_by_role("button", name="echo * here").click()
    await expect(card).to_contain_text("plain words")
    await expect(card.get_by_role("button", name="echo * · today")).to_be_visible()
    assert await axe(page) == []
    assert await overflow_px(page) == 0
    assert (await daemon.get("/approvals"))["approvals"] == []
    await card.get_by_role("button", name="Back").click()
    await expect(card).to_contain_text("“This run”")
    every = card.get_by_role("button", name="Always, every command")
    await every.click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("without asking")
    await dialog.get_by_role("button", name="Cancel").click()
    assert (await daemon.get("/approvals"))["approvals"] == []
    await every.click()
    await dialog.get_by_role("button", name="Every command").click()
    await show_chat(page)
    await expect(page.get_by_role("log")).to_contain_text("it said")
    (grant,) = (await daemon.get("/approvals"))["approvals"]
    assert (grant["tool"], grant["scope"], grant["pattern"]) == ("exec", "always", "")
    await page.context.close()


# -- failed messages ----------------------------------------------------------------------------------


async def test_dead_letters_are_requeued_replayed_and_dropped(house: Fixture) -> None:
    page = await house.page("dead")
    await expect(page.get_by_text("No failed messages.")).to_be_visible()
    soup = await house.crashed("cook", "over the soup")
    await expect(item(page, "crash over the soup")).to_contain_text("boom over the soup")
    await expect(item(page, "crash over the soup")).to_contain_text("2 attempts")
    letter = await house.crashed("writer", "over the letter")
    await expect(page.locator("#view .board > .soft")).to_have_text("2 messages")
    # The mended agents answer what they could not.
    rules = [{"match": "crash (.+)", "steps": [{"say": "mended $1"}]}]
    (house.daemon.home / "rules.yaml").write_text(json.dumps(rules))
    for name in ("cook", "writer"):
        await house.daemon.until(name, "running", timeout_s=BOUND_S)
    await item(page, "soup").get_by_role("button", name="Requeue").click()
    await expect(item(page, "soup")).to_have_count(0)
    assert (await house.daemon.result(soup))["text"] == "mended over the soup"

    await item(page, "letter").get_by_role("button", name="Replay").click()
    await expect(page.locator("#toasts")).to_contain_text("as a new message")
    replayed = house.daemon.sql("SELECT message_id FROM messages WHERE replay_of = ?", (letter,))
    assert (await house.daemon.result(replayed[0]["message_id"]))[
        "text"
    ] == "mended over the letter"
    await item(page, "letter").get_by_role("button", name="Drop").click()
    asked = page.get_by_role("dialog")
    await expect(asked).to_contain_text("can’t be undone")
    await asked.get_by_role("button", name="Cancel").click()
    await expect(item(page, "letter")).to_have_count(1)
    await item(page, "letter").get_by_role("button", name="Drop").click()
    await asked.get_by_role("button", name="Drop").click()
    await expect(item(page, "letter")).to_have_count(0)
    assert (await house.daemon.result(letter, 0))["state"] == "cancelled"


# -- log and figures -------------------------------------------------------------------------------


async def test_the_log_of_an_agent_is_followed_and_filtered(house: Fixture) -> None:
    page = await house.page("log/cook")
    lines = page.locator("#view .line")
    await expect(lines.first).to_be_visible()
    await page.set_viewport_size({"width": 1000, "height": 480})
    ids = [await house.daemon.send("cook", f"hello {number}") for number in range(15)]
    newest = lines.filter(has_text=ids[-1]).last
    await expect(newest).to_be_in_viewport()
    # Who scrolls up to read is left there, until they want to follow again.
    await page.locator("#view .lines").hover()
    await page.mouse.wheel(0, -2000)
    follow = page.get_by_role("checkbox", name="Follow")
    await expect(follow).not_to_be_checked()
    await house.crashed("cook", "over the soup")
    last = lines.filter(has_text="over the soup").last
    await expect(last).to_be_attached()
    await expect(last).not_to_be_in_viewport()
    await expect(lines.first).to_be_in_viewport()
    await follow.check()
    await expect(last).to_be_in_viewport()
    await page.set_viewport_size({"width": 1280, "height": 800})
    everything = await lines.count()
    await page.get_by_label("Level").select_option("Warnings and errors")
    await expect(lines.filter(has_text="over the soup").first).to_be_visible()
    assert 0 < await lines.count() < everything
    levels = set(await page.locator("#view .level").all_text_contents())
    assert levels <= {"warning", "error", "critical"}
    assert page.url.endswith("?level=warning")
    await page.get_by_label("Filter lines").fill("soup")
    for line in await lines.all():
        await expect(line).to_contain_text("soup")
    await page.get_by_label("Filter lines").fill("no such thing")
    await expect(page.get_by_text("No line fits the filter.")).to_be_visible()
    await page.get_by_label("Filter lines").fill("soup")
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await expect(lines.filter(has_text="over the soup").first).to_be_visible()
    shown = await lines.count()  # cook goes on crashing meanwhile
    await page.get_by_role("button", name="Copy").click()
    await expect(page.locator("#toasts")).to_contain_text("Copied")
    copied = await page.evaluate("() => navigator.clipboard.readText()")
    assert "over the soup" in copied
    assert len(copied.splitlines()) >= shown
    await page.get_by_label("Agent").select_option("main")
    await expect(page.get_by_role("heading", name="Log of main")).to_be_visible()
    await expect(lines.filter(has_text="soup")).to_have_count(0)


# -- everywhere ------------------------------------------------------------------------------------


async def test_who_may_only_look_is_shown_no_control_and_no_words(house: Fixture) -> None:
    await house.daemon.send("writer", "wait for a secret")
    await house.crashed("cook", "over a secret")
    page = await house.page("agents", "vic")
    await expect(card(page, "writer")).to_contain_text("running for")
    await expect(page.locator("#view").get_by_role("button")).to_have_count(0)
    for view in ("work", "dead"):
        await show(page, view)
        await expect(page.locator("#view .item")).to_contain_text("Somebody else’s words")
        await expect(page.locator("#view").get_by_role("button")).to_have_count(0)
        await page.locator("#view summary").click()
        await expect(page.locator("#view .item")).to_contain_text("Accepted")
        assert "secret" not in await page.locator("#view").inner_text()
    await page.evaluate("() => { location.hash = '#/log/main'; }")
    await expect(page.locator("#view .log")).to_have_count(0)


async def test_who_talks_may_cancel_what_is_theirs(house: Fixture) -> None:
    await house.daemon.send("writer", "wait for the operator")
    page = await house.page("work", "ann")
    other = item(page, "Somebody else’s words")
    await expect(other).to_contain_text("running")
    await expect(other.get_by_role("button")).to_have_count(0)
    sent = await page.evaluate(
        """() => new Promise((resolve) => {
          const secret = JSON.parse(localStorage.getItem('agentsup:secret'));
          const socket = new WebSocket(`ws://${location.host}/ws`, ['agentsup', `bearer.${secret}`]);
          socket.onopen = () => socket.send(JSON.stringify(
            { type: 'hello', agent: 'cook', channel: 'web', conversation: 'ann' }));
          socket.onmessage = ({ data }) => {
            const frame = JSON.parse(data);
            if (frame.type === 'welcome') {
              socket.send(JSON.stringify({ type: 'say', id: '1', text: 'wait for ann' }));
            } else if (frame.type === 'accepted') resolve(frame.message_id);
          };
        })"""
    )
    mine = item(page, "wait for ann")
    await expect(mine).to_contain_text("running")
    await mine.get_by_role("button", name="Cancel").click()
    await page.get_by_role("dialog").get_by_role("button", name="Cancel it").click()
    await expect(mine).to_have_count(0)
    assert (await house.daemon.result(sent, 0))["state"] == "cancelled"


async def test_a_view_says_when_the_daemon_is_gone_and_comes_back(house: Fixture) -> None:
    page = await house.page("dead")
    await show(page, "agents")
    house.daemon.kill()
    await house.daemon.ended()
    await page.evaluate("() => { location.hash = '#/dead'; }")
    await expect(page.locator("#view .trouble")).to_contain_text("The daemon does not answer.")
    again = page.get_by_role("button", name="Try again")
    await again.click()
    await expect(again).to_be_visible()
    house.daemon.launch()
    await house.daemon.ready()
    await again.click()
    await expect(page.get_by_text("No failed messages.")).to_be_visible()
    await expect(again).to_have_count(0)
    await show(page, "agents")
    await house.daemon.post("/agents/cook/stop")
    await expect(card(page, "cook")).to_contain_text("stopped")
    house.browsing.forgive()


@pytest.mark.parametrize("device", ["phone", "desktop"])
async def test_every_view_fits_and_everybody_can_use_it(house: Fixture, device: Device) -> None:
    for text in ("hello", "pay", "fail for want of ink"):
        await house.daemon.result(await house.daemon.send("main", text))
    await house.crashed("cook", "over the soup " + "without_a_place_to_break" * 12)
    await house.asked("writer", "name of a question that is long " + "because_it_never_breaks" * 12)
    await house.asked("main", "choose")
    await house.daemon.send("writer", "wait here", new_session=True)
    await house.daemon.send("writer", "and then " + "this_waits_in_one_word" * 20)
    await house.daemon.post("/tasks/create", {"prompt": "a_task_in_one_word" * 20})
    page = await house.page("agents", device=device)
    for view in VIEWS:
        await show(page, view)
        for summary in await page.locator("#view summary").all():
            await summary.click()
        schemes: tuple[Scheme, ...] = ("light", "dark")
        for scheme in schemes:
            await page.emulate_media(color_scheme=scheme)
            assert await axe(page) == [], (view, scheme)
            assert await overflow_px(page) <= 0, (view, scheme)
            assert await page.locator("#view").evaluate(WIDER) <= 0, (view, scheme)
        if device == "phone":
            assert await small_targets(page) == [], view


async def small_targets(page: Page) -> list[str]:
    """What a finger would miss: controls lower than 44 px."""
    found: list[str] = await page.evaluate(
        """() => [...document.querySelectorAll(
            '#view button, #view select, #view input:not([type=checkbox]), #view a.button, #view summary'
          )].filter((each) => each.offsetParent && each.getBoundingClientRect().height < 44)
            .map((each) => `${each.outerHTML.slice(0, 80)} ${each.getBoundingClientRect().height}`)"""
    )
    return found
