"""A new user in a bare home: from the installed wheel to a model on the phone, and after a bad day.

What is typed is read from the screen: numbers of lists, addresses, commands. What the person brings is
their own: the address and the key of a provider, a bot's token, their name.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from agentsup.cli.connect.locate import is_alive
from agentsup.fakes.telegram.driver import TelegramDriver
from tests.live.browser import Browsing
from tests.live.page_fixture import log, say, theirs
from tests.live.terminal import TMUX, Terminal
from tests.process.cli.process_cli import Cli
from tests.support.model_server import Asked, ModelServer, Reply
from tests.support.ports import free_port
from tests.support.telegram_process import FakeTelegramProcess

pytestmark = [
    pytest.mark.timeout(
        420
    ),  # the wheel is built, and what it needs is installed, if it is the first
    pytest.mark.skipif(TMUX is None, reason="types in tmux, which could not be installed"),
]

KEY, WRONG = "sk-a-key-of-anna-4711", "sk-a-key-that-was-mistyped"
TOKEN = "7001:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
MODELS = ("good-large", "good-mini")


def model(asked: Asked) -> Reply:
    """Answers with what was said last."""
    said = str(asked.messages[-1]["content"])
    found = re.findall(r"\b(?:hello|still there|and now)\b[^\n\"]*", said)
    return Reply(f"I heard: {found[-1] if found else 'something'}")


def number_of(screen: str, title: str) -> str:
    """The number before a title in a list that the screen shows."""
    numbers: list[str] = re.findall(rf"(\d+) +{re.escape(title)}", screen)
    return numbers[-1]


class NewUser:
    """A person at a computer, with a phone."""

    def __init__(
        self, terminal: Terminal, people: TelegramDriver, server: ModelServer, browsing: Browsing
    ) -> None:
        self.terminal, self.people, self.server, self.browsing = terminal, people, server, browsing
        self.chat = ""

    async def set_up(self) -> str:
        """``agentsup setup``, step by step; returns the command that it names next."""
        terminal = self.terminal
        await terminal.enter("agentsup setup")
        await self.choose_model(WRONG, KEY)
        await terminal.shows(r"Connect a Telegram bot.*\[Y/n\]")
        await terminal.enter("y")
        await terminal.shows("BotFather")
        await terminal.shows("it is not shown")
        await terminal.enter(TOKEN)
        bot = await terminal.shows(r"Telegram knows this bot: @(\w+)\.")
        await terminal.shows(rf"write something to https://t.me/{bot[1]}\? \[Y/n\]")
        await terminal.enter("y")
        await self.people.say(self.chat, "hello from the phone")
        await terminal.shows(r"Anna \(id \d+\) wrote\. Is that you\? \[Y/n\]")
        await terminal.enter("y")
        await terminal.shows(r"Your name here \[\w+\]:")
        await terminal.enter("anna")
        after = await terminal.shows(r"Next: `(agentsup [^`]+)` starts the daemon")
        await terminal.shows(r"Start the daemon with this machine\? \[Y/n\]")
        await terminal.enter("y")
        # No service manager is here; it says what starts the daemon after a reboot instead.
        self.at_reboot = (await terminal.shows(r"`@reboot (\S*agentsup [^`]+)`"))[1]
        for secret in (KEY, WRONG, TOKEN):
            assert secret not in terminal.everything
        return after[1]

    async def choose_model(self, *keys: str) -> None:
        """The step of the setup, with one key after the other until one is accepted."""
        terminal = self.terminal
        await terminal.shows("Which provider should your agents use")
        await terminal.shows("Number:")
        await terminal.enter(number_of(terminal.everything, "another OpenAI-compatible server"))
        await terminal.shows("Address of the server:")
        await terminal.enter(self.server.base_url)
        for number, key in enumerate(keys):
            if number:
                await terminal.shows("does not accept this key")
            await terminal.shows("it is not shown")
            await terminal.enter(key)
        await terminal.shows("has 2 models")
        await terminal.shows(r"Model \(number or name\):")
        await terminal.enter(number_of(terminal.everything, "good-mini"))
        await terminal.shows(r"Try good-mini .*\[Y/n\]")
        await terminal.enter("y")
        await terminal.shows(r"good-mini answered in [\d.]+ s")

    async def lost_key_is_told(self, page: Page, address: str, friend: str) -> str:
        """Every place says what is missing, and nothing else answers; the command that mends it."""
        lost = r"he secret file \S+/compatible\.key can't be read"
        asked = len(self.server.asked)
        cure = ""
        for command in ("up --no-chat", "status", "agents list", "restart"):
            shown = await self.terminal.run(f"agentsup {command}")
            told = re.search(rf"{lost}.*?`(agentsup [^`]+)`", shown)
            assert told is not None, (command, shown)
            assert "good-mini." not in shown, "no model answers"
            assert cure in ("", told[1])
            cure = told[1]
        for command in ('send main "hello task"', 'tasks create "hello task" --wait'):
            shown = await self.terminal.run(f"agentsup {command}; echo code $?")
            assert re.search(rf"{lost}.*code 1", shown), shown
        await page.goto(address)
        await expect(page.locator("p.trouble", has_text="the secret file")).to_be_visible()
        await say(page, "hello, is anybody here?")
        await expect(page.locator("li .words", has_text="The secret file")).to_be_visible()
        await self.people.say(self.chat, "hello, is anybody here?")
        told_anna = await self.people.wait_text(self.chat, "can't be read")
        assert told_anna["message"]["text"].startswith("The secret file")
        await self.people.say(friend, "hello, is anybody here?")
        await self.people.wait_text(friend, "an operator has to look at it")
        assert len(self.server.asked) == asked
        return cure

    async def open_page(self, link: str) -> Page:
        """The link on the screen, opened in a browser."""
        page = await self.browsing.page("phone")
        await page.goto(link)
        await expect(log(page)).to_be_visible()
        return page

    async def talks_everywhere(self, page: Page, word: str) -> None:
        """The model answers in the page and on Telegram."""
        await say(page, f"{word} page")
        await expect(theirs(page, f"I heard: {word} page")).to_be_visible()
        await self.people.say(self.chat, f"{word} bot")
        await self.people.wait_text(self.chat, f"I heard: {word} bot")

    async def lets_in(self, friend: str) -> None:
        """Somebody else writes to the bot, and is let in with the code that they were told."""
        await self.people.say(friend, "hello, may I?")
        told = await self.people.wait_text(friend, "They type: ")
        command = re.search(r"They type: (agentsup pair \S+)", told["message"]["text"])
        assert command is not None
        assert "may talk to main alone now" in await self.terminal.run(command[1])
        await self.people.wait_text(friend, "You are let in")
        await self.people.say(friend, "hello friend")
        await self.people.wait_text(friend, "I heard: hello friend")

    async def pids(self) -> list[int]:
        """Of the small parent and of the daemon, as ``status`` shows them."""
        shown = await self.terminal.run("agentsup status")
        found = [*re.findall(r"\(pid (\d+)\)", shown), *re.findall(r"\bpid +(\d+)", shown)]
        pids = list(dict.fromkeys(int(each) for each in found))
        assert len(pids) == 2, shown
        return pids


async def test_from_nothing_to_a_model_on_the_phone_and_back_after_a_loss(
    installed_bin: Path, browsing: Browsing, tmp_path: Path
) -> None:
    home = tmp_path / "anna"
    home.mkdir()
    port = free_port()
    async with (
        ModelServer(model, models=MODELS, key=KEY) as server,
        FakeTelegramProcess(tmp_path / "telegram") as fake,
        TelegramDriver(fake.url) as people,
    ):
        anna, ben = await people.user("Anna"), await people.user("Ben")
        bot = await people.add_bot(TOKEN, username="anna_helper_bot")
        # What is different from the world: where Telegram is, and a port that is free here.
        env = {
            "PATH": f"{installed_bin}:/usr/local/bin:/usr/bin:/bin",
            "AGENTSUP_MAIN__TELEGRAM_BASE_URL": fake.url,
            "AGENTSUP_API__PORT": str(port),
        }
        try:
            async with Terminal(home, env) as terminal:
                user = NewUser(terminal, people, server, browsing)
                user.chat = await people.private(anna, bot)
                start = await user.set_up()
                await terminal.enter(start)
                await terminal.shows("The engine llm answers with good-mini")
                link = await terminal.shows(r"Web page.*?(http://127\.0\.0\.1:\d+/\S+)")
                # What Anna wrote during the setup is answered now.
                await people.wait_text(user.chat, "I heard: hello from the phone")
                await terminal.enter("hello terminal")
                await terminal.shows("I heard: hello terminal")
                page = await user.open_page(link[1])
                await user.talks_everywhere(page, "hello")
                await terminal.press("C-d")
                await terminal.shows("READY>")
                friend = await people.private(ben, bot)
                await user.lets_in(friend)
                pids = await user.pids()
                address = page.url
                await page.goto("about:blank")  # the phone sleeps while the computer is off

            for pid in pids:  # the reboot: nothing of it runs any more
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            at_reboot = user.at_reboot
            async with Terminal(home, env) as terminal:
                user.terminal = terminal
                shown = await terminal.run(at_reboot)
                assert "The engine llm answers with good-mini." in shown
                await page.goto(address)
                await expect(theirs(page, "I heard: hello page")).to_be_visible()
                await user.talks_everywhere(page, "still there")
                shown = await terminal.run("agentsup backup ~/today.tar.gz")
                restore = re.search(r"`(agentsup restore [^`]+)`", shown)
                assert restore is not None, shown
                pids = await user.pids()
                await page.goto("about:blank")
                await terminal.run("agentsup stop")
            assert not [pid for pid in pids if is_alive(pid)]

            shutil.rmtree(home / ".agentsup")  # the disk is gone, the file was elsewhere
            async with Terminal(home, env) as terminal:
                user.terminal = terminal
                shown = await terminal.run(restore[1])
                start_again = re.search(r"`(agentsup [^`]*up)`", shown)
                assert start_again is not None, shown
                shown = await terminal.run(f"{start_again[1]} --no-chat")
                assert "The engine llm answers with good-mini." in shown

            async with Terminal(home, env) as terminal:  # the next day, another shell
                user.terminal = terminal
                shown = await terminal.run("agentsup restart")
                assert "The engine llm answers with good-mini." in shown
                assert "WORSE" not in shown
                await page.goto(address)
                await expect(theirs(page, "I heard: still there page")).to_be_visible()
                await user.talks_everywhere(page, "and now")
                await people.say(friend, "and now Ben")
                await people.wait_text(friend, "I heard: and now Ben")
                await page.goto("about:blank")
                await terminal.run("agentsup stop")

            (home / ".agentsup" / "secrets" / "compatible.key").unlink()
            async with Terminal(home, env) as terminal:  # the day after, with the key gone
                user.terminal = terminal
                await terminal.enter(await user.lost_key_is_told(page, address, friend))
                await terminal.shows("Number:")
                await terminal.enter(number_of(terminal.everything, "the model, or its key"))
                await user.choose_model(KEY)
                await terminal.shows("READY>")
                await user.talks_everywhere(page, "and now again")
                await expect(page.locator("p.trouble")).to_be_hidden()
                await page.goto("about:blank")
                await terminal.run("agentsup stop")
            assert server.violations == []
            assert await people.violations() == []
        finally:
            Cli(home / ".agentsup", port).end_all()  # of a test that failed


async def test_a_server_without_a_key_is_found_from_a_home_elsewhere(
    installed_bin: Path, tmp_path: Path
) -> None:
    """As Ollama answers: it wants no key, and has two models."""
    home, port = tmp_path / "ben", free_port()
    home.mkdir()
    env = {"PATH": f"{installed_bin}:/usr/local/bin:/usr/bin:/bin", "AGENTSUP_API__PORT": str(port)}
    models = ("llama3.2:latest", "qwen3:8b")
    try:
        async with (
            ModelServer(model, models=models) as server,
            Terminal(home, env) as terminal,
        ):
            shown = await terminal.run("agentsup --home agents up --no-chat")
            setup = re.search(r"no model is configured.*?`(agentsup [^`]+ setup)`", shown)
            assert setup is not None, shown
            await terminal.enter(setup[1])
            await terminal.shows("Which provider should your agents use")
            await terminal.shows("Number:")
            await terminal.enter(number_of(terminal.everything, "Ollama"))
            await terminal.shows(r"Address of the server \[http://127\.0\.0\.1:11434/v1\]:")
            await terminal.enter(server.base_url)
            await terminal.shows(r"has 2 models\. 1 llama3\.2:latest 2 qwen3:8b Model")
            await terminal.enter("2")
            await terminal.shows(r"Try qwen3:8b .*\[Y/n\]")
            await terminal.enter("y")
            await terminal.shows(r"qwen3:8b answered in [\d.]+ s")
            await terminal.shows(r"Connect a Telegram bot.*\[Y/n\]")
            await terminal.enter("n")
            await terminal.shows(r"Start the daemon with this machine\? \[Y/n\]")
            await terminal.enter("n")
            await terminal.shows("READY>")
            shown = await terminal.run('agentsup --home agents send main "hello without a key"')
            assert "I heard: hello without a key" in shown
            assert {each.body["model"] for each in server.asked} == {"qwen3:8b"}
            assert not (home / ".agentsup").exists()
            await terminal.run("agentsup --home agents stop")
            assert server.violations == []
    finally:
        Cli(home / "agents", port).end_all()
