"""Who may talk to an agent over Matrix, where, and what becomes of each kind of event; with a real
daemon at a real homeserver."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.live.matrix_cluster import BOT_PASSWORD, HELD, MatrixCluster, accounts, settled
from tests.support.bound import BOUND_S
from tests.support.daemon_process import DaemonProcess
from tests.support.matrix_driver import MatrixPerson
from tests.support.matrix_view import Seen
from tests.support.synapse import Synapse

RULES: list[dict[str, Any]] = [
    {"match": "wait (.*)", "steps": [HELD, {"say": "waited $1"}]},
    {"match": "(.*)", "steps": [{"effect": "effects.txt"}, {"say": "heard $1"}]},
]


@pytest.fixture
async def town(synapse: Synapse) -> AsyncIterator[MatrixCluster]:
    bot, ann = await accounts(synapse)
    async with MatrixPerson(synapse.url, ann, BOT_PASSWORD) as person:
        yield MatrixCluster(person, bot, synapse.url)


@pytest.fixture
async def stranger(synapse: Synapse, town: MatrixCluster) -> AsyncIterator[MatrixPerson]:
    name = town.bot[1:].partition(":")[0] + "_stranger"
    user_id = await synapse.register(name, BOT_PASSWORD)
    async with MatrixPerson(synapse.url, user_id, BOT_PASSWORD) as made:
        yield made


@pytest.fixture
async def daemon(town: MatrixCluster, tmp_path: Path) -> AsyncIterator[DaemonProcess]:
    await town.furnish()
    async with DaemonProcess(town.home(tmp_path / "home", RULES)) as made:
        await town.joined()
        await town.ask("hi", "heard hi")
        yield made


async def edited(daemon: DaemonProcess, change: Callable[[dict[str, Any]], None]) -> None:
    """Edit main's entry as an editor does, and wait until it is in effect."""
    before = len(logged(daemon, "configuration applied"))
    rewrite(daemon, change)
    async with asyncio.timeout(BOUND_S):
        while len(logged(daemon, "configuration applied")) == before:
            await asyncio.sleep(0.05)


def rewrite(daemon: DaemonProcess, change: Callable[[dict[str, Any]], None]) -> None:
    """Edit main's entry as an editor does."""
    file = daemon.home / "agents.json"
    entries = json.loads(file.read_text())
    change((entries if isinstance(entries, list) else entries["agents"])[0])
    new = file.with_suffix(".new")
    new.write_text(json.dumps(entries))
    new.replace(file)


def logged(daemon: DaemonProcess, *words: str) -> list[dict[str, Any]]:
    return [
        line for line in daemon.log() if all(word in str(line.get("event", "")) for word in words)
    ]


async def until_logged(daemon: DaemonProcess, *words: str) -> None:
    async with asyncio.timeout(BOUND_S):
        while not logged(daemon, *words):
            await asyncio.sleep(0.05)


async def test_a_stranger_alone_with_the_bot_is_let_in_by_a_code(
    daemon: DaemonProcess, town: MatrixCluster, stranger: MatrixPerson
) -> None:
    room = await stranger.room(invite=[town.bot])
    told = await stranger.wait_text(room, "I don't know you yet", by=town.bot)
    first = await stranger.say(room, "read this")
    (asked,) = (await daemon.get("/pairings"))["pairings"]
    assert asked["user_id"] == stranger.user_id
    assert asked["code"] in str(told)
    # What arrives only after that is of somebody who may write.
    async with asyncio.timeout(BOUND_S):
        while not daemon.sql(
            "SELECT 1 FROM received WHERE external_id = ? AND state = 'skipped'", (first,)
        ):
            await asyncio.sleep(0.05)
    done = await daemon.post("/pairings/let_in", {"code": asked["code"]})
    assert (done.status, done.body["role"]) == (200, "user")
    await stranger.wait_text(room, "You are let in", by=town.bot, after=first)
    said = await stranger.say(room, "hello")
    await stranger.wait_text(room, "heard hello", by=town.bot, after=said)
    texts = [
        row["text"] for row in daemon.sql("SELECT parts ->> '$[0].text' AS text FROM messages")
    ]
    assert "read this" not in texts


def answers(town: MatrixCluster) -> list[str]:
    """What the bot said in Ann's room, without what it said of strangers."""
    return [text for text in town.answers() if "asks to be let in" not in text]


async def test_a_stranger_with_a_code_gets_no_further_answer_and_the_log_says_how_to_allow(
    daemon: DaemonProcess, town: MatrixCluster, stranger: MatrixPerson
) -> None:
    alone = await stranger.room(invite=[town.bot])
    await stranger.wait_text(alone, "I don't know you yet", by=town.bot)
    room = await stranger.room(invite=[town.bot])
    await stranger.wait_member(room, town.bot, "leave")
    await until_logged(daemon, stranger.user_id, "matrix.allowed_users")
    # A stranger who comes along makes a room of two one where others read.
    await town.person.invite(town.room, stranger.user_id)
    await stranger.join(town.room)
    await stranger.say(town.room, "let me in")
    await town.person.say(town.room, "now with a guest")
    await until_logged(daemon, town.room, "matrix.allowed_rooms")
    assert answers(town) == ["heard hi"]
    await edited(daemon, lambda entry: entry["matrix"].update(allowed_rooms=[town.room]))
    await edited(daemon, lambda entry: entry.update(group_mention_only=False))
    await town.ask("and now", "heard and now")
    await stranger.say(town.room, "still me")
    await until_logged(daemon, stranger.user_id, "got no answer")
    await town.ask("the end", "heard the end")
    assert answers(town) == ["heard hi", "heard and now", "heard the end"]
    await stranger.leave(town.room)
    await stranger.wait_member(town.room, stranger.user_id, "leave")


async def test_a_group_is_answered_where_the_bot_is_meant(
    daemon: DaemonProcess, town: MatrixCluster, stranger: MatrixPerson
) -> None:
    def open_up(entry: dict[str, Any]) -> None:
        entry["matrix"]["allowed_rooms"] = [town.room]
        entry["matrix"]["allowed_users"].append(stranger.user_id)

    await edited(daemon, open_up)
    await town.person.invite(town.room, stranger.user_id)
    await stranger.join(town.room)
    await stranger.say(town.room, "among us")
    name = town.bot[1:].partition(":")[0]
    said = [
        await town.ask(f"{name}: by name", "heard by name"),
        await town.ask(f"hello @{name}", f"heard hello @{name}"),
    ]
    by_mention = await stranger.say(town.room, "you there", mention=[town.bot])
    await town.person.wait_text(town.room, "heard you there", by=town.bot, after=by_mention)
    reply = await stranger.say(town.room, "to you", reply_to=said[0].event_id)
    heard = "heard [about your own words: heard by name]\nto you"
    await town.person.wait_text(town.room, heard, by=town.bot, after=reply)
    # A thread in which the bot was meant once is a talk with it.
    root = await stranger.say(town.room, "off we go")
    first = await stranger.say(town.room, f"{name}: in here", thread=root)
    await town.person.wait_text(town.room, "heard in here", by=town.bot, after=first, thread=root)
    second = await stranger.say(town.room, "and on", thread=root)
    await town.person.wait_text(town.room, "heard and on", by=town.bot, after=second, thread=root)
    assert not [text for text in town.answers() if "among us" in text or "off we go" in text]


async def test_an_encrypted_room_is_refused_once_and_says_why(
    daemon: DaemonProcess, town: MatrixCluster
) -> None:
    room = await town.person.room(invite=[town.bot], encrypted=True)
    await town.person.wait_member(room, town.bot)
    secret = {"algorithm": "m.megolm.v1.aes-sha2", "ciphertext": "AAAA", "session_id": "s"}
    for _ in range(2):
        await town.person.put(room, "m.room.encrypted", secret)
    told = await town.person.wait_message(
        room, lambda seen: seen.sender == town.bot and "encrypted" in seen.text
    )
    assert town.bot in told.text
    await town.person.say(room, "in the clear, in an encrypted room")
    await town.ask("still there", "heard still there")
    await settled(daemon)
    assert len(town.person.messages(room, by=town.bot)) == 1
    assert daemon.sql("SELECT 1 FROM messages WHERE principal LIKE '%clear%'") == []


async def test_history_from_before_the_bot_is_left_alone_but_what_followed_the_invitation_is_not(
    town: MatrixCluster, tmp_path: Path
) -> None:
    # A room that the account is in already when the daemon first starts.
    old = await town.person.room(invite=[town.bot])
    async with MatrixPerson(town.homeserver, town.bot, BOT_PASSWORD) as account:
        await account.join(old)
        await town.person.say(old, "long ago")
        new = await town.person.room(name="new")
        for number in range(60):
            await town.person.say(new, f"before {number}")
        async with DaemonProcess(town.home(tmp_path / "home", RULES)):
            await town.ask("in the old room", "heard in the old room", room=old)
            await town.person.invite(new, town.bot)
            await town.person.say(new, "are you coming")
            await town.person.wait_member(new, town.bot)
            await town.person.wait_text(new, "heard are you coming", by=town.bot)
            assert town.answers(old) == ["heard in the old room"]
            assert town.answers(new) == ["heard are you coming"]


async def test_what_lies_beyond_a_long_absence_is_named(
    daemon: DaemonProcess, town: MatrixCluster
) -> None:
    assert await daemon.stop() == 0
    noise = {"msgtype": "m.notice", "body": "the news of other programs"}
    for _ in range(28):  # more than one sync and what is fetched besides
        await asyncio.gather(
            *(town.person.put(town.room, "m.room.message", noise) for _ in range(20))
        )
    await town.person.say(town.room, "after all that")
    await daemon.start()
    await town.person.wait_text(town.room, "heard after all that", 40.0, by=town.bot)
    assert any("oldest messages were not read" in text for text in town.answers())


async def test_what_came_too_late_is_named_and_not_answered(
    town: MatrixCluster, tmp_path: Path
) -> None:
    await town.furnish()
    home = town.home(tmp_path / "home", RULES)
    async with DaemonProcess(home) as daemon:
        await town.joined()
        await town.ask("hi", "heard hi")
        assert await daemon.stop() == 0
        await town.person.say(town.room, "one")
        await town.person.say(town.room, "two")
        await asyncio.sleep(1.2)  # the homeserver stamps them; they have to be old
        rewrite(daemon, lambda entry: entry["matrix"].update(backlog_hours=1 / 3600))
        await daemon.start()
        notice: Seen = await town.person.wait_message(
            town.room, lambda seen: seen.sender == town.bot and "2 messages" in seen.text
        )
        assert "one" in notice.text
        assert "two" in notice.text
        await town.ask("three", "heard three")
        assert town.answers()[0] == "heard hi"
        assert "heard one" not in town.answers()


async def test_a_session_that_ended_is_made_anew_from_the_password(
    daemon: DaemonProcess, town: MatrixCluster
) -> None:
    file = daemon.home / "agents" / "main" / "matrix-session.json"
    assert file.stat().st_mode & 0o777 == 0o600
    before = json.loads(file.read_text())
    assert await daemon.stop() == 0
    async with MatrixPerson(town.homeserver, town.bot, BOT_PASSWORD) as account:
        await account.call("POST", "/_matrix/client/v3/logout/all", {})
    await daemon.start()
    await town.ask("again", "heard again")
    after = json.loads(file.read_text())
    assert after["access_token"] != before["access_token"]
    assert after["device_id"] == before["device_id"]
    text = (daemon.home / "logs" / "agentsup.log").read_text()
    assert before["access_token"] not in text
    assert after["access_token"] not in text
    assert BOT_PASSWORD not in text


async def test_a_viewers_file_is_not_fetched(daemon: DaemonProcess, town: MatrixCluster) -> None:
    assert await daemon.stop() == 0
    config = daemon.home / "config.toml"
    person = f'[people.ann]\nrole = "viewer"\nmatrix = ["{town.person.user_id}"]\n'
    config.write_text((config.read_text() if config.exists() else "") + "\n" + person)
    await daemon.start()
    sent = await town.person.send_file(town.room, b"data", name="mine.bin")
    await town.person.wait_text(town.room, "may look but not write", by=town.bot, after=sent)
    inbox = daemon.home / "agents" / "main" / "workspace" / "inbox"
    assert not inbox.exists() or not list(inbox.iterdir())
