"""An operator creates the bots of agents with one tap, over the strict fake and through kills."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agentsup.fakes.telegram import TelegramDriver
from agentsup.kit.faults import BOT_POINTS
from tests.process.cli.process_cli import Cli
from tests.process.conftest import MakeDaemon
from tests.support.daemon_process import DaemonProcess
from tests.support.telegram_process import FakeTelegramProcess

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

RULES: list[dict[str, Any]] = [{"match": "hi", "steps": [{"say": "hello"}]}]
MADE = "can't write to you first"


class Fixture:
    """A daemon whose main has a bot that may manage others, its operator Ann, and Eve."""

    def __init__(self, fake: FakeTelegramProcess, people: TelegramDriver, make: MakeDaemon) -> None:
        self.fake = fake
        self.people = people
        self.make = make
        self.daemon: DaemonProcess
        self.manager = self.ann = self.eve = 0
        self.chat = ""

    async def begin(self, *agents: str, may_manage: bool = True, fault: str = "") -> None:
        token = f"7001:AAFmain{'x' * 20}"
        self.manager = await self.people.add_bot(
            token, username="main_bot", can_manage_bots=may_manage
        )
        self.ann, self.eve = await self.people.user("Ann"), await self.people.user("Eve")
        self.chat = await self.people.private(self.ann, self.manager)
        entries = [
            {"name": "main", "telegram_token": token, "telegram_base_url": self.fake.url},
            *({"name": name, "description": f"The agent {name}."} for name in agents),
        ]
        config = f'[people.ann]\nrole = "operator"\ntelegram = [{self.ann}]\n'
        self.daemon = self.make(entries, RULES, config)
        await self.daemon.start(AGENTSUP_FAULT=fault)

    async def offered(self, agent: str) -> str:
        """Ask for an offer; returns its link."""
        said = await self.people.say(self.chat, f"/agents add {agent}")
        told = await self.people.wait_text(self.chat, "https://t.me/newbot/", after=said)
        found = re.search(r"https://t\.me/newbot/\S+", told["message"]["text"])
        assert found is not None
        return found[0]

    async def made(self, count: int = 1) -> list[str]:
        """What Ann was told of bots that were created, once it is so often."""

        def told(view: Any) -> list[str]:
            texts = [each["message"].get("text", "") for each in view["messages"]]
            found = [text for text in texts if MADE in text]
            return found if len(found) >= count else []

        found: list[str] = await self.people.wait_for(self.chat, told)
        return found

    async def talks(self, bot: int) -> None:
        """Press Start at an agent's own bot, and get an answer there."""
        chat = await self.people.private(self.ann, bot)
        said = await self.people.say(chat, "/start agentsup")
        await self.people.wait_text(chat, "You are talking to", after=said)

    def entry(self, agent: str) -> dict[str, Any]:
        agents = json.loads((self.daemon.home / "agents.json").read_text())
        listed = agents["agents"] if isinstance(agents, dict) else agents
        return next((each for each in listed if each["name"] == agent), {})

    def token(self, agent: str) -> str:
        """The token that is kept for an agent, which its user alone may read."""
        reference: str = self.entry(agent)["telegram_token"]
        path: Path = self.daemon.home / reference.removeprefix("file:")
        assert path.stat().st_mode & 0o777 == 0o600
        return path.read_text().strip()


@pytest.fixture
async def town(tmp_path: Path, make_daemon: MakeDaemon) -> AsyncIterator[Fixture]:
    async with (
        FakeTelegramProcess(tmp_path / "fake") as fake,
        TelegramDriver(fake.url) as people,
    ):
        yield Fixture(fake, people, make_daemon)
        assert await people.violations() == []


async def test_an_agent_is_added_and_gets_its_bot_with_one_tap(town: Fixture) -> None:
    await town.begin()
    await town.offered("poet")
    # The person may type another name; the one open offer shows for which agent it is.
    bot = await town.people.create_bot(town.chat, username="my_own_poet_bot", name="Poe")
    (told,) = await town.made()
    assert "https://t.me/my_own_poet_bot?start=" in told
    await town.talks(bot["id"])
    assert town.entry("poet")["telegram_base_url"] == town.fake.url
    token = town.token("poet")
    commands = await town.people.call(token, "getMyCommands")
    assert "stop" in {each["command"] for each in commands["result"]}
    # The keyboard is gone, and the token is in no log and no record.
    records = await town.people.messages(town.chat)
    assert [each["input"] for each in records if "input" in each][-1] == {"remove_keyboard": True}
    secret = token.partition(":")[2]
    await town.daemon.stop()
    for path in town.daemon.home.rglob("*"):
        if path.is_file() and path.parent.name != "secrets":
            assert secret.encode() not in path.read_bytes(), path


@pytest.mark.parametrize(
    "updates",
    [
        ("message",),
        ("managed_bot",),
        ("managed_bot", "message"),
        ("message", "managed_bot", "managed_bot", "message"),
    ],
    ids=",".join,
)
async def test_updates_come_in_any_order_and_number(
    town: Fixture, updates: tuple[str, ...]
) -> None:
    await town.begin("poet")
    await town.offered("poet")
    bot = await town.people.create_bot(town.chat, updates=updates)
    await town.made()
    await town.talks(bot["id"])
    await town.people.say(town.chat, "hi")
    await town.people.wait_text(town.chat, "hello")
    assert len(await town.made()) == 1


async def test_two_offers_do_not_mix_and_a_doubt_is_asked(town: Fixture) -> None:
    await town.begin("poet", "coder", "cook")
    links = {name: await town.offered(name) for name in ("poet", "coder", "cook")}
    # By their links, the later one first: the user name shows which is which.
    made = {
        name: await town.people.create_bot(link=links[name], user=town.ann)
        for name in ("coder", "poet")
    }
    await town.made(2)
    for name, bot in made.items():
        assert town.token(name).startswith(f"{bot['id']}:")
    # With another name, it is of the one offer that is left.
    other = await town.people.create_bot(link=links["cook"], user=town.ann, username="surprise_bot")
    await town.made(3)
    assert town.token("cook").startswith(f"{other['id']}:")
    # Nobody offered this one.
    last = await town.people.create_bot(link=links["cook"], user=town.ann, username="nobodys_bot")
    await town.people.wait_text(town.chat, "For which agent is it?")
    said = await town.people.say(town.chat, f"/agents bot {last['id']} cook")
    await town.people.wait_text(town.chat, "telegram_token already", after=said)


async def test_an_offer_of_the_page_is_for_any_operator_and_a_doubt_is_asked(town: Fixture) -> None:
    await town.begin("poet", "coder")
    offer = (await town.daemon.post("/agents/poet/bot")).body
    assert offer["qr"].startswith("<svg")
    bot = await town.people.create_bot(link=offer["link"], user=town.ann, username="renamed_bot")
    asked = await town.people.wait_text(town.chat, "For which agent is it?")
    await town.people.press(town.chat, asked["message_id"], text="poet")
    await town.made()
    await town.talks(bot["id"])
    assert (await town.daemon.post("/agents/poet/bot")).status == 409


async def test_an_agent_is_added_by_the_page_before_its_bot(town: Fixture) -> None:
    await town.begin("poet")
    wanted = {"name": "cook", "description": "plans the week's meals"}
    added = await town.daemon.post("/agents", wanted)
    assert (added.status, added.body["name"]) == (200, "cook")
    assert town.entry("cook") == wanted
    assert (await town.daemon.post("/agents/cook/bot")).body["agent"] == "cook"
    for name, status in (("cook", 409), ("no such name", 400)):
        assert (await town.daemon.post("/agents", {"name": name})).status == status


async def test_a_strangers_bot_becomes_nobodys(town: Fixture) -> None:
    await town.begin("poet")
    link = await town.offered("poet")
    await town.people.create_bot(link=link, user=town.eve)
    # Ann's is taken after it, by the same name in another spelling.
    bot = await town.people.create_bot(town.chat, username="annas_poet_bot")
    await town.made()
    assert town.token("poet").startswith(f"{bot['id']}:")


async def test_without_the_switch_it_is_said_where_it_is(town: Fixture) -> None:
    await town.begin(may_manage=False)
    said = await town.people.say(town.chat, "/agents add poet")
    await town.people.wait_text(town.chat, "Bot Management Mode", after=said)
    assert town.entry("poet") == {"name": "poet"}
    done = await asyncio.to_thread(Cli(town.daemon.home, 0).run_alone, "agents", "add", "cook")
    assert done.returncode == 0
    assert "Bot Management Mode" in done.stdout


async def test_a_replaced_token_is_swapped_in_place(town: Fixture) -> None:
    await town.begin("poet")
    await town.offered("poet")
    bot = (await town.people.create_bot(town.chat))["id"]
    await town.made()
    await town.talks(bot)
    for quiet in (False, True):  # main's bot is told; it is not, and the bot is refused
        token = await town.people.replace_token(bot, quiet=quiet)
        await town.talks(bot)
        assert town.token("poet") == token
    texts = await town.people.texts(town.chat)
    assert not [text for text in texts if "stays down" in text]


@pytest.mark.parametrize("point", sorted(BOT_POINTS))
async def test_a_kill_between_two_steps_loses_nothing_and_repeats_nothing(
    town: Fixture, point: str
) -> None:
    await town.begin("poet", fault=point)
    await town.offered("poet")
    bot = (await town.people.create_bot(town.chat))["id"]
    await town.daemon.ended()
    await town.daemon.start()
    await town.made()
    await town.talks(bot)
    assert town.token("poet").startswith(f"{bot}:")
    await town.people.say(town.chat, "hi")
    await town.people.wait_text(town.chat, "hello")
    assert len(await town.made()) == 1


async def test_a_refusal_says_what_to_do_and_can_be_tried_again(town: Fixture) -> None:
    await town.begin()
    facts = {"status": 400, "description": "Bad Request: BOT_ACCESS_FORBIDDEN"}
    await town.people.fault("error", method="getManagedBotToken", count=1, **facts)
    cli = Cli(town.daemon.home, 0)
    assert (await asyncio.to_thread(cli.run_alone, "agents", "add", "poet")).returncode == 0
    done = await asyncio.to_thread(cli.run_alone, "agents", "bot", "poet")
    link = re.search(r"https://t\.me/newbot/\S+", done.stdout)
    assert link is not None, done
    bot = await town.people.create_bot(link=link[0], user=town.ann)
    told = await town.people.wait_text(town.chat, "BOT_ACCESS_FORBIDDEN")
    again = re.search(r"/agents bot \d+ poet", told["message"]["text"])
    assert again is not None
    await town.people.say(town.chat, again[0])
    await town.made()
    await town.talks(bot["id"])


async def test_a_token_that_does_not_come_is_asked_for_again(town: Fixture) -> None:
    await town.begin("poet")
    for kind in ("server_error", "flood", "cut_before"):
        await town.people.fault(kind, method="getManagedBotToken", count=1, retry_after=1)
    await town.offered("poet")
    bot = (await town.people.create_bot(town.chat))["id"]
    await town.made()
    await town.talks(bot)
