"""What a person sees at a real homeserver while an agent works: typing, a stream at its pace, and
nothing in clear once the room has been encrypted."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.matrix_cluster import BOT_PASSWORD, HELD, MatrixCluster, accounts, let_go, settled
from tests.support.daemon_process import DaemonProcess
from tests.support.matrix_driver import MatrixPerson
from tests.support.synapse import Synapse

CHUNKS = [f"{number} words, and more words, and still more of them; " for number in range(40)]
RULES: list[dict[str, Any]] = [
    {
        "match": "wait (.*)",
        "steps": [HELD, {"say": "waited $1"}],
    },
    {"match": "tell (.*)", "steps": [{"stream": {"chunks": [*CHUNKS, "told $1"], "every": 0.15}}]},
    {"match": "(.*)", "steps": [{"say": "heard $1"}]},
]
MEGOLM = {"algorithm": "m.megolm.v1.aes-sha2"}


@pytest.fixture
async def town(synapse: Synapse) -> AsyncIterator[MatrixCluster]:
    bot, ann = await accounts(synapse)
    async with MatrixPerson(synapse.url, ann, BOT_PASSWORD) as person:
        yield MatrixCluster(person, bot, synapse.url)


@pytest.fixture
async def daemon(town: MatrixCluster, tmp_path: Path) -> AsyncIterator[DaemonProcess]:
    await town.furnish()
    eager = {"mode": "live", "edit_interval_s": 0.5, "min_chars": 1, "idle_ms": 100}
    async with DaemonProcess(town.home(tmp_path / "home", RULES, streaming=eager)) as made:
        await town.joined()
        await town.ask("hi", "heard hi")
        yield made


async def test_typing_is_seen_while_a_turn_runs_and_no_longer(
    daemon: DaemonProcess, town: MatrixCluster
) -> None:
    view = town.person.view(town.room)
    # Of the turn before: its end is told by itself, after the answer.
    await town.person.wait_for(town.room, lambda seen: town.bot not in seen.writing or None, 20.0)
    said = await town.person.say(town.room, "wait a little")
    await town.person.wait_for(town.room, lambda seen: town.bot in seen.writing or None)
    assert not town.person.messages(town.room, by=town.bot, after=said), "before the answer"
    let_go(daemon)
    await town.person.wait_text(town.room, "waited a little", by=town.bot)
    # By itself it would fade after half a minute.
    await town.person.wait_for(town.room, lambda seen: town.bot not in seen.writing or None, 20.0)
    view.typed.clear()
    await asyncio.sleep(1.0)
    await town.person.sync(timeout_ms=0)
    assert town.bot not in view.typed, "nothing goes on any more"


async def test_the_edits_of_a_stream_are_a_second_apart_or_more(
    daemon: DaemonProcess, town: MatrixCluster
) -> None:
    await town.ask("tell everything", "told everything", timeout_s=30.0)
    await settled(daemon)
    await town.person.sync(timeout_ms=0)
    (streamed,) = (
        seen
        for seen in town.person.messages(town.room, by=town.bot)
        if "told everything" in seen.text
    )
    stamps = [
        event["origin_server_ts"]
        for event in town.person.view(town.room).events
        if event["event_id"] == streamed.event_id or _target(event) == streamed.event_id
    ]
    assert len(stamps) >= 3, "it was streamed"
    shown = stamps[:-1]  # the last one is the whole answer, which waits for nothing
    gaps = [later - earlier for earlier, later in itertools.pairwise(shown)]
    assert min(gaps) >= 1_000, gaps


def _target(event: dict[str, Any]) -> str:
    relation = event.get("content", {}).get("m.relates_to", {})
    return str(relation.get("event_id")) if relation.get("rel_type") == "m.replace" else ""


@pytest.mark.parametrize("verb, answer", [("wait", "waited"), ("tell", "told")])
async def test_nothing_is_said_in_clear_once_the_room_is_encrypted(
    daemon: DaemonProcess, town: MatrixCluster, verb: str, answer: str
) -> None:
    """Switched on while the agent works, whether or not its answer is being streamed."""
    said = await town.person.say(town.room, f"{verb} a secret")
    if verb == "tell":
        await town.person.wait_text(town.room, "words", by=town.bot, after=said)
    else:
        await town.person.wait_for(town.room, lambda seen: town.bot in seen.writing or None)
    switch = await town.person.put_state(town.room, "m.room.encryption", MEGOLM)
    notice = await town.person.wait_message(
        town.room, lambda seen: "encrypted" in seen.text, by=town.bot, after=switch
    )
    assert notice.kind == "m.notice"
    let_go(daemon)
    await settled(daemon)
    await town.person.sync(timeout_ms=0)
    later = town.person.messages(town.room, by=town.bot, after=switch)
    assert [one.event_id for one in later] == [notice.event_id]
    assert f"{answer} a secret" not in str(town.person.view(town.room).events)
    assert [
        row["state"] for row in daemon.sql("SELECT state FROM outbox WHERE kind = 'answer'")
    ] == [
        "delivered",
        "dropped",
    ]


async def test_what_waited_for_a_room_that_was_encrypted_meanwhile_is_not_sent(
    daemon: DaemonProcess, town: MatrixCluster
) -> None:
    """The daemon was away when that happened: its first words after it are not in clear either."""
    await town.person.say(town.room, "wait and see")
    async with asyncio.timeout(10):
        while not daemon.sql("SELECT 1 FROM messages WHERE state = 'leased'"):
            await asyncio.sleep(0.05)
    daemon.kill()
    await daemon.ended()
    switch = await town.person.put_state(town.room, "m.room.encryption", MEGOLM)
    let_go(daemon)
    await daemon.start()
    await town.person.wait_text(town.room, "encrypted", by=town.bot, after=switch, timeout_s=30.0)
    await settled(daemon)
    await town.person.sync(timeout_ms=0)
    assert len(town.person.messages(town.room, by=town.bot, after=switch)) == 1
    assert "waited and see" not in str(town.person.view(town.room).events)
