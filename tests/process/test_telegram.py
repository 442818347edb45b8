"""A real daemon and a Bot API server of its own process: chat, edits, refusals, stops."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from agentsup.fakes.telegram import TelegramDriver
from tests.process.conftest import MakeDaemon
from tests.support.bound import BOUND_S
from tests.support.daemon_process import DaemonProcess
from tests.support.telegram_process import FakeTelegramProcess

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

RULES: list[dict[str, Any]] = [
    {"match": "wait", "steps": [{"sleep": 30}, {"say": "so"}]},
    {"match": "exit", "steps": [{"say": "bye"}, {"exit": 42}]},
    {"match": "do (.*)", "steps": [{"effect": "effects.txt"}, {"say": "did $1"}]},
    {"match": "hi", "steps": [{"say": "hello"}]},
]


class Fixture:
    """The fake, its people, and the bots of two agents."""

    def __init__(self, fake: FakeTelegramProcess, people: TelegramDriver) -> None:
        self.fake = fake
        self.people = people
        self.bots: dict[str, int] = {}
        self.tokens: dict[str, str] = {}
        self.ann = 0

    async def bot(self, agent: str, number: int) -> int:
        self.tokens[agent] = f"{number}:AAF{agent}{'x' * 20}"
        self.bots[agent] = await self.people.add_bot(self.tokens[agent], username=f"{agent}_bot")
        return self.bots[agent]

    def entry(self, agent: str, **more: Any) -> dict[str, Any]:
        return {
            "name": agent,
            "telegram_token": self.tokens[agent],
            "telegram_base_url": self.fake.url,
            "allowed_user_ids": [self.ann],
            **more,
        }

    async def chat(self, agent: str) -> str:
        return await self.people.private(self.ann, self.bots[agent])

    async def ask(self, chat: str, text: str, answer: str, timeout_s: float = BOUND_S) -> Any:
        said = await self.people.say(chat, text)
        return await self.people.wait_text(chat, answer, timeout_s, after=said)


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[Fixture]:
    async with (
        FakeTelegramProcess(tmp_path / "fake") as fake,
        TelegramDriver(fake.url) as people,
    ):
        made = Fixture(fake, people)
        made.ann = await people.user("Ann")
        await made.bot("main", 7001)
        await made.bot("bob", 7002)
        yield made


async def connected(daemon: DaemonProcess, name: str) -> dict[str, Any]:
    """The agent once its bot hears: running, and no warning about it."""
    return await daemon.until(name, "running", warnings=[], timeout_s=BOUND_S)


def rewrite(daemon: DaemonProcess, *entries: Mapping[str, Any]) -> None:
    scripted = {"engine": "scripted", "engine_options": {"script": "file:rules.yaml"}}
    text = json.dumps([{**scripted, **entry} for entry in entries])
    file = daemon.home / "agents.json"
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


async def test_a_platform_that_is_away_degrades_and_loses_nothing(
    make_daemon: MakeDaemon, town: Fixture
) -> None:
    daemon = make_daemon([town.entry("main", telegram_token=None), town.entry("bob")], RULES)
    chat = await town.chat("bob")
    await town.fake.stop()
    await daemon.start()
    view = await daemon.until("bob", "degraded", timeout_s=BOUND_S)
    assert "can't be reached" in view["last_reason"] + " ".join(view["warnings"])
    assert any(warning.startswith("bob:") for warning in (await daemon.get("/status"))["warnings"])
    # The agent is reachable otherwise.
    console = await daemon.chat("bob")
    assert await console.ask("hi") == "hello"
    await town.fake.start()
    await connected(daemon, "bob")
    await town.ask(chat, "hi", "hello")
    assert (await daemon.get("/status"))["warnings"] == []


async def test_a_refused_token_fails_the_bot_alone_and_a_new_one_mends_it(
    make_daemon: MakeDaemon, town: Fixture
) -> None:
    wrong = town.entry("bob", telegram_token="7009:AAFnobodyknowsthis")
    daemon = make_daemon([town.entry("main"), wrong], RULES)
    await daemon.start()
    chat = await town.chat("main")
    await town.ask(chat, "hi", "hello")
    view = await daemon.until("bob", "degraded", timeout_s=BOUND_S)
    assert "token" in " ".join(view["warnings"])
    assert "AAFnobody" not in json.dumps(view)
    console = await daemon.chat("bob")
    assert await console.ask("hi") == "hello"
    instance = view["instance_id"]
    # The operator's restart tries again, fails again and says so where the operator reads.
    said = await town.people.say(chat, "/agent_restart bob")
    notice = await town.people.wait_text(chat, "bot of bob stays down", BOUND_S, after=said)
    assert "BotFather" in notice["message"]["text"]
    view = await daemon.until("bob", "degraded", timeout_s=BOUND_S)
    instance = view["instance_id"]
    rewrite(daemon, town.entry("main"), town.entry("bob"))
    view = await connected(daemon, "bob")
    assert view["instance_id"] == instance, "only the bot was built anew"
    await town.ask(await town.chat("bob"), "hi", "hello")
    assert "AAFnobody" not in (daemon.home / "logs" / "agentsup.log").read_text()


async def test_an_agent_added_live_gets_its_bot_and_loses_it_again(
    make_daemon: MakeDaemon, town: Fixture
) -> None:
    daemon = make_daemon([town.entry("main", telegram_token=None)], RULES)
    await daemon.start()
    rewrite(daemon, town.entry("main", telegram_token=None), town.entry("bob"))
    await connected(daemon, "bob")
    chat = await town.chat("bob")
    await town.ask(chat, "hi", "hello")
    # Another bot for the same agent: a live edit of the channel, the agent works on.
    before = (await daemon.agents())["bob"]["instance_id"]
    other = await town.bot("bob", 7003)
    rewrite(daemon, town.entry("main", telegram_token=None), town.entry("bob"))
    second = await town.people.private(town.ann, other)
    await town.ask(second, "hi", "hello")
    assert (await daemon.agents())["bob"]["instance_id"] == before
    # A stopped agent's bot is silent; what is said meanwhile waits at the platform.
    assert (await daemon.post("/agents/bob/stop")).status == 200
    said = await town.people.say(second, "do it")
    rewrite(daemon, town.entry("main", telegram_token=None))
    async with asyncio.timeout(BOUND_S):
        while "bob" in await daemon.agents():
            await asyncio.sleep(0.02)
    assert await town.people.texts(second, after=said) == []
    rewrite(daemon, town.entry("main", telegram_token=None), town.entry("bob"))
    async with asyncio.timeout(BOUND_S):
        while "bob" not in await daemon.agents():
            await asyncio.sleep(0.02)
    assert (await daemon.post("/agents/bob/start")).status == 200
    await town.people.wait_text(second, "did it", BOUND_S, after=said)


async def test_stop_all_and_42_from_telegram(make_daemon: MakeDaemon, town: Fixture) -> None:
    daemon = make_daemon(
        [town.entry("main"), town.entry("bob")], RULES, 'restart_in_place = "never"\n'
    )
    await daemon.start()
    main, bob = await town.chat("main"), await town.chat("bob")
    await town.ask(bob, "hi", "hello")
    waiting = await town.people.say(bob, "wait")
    async with asyncio.timeout(BOUND_S):
        while (await daemon.agents())["bob"]["running"] != 1:
            await town.people.get(
                "wait", after=(await town.people.get("clock"))["cursor"], timeout_s=0.1
            )
    stopped = await town.ask(main, "/stop_all", "topped")
    assert "1" in stopped["message"]["text"]
    await town.ask(bob, "hi", "hello")
    assert "so" not in await town.people.texts(bob, after=waiting)
    # A sub-agent asks for its rebuild; its bot goes on listening meanwhile.
    await town.ask(bob, "exit", "bye")
    await town.ask(bob, "hi", "hello")
    # main's 42 ends the process, after its answer is on its way.
    said = await town.people.say(main, "exit")
    assert await daemon.ended() == 42
    await daemon.start()
    await town.people.wait_text(main, "bye", after=said)
    await town.ask(main, "hi", "hello")
    assert (await town.people.texts(main, after=said)).count("bye") == 1


async def test_a_deaf_main_speaks_through_another_agents_bot(
    make_daemon: MakeDaemon, town: Fixture
) -> None:
    daemon = make_daemon([town.entry("main"), town.entry("bob")], RULES)
    await daemon.start()
    main, bob = await town.chat("main"), await town.chat("bob")
    await town.ask(bob, "hi", "hello")
    await town.ask(main, "hi", "hello")
    await town.people.revoke(town.bots["main"])
    # A poll that is under way is answered by the next text.
    await town.people.say(main, "hi")
    told = await town.people.wait_text(bob, "bot of main stays down", BOUND_S)
    assert "/agent_restart main" in told["message"]["text"]
    assert (await daemon.until("main", "degraded"))["status"] == "degraded"
    page = (await daemon.request("GET", "/metrics")).body
    assert "telegram_bots_connected 1" in page
    assert (await daemon.get("/readyz"))["ready"], "a refused token is no illness of the daemon"
    await town.people.revoke(town.bots["main"], revoked=False)
    assert (await daemon.post("/agents/main/restart")).status in (200, 409)
    await connected(daemon, "main")
    await town.ask(main, "hi", "hello")


TWO_POLLERS = "terminated by other getUpdates"
"""What Telegram says to a poll that met another."""


async def test_no_change_or_restart_of_ours_makes_two_pollers(
    make_daemon: MakeDaemon, town: Fixture
) -> None:
    """Edits of the channel, of the agent, restarts and a SIGKILL: no poll ever meets another."""
    main = town.entry("main", telegram_token=None)
    daemon = make_daemon([main, town.entry("bob")], RULES)
    await daemon.start()
    chat = await town.chat("bob")
    await town.ask(chat, "hi", "hello")

    async def lives() -> int:
        """A bot asks who it is once in each life."""
        return int((await town.people.report())["calls"]["getMe"])

    for hours in (12, 6):
        before = await lives()
        rewrite(daemon, main, town.entry("bob", telegram_backlog_hours=hours))
        async with asyncio.timeout(BOUND_S):
            while await lives() == before:
                await asyncio.sleep(0.05)
        await town.ask(chat, "hi", "hello")
    assert (await daemon.post("/agents/bob/restart")).status == 200
    await connected(daemon, "bob")
    await town.ask(chat, "hi", "hello")
    await daemon.stop()
    await daemon.start()
    await town.ask(chat, "hi", "hello")
    daemon.kill()
    await daemon.ended()
    await daemon.start()
    await town.ask(chat, "hi", "hello")
    assert [line for line in daemon.log() if TWO_POLLERS in str(line)] == []
