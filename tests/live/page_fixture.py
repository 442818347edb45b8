"""People at the page of a real daemon: what tests of its chat and its frame share."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

from playwright.async_api import BrowserContext, Locator, Page, expect

from tests.live.browser import Browsing, Device, Scheme
from tests.support.chat_client import Chat
from tests.support.daemon_process import DaemonProcess
from tests.support.web_client import Tab

RULES: Final[list[dict[str, Any]]] = [
    {"match": r"slow (\S+)", "steps": [{"sleep": 600}, {"say": "slow answer $1"}]},
    {
        "match": r"stream (\S+)",
        "steps": [{"stream": {"chunks": ["word "] * 40, "every": 0.05}}, {"say": "end $1"}],
    },
    {
        "match": r"long (\S+)",
        "steps": [
            {"stream": {"chunks": ["some more words of it "] * 200, "every": 0.01}},
            {"say": "end $1"},
        ],
    },
    {
        "match": "essay",
        "steps": [
            {
                "stream": {
                    "chunks": [
                        "A **bo",
                        "ld** <img src=x>\n",
                        "\n```\na\n\n",
                        "b\n```\n\nand **raw",
                    ],
                    "every": 0.05,
                }
            },
            {"sleep": 600},
        ],
    },
    {
        "match": "tea",
        "steps": [
            {"question": {"text": "Which **tea**?", "options": ["black", "green"]}},
            {"say": "$result tea"},
        ],
    },
    {"match": "name", "steps": [{"question": {"text": "Your name?"}}, {"say": "hello $result"}]},
    {
        "match": "report",
        "steps": [
            {
                "say": "## Report\n\nSome **bold** words, `code`, [a link](https://example.org/).\n\n"
                "| what | count |\n|---|---:|\n| beds | 2 |\n| <b>beans</b> | 22 |\n\n"
                "```python\nprint('hi')\n```\n\n> quoted\n\n- one\n- two"
            }
        ],
    },
    {"match": "letter", "steps": [{"effect": "letter.txt"}, {"file": "letter.txt"}]},
    {"match": "effect", "steps": [{"effect": "x.txt"}, {"sleep": 0.5}, {"say": "done"}]},
    {"match": "fail", "steps": [{"fail": "the model is broken"}]},
    {"match": "(?:see|here).*", "steps": [{"say": "thank you"}]},
    {"match": "(.+)", "steps": [{"say": "you said $1"}]},
]
CONFIG: Final = '[people.ann]\nrole = "user"\n[people.vic]\nrole = "viewer"\n'


@dataclass(slots=True)
class PageFixture:
    """A daemon with three agents, and browsers."""

    daemon: DaemonProcess
    browsing: Browsing
    tabs: list[Tab] = field(default_factory=list)

    async def link(self, person: str | None = None) -> str:
        """A one-time link of the operator or of a person."""
        made = await self.daemon.post("/web/links", {"person": person})
        return str(made.body["url"])

    async def page(
        self,
        person: str | None = None,
        *,
        device: Device = "desktop",
        scheme: Scheme = "light",
        context: BrowserContext | None = None,
    ) -> Page:
        """A page that shows the chat with main, by a one-time link."""
        context = context or await self.browsing.context(device, scheme)
        page = await context.new_page()
        await page.goto(await self.link(person))
        await expect(log(page)).to_be_visible()
        return page

    async def chat(self) -> Chat:
        """The operator's conversation with main, without a browser; for much to be said quickly."""
        tab = Tab(self.daemon)
        self.tabs.append(tab)
        await tab.sign_in()
        return await tab.chat("local")

    async def close(self) -> None:
        """End what reads from the daemon before it ends itself."""
        for tab in self.tabs:
            await tab.close()
        for context in self.browsing.browser.contexts:
            await context.close()

    def said(self) -> list[str]:
        """Every text that was accepted, in order."""
        rows = self.daemon.sql("SELECT parts FROM messages ORDER BY seq")
        return [re.sub(r'.*?"text": ?"([^"]*)".*', r"\1", row["parts"]) for row in rows]

    def forgive(self, *expected: str) -> None:
        """Pass over what the console says of a loss that a test has made."""
        self.browsing.forgive(*expected)


def log(page: Page) -> Locator:
    """The messages."""
    return page.get_by_role("log")


def text_field(page: Page) -> Locator:
    return page.get_by_role("textbox", name="Message to")


async def say(page: Page, text: str) -> None:
    """Write and send."""
    await text_field(page).fill(text)
    await page.get_by_role("button", name="Send", exact=True).click()
    await expect(text_field(page)).to_have_value("")


def mine(page: Page, text: str) -> Locator:
    return log(page).locator(".mine", has_text=text)


def theirs(page: Page, text: str) -> Locator:
    return log(page).locator(".theirs", has_text=text)
