"""A stranger is let in over the strict fake: by HTTP, a button and a command, through a kill."""

from __future__ import annotations

import asyncio
import json
import re
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agentsup.fakes.telegram import TelegramDriver
from tests.process.conftest import MakeDaemon
from tests.support.bound import BOUND_S
from tests.support.daemon_process import DaemonProcess
from tests.support.telegram_process import FakeTelegramProcess

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

RULES: list[dict[str, Any]] = [{"match": "hi", "steps": [{"say": "hello"}]}]
CODE = re.compile(r"[A-Z2-9]{4}-[A-Z2-9]{4}")


class Fixture:
    """Two bots, their operator Ann, and the stranger Eve."""

    def __init__(self, fake: FakeTelegramProcess, people: TelegramDriver) -> None:
        self.fake = fake
        self.people = people
        self.bots: dict[str, int] = {}
        self.entries: list[dict[str, Any]] = []
        self.ann = self.eve = 0

    async def begin(self) -> None:
        for number, name in ((7001, "main"), (7002, "bob")):
            token = f"{number}:AAF{name}{'x' * 20}"
            self.bots[name] = await self.people.add_bot(token, username=f"{name}_bot")
            self.entries.append(
                {"name": name, "telegram_token": token, "telegram_base_url": self.fake.url}
            )
        self.ann = await self.people.user("Ann")
        self.eve = await self.people.user("Eve")

    async def chat(self, who: int, agent: str) -> str:
        return await self.people.private(who, self.bots[agent])

    async def ask(self, chat: str, text: str, answer: str) -> Any:
        said = await self.people.say(chat, text)
        return await self.people.wait_text(chat, answer, after=said)

    async def code(self, who: int, agent: str) -> str:
        """What the stranger is told after a first message."""
        chat = await self.chat(who, agent)
        said = await self.people.say(chat, "hi, please read this")
        told = await self.people.wait_text(chat, "I don't know you yet", after=said)
        found = CODE.search(str(told))
        assert found is not None
        return found[0]


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[Fixture]:
    async with (
        FakeTelegramProcess(tmp_path / "fake") as fake,
        TelegramDriver(fake.url) as people,
    ):
        made = Fixture(fake, people)
        await made.begin()
        yield made


def config(town: Fixture) -> str:
    return f'# mine\n[people.ann]\nrole = "operator"\ntelegram = [{town.ann}]\n'


def people_of(daemon: DaemonProcess) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((daemon.home / "config.toml").read_text())["people"]
    return found


async def test_a_stranger_is_let_in_at_that_agent_and_no_other(
    make_daemon: MakeDaemon, town: Fixture
) -> None:
    daemon = make_daemon(town.entries, RULES, config(town))
    await daemon.start()
    code = await town.code(town.eve, "bob")
    # It outlives the daemon.
    daemon.kill()
    await daemon.ended()
    await daemon.start()
    (asked,) = (await daemon.get("/pairings"))["pairings"]
    assert (asked["code"], asked["agent"], asked["name"]) == (code, "bob", "Eve")
    done = (await daemon.post("/pairings/let_in", {"code": code.lower()})).body
    assert (done["person"], done["role"], done["is_everywhere"]) == ("eve", "user", False)
    eves = await town.chat(town.eve, "bob")
    await town.people.wait_text(eves, "You are let in")
    await town.ask(eves, "hi", "hello")
    # What she wrote before was never read, and main does not know her.
    assert [each["text"] for each in (await daemon.get("/messages?agent=bob"))["messages"]] == [
        "hi"
    ]
    other = await town.code(town.eve, "main")
    assert other != code
    assert people_of(daemon)["eve"] == {"role": "user", "telegram": [town.eve], "agents": ["bob"]}
    # A used code, a wrong one and that of nobody get one answer.
    answers = [
        await daemon.post("/pairings/let_in", {"code": each}) for each in (code, "AAAA-AAAA", "x")
    ]
    assert {(answer.status, answer.body["detail"]) for answer in answers} == {
        (404, "there is no open request with this code; it may have expired")
    }
    assert await town.people.violations() == []


async def test_an_operator_decides_by_a_button_in_mains_chat(
    make_daemon: MakeDaemon, town: Fixture
) -> None:
    daemon = make_daemon(town.entries, RULES, config(town))
    await daemon.start()
    anns = await town.chat(town.ann, "main")
    await town.ask(anns, "hi", "hello")
    code = await town.code(town.eve, "bob")
    told = await town.people.wait_text(anns, f"Code: {code}")
    assert f"“Eve” (telegram {town.eve}) wrote to bob" in str(told)
    await town.people.press(anns, told["message"]["message_id"], text="Let in as user")
    await town.people.wait_text(anns, "may talk to bob alone now, as user")
    await town.ask(await town.chat(town.eve, "bob"), "hi", "hello")
    mallory = await town.people.user("Eve")
    code = await town.code(mallory, "bob")
    await town.people.wait_text(anns, f"Code: {code}")
    await town.ask(anns, f"/pair refuse {code}", "is refused")
    await town.ask(anns, f"/pair {code}", "no open request")
    assert set(people_of(daemon)) == {"ann", "eve"}


async def test_who_is_no_operator_lets_nobody_in(make_daemon: MakeDaemon, town: Fixture) -> None:
    uwe = await town.people.user("Uwe")
    more = f"[people.uwe]\ntelegram = [{uwe}]\n"
    daemon = make_daemon(town.entries, RULES, config(town) + more)
    await daemon.start()
    code = await town.code(town.eve, "bob")
    await town.ask(await town.chat(uwe, "main"), f"/pair {code} operator", "operator")
    await town.ask(await town.chat(uwe, "bob"), f"/pair {code}", "main")
    assert set(people_of(daemon)) == {"ann", "uwe"}
    assert len((await daemon.get("/pairings"))["pairings"]) == 1


async def test_a_removed_agent_takes_its_codes_with_it(
    make_daemon: MakeDaemon, town: Fixture
) -> None:
    daemon = make_daemon(town.entries, RULES, config(town))
    await daemon.start()
    code = await town.code(town.eve, "bob")
    file = daemon.home / "agents.json"
    listed = json.loads(file.read_text())
    entries = listed if isinstance(listed, list) else listed["agents"]
    kept = [each for each in entries if each["name"] != "bob"]
    (daemon.home / "agents.new").write_text(json.dumps(kept))
    (daemon.home / "agents.new").replace(file)
    async with asyncio.timeout(BOUND_S):
        while (await daemon.get("/pairings"))["pairings"]:
            await asyncio.sleep(0.05)
    assert (await daemon.post("/pairings/let_in", {"code": code})).status == 404
