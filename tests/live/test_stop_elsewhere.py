"""One agent on Telegram and Matrix: a stop on one platform holds for what the other's bot has taken
and nobody has read, and so does one from the page; also after a kill."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agentsup.fakes.telegram import TelegramDriver
from tests.live.matrix_cluster import BOT_PASSWORD, MatrixCluster, accounts, settled
from tests.support.bound import BOUND_S
from tests.support.daemon_process import DaemonProcess
from tests.support.faulty_proxy import FaultyProxy
from tests.support.matrix_driver import MatrixPerson
from tests.support.synapse import Synapse
from tests.support.telegram_process import FakeTelegramProcess

pytestmark = pytest.mark.timeout(120)

RULES: list[dict[str, Any]] = [{"match": "(.*)", "steps": [{"say": "heard $1"}]}]
TOKEN = "7001:AAFmain" + "x" * 20
DROPPED = "not read yet"


@dataclass
class Both:
    """Main on both platforms, and Ann on each."""

    daemon: DaemonProcess
    matrix: MatrixCluster
    proxy: FaultyProxy
    telegram: TelegramDriver
    chat: str

    async def hang_on_matrix(self) -> None:
        """A file that takes for ever, and a text behind it."""
        self.proxy.fault("hang", path="/media/download/", seconds=60.0)
        await self.matrix.person.send_file(self.matrix.room, b"data", name="slow.bin", text="file")
        async with asyncio.timeout(BOUND_S):
            while not self.proxy.hits("hang"):
                await asyncio.sleep(0.05)
        await self.matrix.person.say(self.matrix.room, "behind the file")
        await self.kept("matrix")

    async def hang_on_telegram(self) -> None:
        await self.telegram.fault("hang", method="getFile", seconds=8)
        await self.telegram.send_file(self.chat, b"data", name="slow.bin", caption="file")
        await self.telegram.say(self.chat, "behind the file")
        await self.kept("telegram")

    async def kept(self, channel: str) -> None:
        """Until both are kept and nobody has read them."""
        async with asyncio.timeout(BOUND_S):
            waiting = "SELECT 1 FROM received WHERE state = 'received' AND channel = ?"
            while len(self.daemon.sql(waiting, (channel,))) < 2:
                await asyncio.sleep(0.05)

    async def on_matrix(self) -> None:
        """Nothing of it was begun, its people were told, and the next text is answered."""
        self.proxy.clear()
        room = self.matrix.room
        await self.matrix.ask("after the stop", "heard after the stop", timeout_s=60.0)
        await settled(self.daemon)
        texts = self.matrix.answers(room)
        assert [text for text in texts if text.startswith("heard")] == ["heard after the stop"]
        assert len([text for text in texts if DROPPED in text]) == 2

    async def on_telegram(self) -> None:
        await self.telegram.clear_faults()
        said = await self.telegram.say(self.chat, "after the stop")
        await self.telegram.wait_text(self.chat, "heard after the stop", 40.0, after=said)
        await settled(self.daemon)
        texts = await self.telegram.texts(self.chat)
        assert [text for text in texts if text.startswith("heard")] == ["heard after the stop"]
        assert len([text for text in texts if DROPPED in text]) == 2

    async def killed(self) -> None:
        self.daemon.kill()
        await self.daemon.ended()
        await self.daemon.start()


@pytest.fixture
async def both(synapse: Synapse, proxy: FaultyProxy, tmp_path: Path) -> AsyncIterator[Both]:
    bot, ann = await accounts(synapse)
    async with contextlib.AsyncExitStack() as stack:
        person = await stack.enter_async_context(MatrixPerson(synapse.url, ann, BOT_PASSWORD))
        fake = await stack.enter_async_context(FakeTelegramProcess(tmp_path / "fake"))
        people = await stack.enter_async_context(TelegramDriver(fake.url))
        town = MatrixCluster(person, bot, proxy.url)
        await town.furnish()
        user = await people.user("Ann")
        number = await people.add_bot(TOKEN, username="main_bot")
        entry = {
            "telegram_token": TOKEN,
            "telegram_base_url": fake.url,
            "allowed_user_ids": [user],
        }
        home = town.home(tmp_path / "home", RULES, "", **entry)
        entries = json.loads((home / "agents.json").read_text())
        entries[0]["transports"] = ["telegram", "matrix"]
        (home / "agents.json").write_text(json.dumps(entries))
        daemon = await stack.enter_async_context(DaemonProcess(home))
        await town.joined()
        yield Both(daemon, town, proxy, people, await people.private(user, number))


@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_stop_on_telegram_holds_on_matrix(both: Both, is_killed: bool) -> None:
    await both.hang_on_matrix()
    said = await both.telegram.say(both.chat, "/stop_all")
    await both.telegram.wait_message(both.chat, lambda _: True, after=said)
    if is_killed:
        await both.killed()
    await both.on_matrix()


@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_stop_on_matrix_holds_on_telegram(both: Both, is_killed: bool) -> None:
    await both.hang_on_telegram()
    said = await both.matrix.person.say(both.matrix.room, "/stop_all")
    await both.matrix.person.wait_message(
        both.matrix.room, lambda seen: seen.sender == both.matrix.bot, 20.0, after=said
    )
    if is_killed:
        await both.killed()
    await both.on_telegram()


async def test_a_stop_from_the_page_holds_on_both(both: Both) -> None:
    await both.hang_on_matrix()
    await both.hang_on_telegram()
    await both.daemon.post("/stop_all", {})
    await both.on_matrix()
    await both.on_telegram()
