"""How a bot reads what a real homeserver tells it: signed in by a token, in threads, from others than
its people, by edits, and from a place that the homeserver has lost."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.matrix_cluster import BOT_PASSWORD, MatrixCluster, accounts, settled
from tests.support.bound import BOUND_S
from tests.support.daemon_process import DaemonProcess, write_home
from tests.support.matrix_driver import MatrixPerson
from tests.support.matrix_view import RoomView, Seen
from tests.support.synapse import Synapse

RULES: list[dict[str, Any]] = [
    {
        "match": "ask",
        "steps": [
            {"question": {"text": "Which one?", "options": ["tea", "coffee"]}},
            {"say": "brews $result"},
        ],
    },
    {"match": "work", "steps": [{"sleep": 60}, {"say": "worked"}]},
    {"match": "wait (.*)", "steps": [{"sleep": 2}, {"say": "waited $1"}]},
    {"match": "(.*)", "steps": [{"effect": "effects.txt"}, {"say": "heard $1"}]},
]
LOGIN = "/_matrix/client/v3/login"


@pytest.fixture
async def town(synapse: Synapse) -> AsyncIterator[MatrixCluster]:
    bot, ann = await accounts(synapse)
    async with MatrixPerson(synapse.url, ann, BOT_PASSWORD) as person:
        made = MatrixCluster(person, bot, synapse.url)
        await made.furnish()
        yield made


@pytest.fixture
async def stranger(synapse: Synapse, town: MatrixCluster) -> AsyncIterator[MatrixPerson]:
    name = town.bot[1:].partition(":")[0] + "_stranger"
    user_id = await synapse.register(name, BOT_PASSWORD)
    async with MatrixPerson(synapse.url, user_id, BOT_PASSWORD) as made:
        yield made


@pytest.fixture
async def daemon(town: MatrixCluster, tmp_path: Path) -> AsyncIterator[DaemonProcess]:
    async with DaemonProcess(town.home(tmp_path / "home", RULES)) as made:
        await town.joined()
        await town.ask("hi", "heard hi")
        yield made


@pytest.fixture
async def group(
    town: MatrixCluster, stranger: MatrixPerson, tmp_path: Path
) -> AsyncIterator[DaemonProcess]:
    """The room is allowed, and somebody whom the bot does not know is in it."""
    await town.person.invite(town.room, stranger.user_id)
    await stranger.join(town.room)
    entry = town.entry(allowed_rooms=[town.room])
    async with DaemonProcess(write_home(tmp_path / "home", [entry], RULES)) as made:
        await town.joined()
        await town.ask("@" + town.bot[1:].partition(":")[0] + " hi", "heard hi")
        yield made


async def session(town: MatrixCluster) -> tuple[str, str]:
    """A session of the bot's account that somebody else made: its token and device."""
    body = {
        "type": "m.login.password",
        "identifier": {"type": "m.id.user", "user": town.bot},
        "password": BOT_PASSWORD,
    }
    async with MatrixPerson(town.homeserver, town.bot, BOT_PASSWORD) as account:
        made = await account.call("POST", LOGIN, body)
    return made["access_token"], made["device_id"]


async def test_a_token_is_all_that_is_needed_and_one_that_is_taken_back_is_told(
    town: MatrixCluster, tmp_path: Path
) -> None:
    token, device_id = await session(town)
    entry = town.entry(access_token=token)
    del entry["matrix"]["password"]
    home = write_home(tmp_path / "home", [entry], RULES)
    async with DaemonProcess(home) as daemon:
        await town.joined()
        await town.ask("by token", "heard by token")
        kept = (home / "agents" / "main" / "matrix-session.json").read_text()
        assert json.loads(kept)["device_id"] == device_id
        assert token not in kept
        assert await daemon.stop() == 0
        await daemon.start()
        await town.ask("after a start", "heard after a start")
        devices = await town_devices(town)
        assert device_id in devices
        assert not [each for each in devices.values() if each and "agentsup" in each]
        await log_out(town)
        await town.person.say(town.room, "ends the poll that is under way")
        async with asyncio.timeout(30):
            while "put a valid matrix.access_token" not in json.dumps(
                (await daemon.agents())["main"]
            ):
                await asyncio.sleep(0.1)
    assert token not in (home / "logs" / "agentsup.log").read_text()


async def town_devices(town: MatrixCluster) -> dict[str, str]:
    async with MatrixPerson(town.homeserver, town.bot, BOT_PASSWORD) as account:
        found = await account.call("GET", "/_matrix/client/v3/devices")
    return {each["device_id"]: each.get("display_name") or "" for each in found["devices"]}


async def log_out(town: MatrixCluster) -> None:
    async with MatrixPerson(town.homeserver, town.bot, BOT_PASSWORD) as account:
        await account.call("POST", "/_matrix/client/v3/logout/all", {})


async def test_what_was_read_in_a_thread_is_marked_there(
    daemon: DaemonProcess, town: MatrixCluster
) -> None:
    root = await town.person.say(town.room, "the root")
    await town.person.wait_text(town.room, "heard the root", by=town.bot)
    inside = await town.person.say(town.room, "inside", thread=root)
    await town.person.wait_text(town.room, "heard inside", by=town.bot, thread=root)

    def is_read(view: RoomView) -> bool | None:
        return view.read_in.get((town.bot, root)) == inside or None

    await town.person.wait_for(town.room, is_read)


async def test_a_strangers_press_answers_nothing_and_is_told_so(
    group: DaemonProcess, town: MatrixCluster, stranger: MatrixPerson
) -> None:
    name = town.bot[1:].partition(":")[0]
    said = await town.person.say(town.room, f"{name}: ask")

    def is_offered(seen: Seen) -> bool:
        return "Which one?" in seen.text and len(seen.reactions) == 2

    asked = await town.person.wait_message(town.room, is_offered, 20.0, after=said)
    for _ in range(2):
        pressed = await stranger.react(town.room, asked.event_id, "1️⃣")
        await stranger.redact(town.room, pressed)
    await town.person.wait_text(
        town.room, "This button is not for you.", by=town.bot, after=asked.event_id
    )
    (row,) = group.sql("SELECT state FROM questions")
    assert row["state"] == "open"
    await town.person.react(town.room, asked.event_id, "2️⃣")
    await town.person.wait_text(town.room, "brews coffee", by=town.bot)
    await settled(group)
    assert town.answers().count("This button is not for you.") == 1


async def test_edits_belong_where_their_message_is_and_a_stop_needs_no_name(
    group: DaemonProcess, town: MatrixCluster
) -> None:
    name = town.bot[1:].partition(":")[0]
    root = await town.person.say(town.room, "off we go")
    inside = await town.person.say(town.room, f"{name}: teh end", thread=root)
    await town.person.wait_text(town.room, "heard teh end", by=town.bot, thread=root)
    await town.person.edit(town.room, inside, "the end")
    await town.person.wait_text(town.room, "heard (edited) the end", by=town.bot, thread=root)
    outside = await town.person.say(town.room, f"{name}: teh start")
    await town.person.wait_text(town.room, "heard teh start", by=town.bot)
    await town.person.edit(town.room, outside, "the start")
    await town.person.wait_text(town.room, "heard (edited) the start", by=town.bot)
    rows = group.sql("SELECT conversation FROM conversations WHERE channel = 'matrix'")
    assert {row["conversation"] for row in rows} == {town.room, f"{town.room}/{root}"}
    await town.person.say(town.room, f"{name}: work")
    async with asyncio.timeout(BOUND_S):
        while not group.sql("SELECT 1 FROM messages WHERE state = 'leased'"):
            await asyncio.sleep(0.05)
    await town.person.say(town.room, "!stop")
    await settled(group, 15.0)
    assert "worked" not in town.answers()


async def test_a_place_that_the_homeserver_has_lost_repeats_nothing(
    daemon: DaemonProcess, town: MatrixCluster
) -> None:
    for number in range(3):
        await town.ask(f"old {number}", f"heard old {number}")
    await town.person.say(town.room, "/help")
    await town.person.wait_message(
        town.room, lambda seen: seen.sender == town.bot and "/status" in seen.text
    )
    await settled(daemon)
    assert await daemon.stop() == 0
    # As after some days in which the homeserver was made anew from a copy.
    with contextlib.closing(sqlite3.connect(daemon.home / "state.db")) as file:
        file.execute("DELETE FROM received")
        file.execute("UPDATE matrix_sync SET since = 'nothing that it has given'")
        file.commit()
    before = town.answers()
    await town.person.say(town.room, "new")
    await daemon.start()
    await town.person.wait_text(town.room, "heard new", 40.0, by=town.bot)
    await settled(daemon)
    assert town.answers() == [*before, "heard new"]
    lost = [line for line in daemon.log() if "does not know how far" in str(line.get("event"))]
    assert len(lost) == 1
    assert "token" in str(lost[0]["why"])
    effects = (daemon.home / "agents" / "main" / "workspace" / "effects.txt").read_text()
    assert effects.count("old 1") <= 1
