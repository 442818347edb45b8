"""A real daemon at a real homeserver that is slow, ill, in a hurry, away, or killed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.matrix_cluster import BOT_PASSWORD, MatrixCluster, accounts, settled
from tests.support.bound import BOUND_S
from tests.support.daemon_process import DaemonProcess
from tests.support.faulty_proxy import FaultyProxy
from tests.support.matrix_driver import MatrixPerson
from tests.support.synapse import Synapse

RULES: list[dict[str, Any]] = [
    {"match": "do (.*)", "steps": [{"effect": "effects.txt"}, {"say": "did $1"}]},
    {"match": "wait", "steps": [{"sleep": 2}, {"say": "waited"}]},
    {"match": "hi", "steps": [{"say": "hello"}]},
]
SEND = r"/send/m\.room\.message/"


@pytest.fixture
async def town(synapse: Synapse, proxy: FaultyProxy) -> AsyncIterator[MatrixCluster]:
    """The bot goes through the proxy, the person does not."""
    bot, ann = await accounts(synapse)
    async with MatrixPerson(synapse.url, ann, BOT_PASSWORD) as person:
        made = MatrixCluster(person, bot, proxy.url)
        await made.furnish(2)
        yield made


@pytest.fixture
async def daemon(town: MatrixCluster, tmp_path: Path) -> AsyncIterator[DaemonProcess]:
    """With one answered question in the first room."""
    async with DaemonProcess(town.home(tmp_path / "home", RULES)) as made:
        await town.joined()
        await town.ask("hi", "hello")
        yield made


async def test_what_is_written_while_nobody_listens_is_answered_once_and_in_order(
    daemon: DaemonProcess, town: MatrixCluster
) -> None:
    assert await daemon.stop() == 0
    for number in range(3):
        await town.person.say(town.room, f"do {number}")
    await daemon.start()
    await town.person.wait_text(town.room, "did 2", by=town.bot)
    daemon.kill()
    await daemon.ended()
    for number in range(3, 6):
        await town.person.say(town.room, f"do {number}")
    await town.person.say(town.rooms[1], "do elsewhere")
    await daemon.start()
    await town.person.wait_text(town.room, "did 5", by=town.bot)
    await town.person.wait_text(town.rooms[1], "did elsewhere", by=town.bot)
    did = [text for text in town.answers() if text.startswith("did")]
    assert did == [f"did {number}" for number in range(6)]


async def test_more_than_one_sync_holds_is_answered_too(
    daemon: DaemonProcess, town: MatrixCluster
) -> None:
    """A timeline that the server cuts is made whole."""
    assert await daemon.stop() == 0
    for number in range(60):
        await town.person.say(town.room, f"do {number}")
    await daemon.start()
    await town.person.wait_text(town.room, "did 59", 40.0, by=town.bot)
    did = [text for text in town.answers() if text.startswith("did")]
    assert did == [f"did {number}" for number in range(60)]


@pytest.mark.timeout(120)
async def test_an_answer_shows_once_whatever_happens_to_the_request(
    daemon: DaemonProcess, town: MatrixCluster, proxy: FaultyProxy
) -> None:
    loop = asyncio.get_running_loop()
    for kind in ("lost", "half", "cut", "status", "limited", "late"):
        proxy.fault(kind, path=SEND, method="PUT", count=2, retry_after_ms=1_500, seconds=2.0)
        began = loop.time()
        await town.ask(f"do {kind}", f"did {kind}", timeout_s=40.0)
        took_s = loop.time() - began
        await town.ask(f"do more {kind}", f"did more {kind}", timeout_s=30.0)
        await settled(daemon)
        assert town.answers().count(f"did {kind}") == 1, kind
        assert proxy.hits(kind) == 2, kind
        assert kind != "limited" or took_s >= 3.0, "sent before the server allowed it"
    assert daemon.sql("SELECT 1 FROM outbox WHERE state = 'unknown'") == []


async def test_a_homeserver_that_is_away_degrades_and_loses_nothing(
    daemon: DaemonProcess, town: MatrixCluster, proxy: FaultyProxy
) -> None:
    console = await daemon.chat("main")
    await town.person.say(town.room, "wait")
    await proxy.down()
    await daemon.until("main", "degraded", timeout_s=30)
    # The agent is reachable otherwise, and what is written meanwhile is answered later.
    assert await console.ask("hi") == "hello"
    await town.person.say(town.room, "do it")
    await proxy.up()
    await town.person.wait_text(town.room, "did it", 30.0, by=town.bot)
    await daemon.until("main", "running", warnings=[], timeout_s=30)
    assert [text for text in town.answers() if text != "hello"][-2:] == ["waited", "did it"]


async def test_a_refused_password_fails_the_bot_alone_and_a_new_one_mends_it(
    town: MatrixCluster, tmp_path: Path
) -> None:
    wrong = "not this one"
    home = town.home(tmp_path / "home", RULES)
    file = home / "agents.json"
    right = file.read_text()
    file.write_text(right.replace(BOT_PASSWORD, wrong))
    async with DaemonProcess(home) as daemon:
        view = await daemon.until("main", "degraded", timeout_s=BOUND_S)
        assert wrong not in json.dumps(view)
        console = await daemon.chat("main")
        assert await console.ask("hi") == "hello"
        file.with_suffix(".new").write_text(right)
        file.with_suffix(".new").replace(file)
        await town.joined()
        await town.ask("hi", "hello")
        after = await daemon.until("main", "running", warnings=[], timeout_s=BOUND_S)
        assert after["instance_id"] == view["instance_id"], "only the bot was built anew"
        assert wrong not in (home / "logs" / "agentsup.log").read_text()


async def test_a_device_stays_the_same_over_restarts(
    daemon: DaemonProcess, town: MatrixCluster
) -> None:
    async def devices() -> list[str]:
        async with MatrixPerson(town.person.url, town.bot, BOT_PASSWORD) as looking:
            found = await looking.call("GET", "/_matrix/client/v3/devices")
            await looking.call("POST", "/_matrix/client/v3/logout", {})
        names = {one["device_id"] for one in found["devices"]}
        return sorted(names - {looking.device_id})

    before = await devices()
    assert len(before) == 1
    assert await daemon.stop() == 0
    await daemon.start()
    await town.ask("do it", "did it")
    daemon.kill()
    await daemon.ended()
    await daemon.start()
    await town.ask("do more", "did more")
    assert await devices() == before
