"""Faults on demand, rate limits, and a state that outlives kills."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from agentsup.fakes.telegram import FakeTelegram, TelegramDriver
from tests.contract.fake_telegram.conftest import FakeTelegramFixture


async def raw(place: FakeTelegramFixture, method: str, **fields: Any) -> aiohttp.ClientResponse:
    """A call whose answer may be anything; the body is read before the connection closes."""
    url = f"{place.fake.url}/bot{place.bot.token}/{method}"
    async with aiohttp.ClientSession() as http, http.post(url, json=fields) as response:
        await response.read()
        return response


async def texts(place: FakeTelegramFixture) -> list[str]:
    return await place.people.texts(place.chat)


async def test_flood_hits_one_chat_a_number_of_times(place: FakeTelegramFixture) -> None:
    bob = await place.people.user("Bob")
    await place.people.private(bob, place.bot.bot_id)
    await place.people.fault("flood", chat_id=place.ann, count=2, retry_after=7)
    for _ in range(2):
        response = await raw(place, "sendMessage", chat_id=place.ann, text="x")
        assert response.status == 429
        assert response.headers["Retry-After"] == "7"
        assert await response.json() == {
            "ok": False,
            "error_code": 429,
            "description": "Too Many Requests: retry after 7",
            "parameters": {"retry_after": 7},
        }
    assert (await place.call("sendMessage", chat_id=bob, text="x"))["ok"]
    assert (await place.send("x"))["ok"]
    report = await place.people.report()
    assert report["hammered"] == 2, "one retry and one send came within the seven seconds"


async def test_a_flood_is_about_its_kind_of_call_and_what_matters_less(
    place: FakeTelegramFixture,
) -> None:
    sent = (await place.send("0"))["result"]["message_id"]
    group = int(await place.people.group("G", [place.ann, place.bot.bot_id]))
    grouped = (await place.call("sendMessage", chat_id=group, text="0"))["result"]["message_id"]

    async def hammered(chat: int, refused: str, *then: str) -> int:
        await place.people.reset_report()
        await place.people.fault("flood", method=refused, count=1, retry_after=7)
        fields = {"message_id": grouped if chat == group else sent, "action": "typing"}
        for number, method in enumerate((refused, *then)):
            text = f"{refused} {number}"
            answer = await place.call(method, chat_id=chat, text=text, **fields)
            assert answer["ok"] == bool(number), answer
        return int((await place.people.report())["hammered"])

    message, edit, light = "sendMessage", "editMessageText", "sendChatAction"
    assert await hammered(place.ann, light, message, edit) == 0
    assert await hammered(place.ann, edit, message) == 0
    assert await hammered(place.ann, edit, edit) == 1
    assert await hammered(place.ann, message, edit, message) == 2
    assert await hammered(group, edit, message, edit) == 2


async def test_a_cut_before_and_after(place: FakeTelegramFixture) -> None:
    await place.people.fault("cut_before", method="sendMessage", count=1)
    with pytest.raises(aiohttp.ClientConnectionError):
        await raw(place, "sendMessage", chat_id=place.ann, text="lost")
    assert await texts(place) == []
    await place.people.fault("cut_after", method="sendMessage", count=1)
    with pytest.raises(aiohttp.ClientConnectionError):
        await raw(place, "sendMessage", chat_id=place.ann, text="arrived")
    assert await texts(place) == ["arrived"]


async def test_edits_too_early_are_punished_ever_longer(place: FakeTelegramFixture) -> None:
    sent = (await place.send("0"))["result"]["message_id"]
    await place.people.fault("edit_penalty", seconds=3, retry_after=5, grow=2)
    waits = []

    async def edit(text: str) -> dict[str, Any]:
        return await place.call("editMessageText", chat_id=place.ann, message_id=sent, text=text)

    assert (await edit("1"))["ok"]
    for number in range(2, 5):
        answer = await edit(str(number))
        waits.append(answer["parameters"]["retry_after"])
    assert waits == [5, 10, 20]
    await place.people.advance(21)
    assert (await edit("5"))["ok"]
    assert (await place.send("a message is no edit"))["ok"]


async def test_a_group_takes_twenty_a_minute(place: FakeTelegramFixture) -> None:
    await place.people.limits("enforce")
    group = int(await place.people.group("G", [place.ann, place.bot.bot_id]))
    for number in range(20):
        assert (await place.call("sendMessage", chat_id=group, text=str(number)))["ok"]
    answer = await place.call("sendMessage", chat_id=group, text="21")
    first = answer["parameters"]["retry_after"]
    assert answer["error_code"] == 429
    assert 50 <= first <= 60
    again = await place.call("sendMessage", chat_id=group, text="21")
    assert again["parameters"]["retry_after"] > first, "hammering lengthens the wait"
    report = await place.people.report()
    assert (report["refused"], report["hammered"]) == (2, 1)
    assert (await place.send("elsewhere"))["ok"], "another chat is not concerned"


async def test_a_bot_takes_thirty_a_second(place: FakeTelegramFixture) -> None:
    chats = []
    for number in range(16):
        person = await place.people.user(f"P{number}")
        await place.people.private(person, place.bot.bot_id)
        chats += [person, person]
    for person in chats:
        await place.call("sendMessage", chat_id=person, text="x")
    report = await place.people.report()
    (row,) = [row for row in report["rates"] if row["rate"] == "bot"]
    assert row["total"] == 32
    assert row["most_in_span"] > 20, "they came in well under a second or two"
    assert bool(row["exceeded"]) == (row["most_in_span"] > 30)


async def test_the_control_plane_is_for_this_machine_only(place: FakeTelegramFixture) -> None:
    async with aiohttp.ClientSession() as http:
        for headers in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}):
            async with http.get(f"{place.fake.url}/_fake/chats", headers=headers) as response:
                assert response.status == 403
        own = {"Origin": place.fake.url}
        async with http.get(f"{place.fake.url}/_fake/chats", headers=own) as response:
            assert response.status == 200
        url = f"{place.fake.url}/bot{place.bot.token}/_fake/say"
        async with http.post(url, json={}) as response:
            assert response.status in {404, 405}


async def test_the_state_outlives_a_restart(tmp_path: Path) -> None:
    folder = tmp_path / "fake"
    async with FakeTelegram(folder) as fake, TelegramDriver(fake.url) as people:
        bot = fake.bot(username="helper_bot")
        ann = await people.user("Ann")
        chat = await people.private(ann, bot.bot_id)
        await people.say(chat, "one")
        await people.send_file(chat, b"data")
        await people.fault("flood", count=5)
        updates = (await people.call(bot.token, "getUpdates"))["result"]
        port = fake.port
    async with FakeTelegram(folder, port=port) as fake, TelegramDriver(fake.url) as people:
        assert (await people.call(bot.token, "getUpdates"))["result"] == updates
        assert (await people.call(bot.token, "sendMessage", chat_id=ann, text="x"))["status"] == 429
        await people.clear_faults()
        sent = await people.call(bot.token, "sendMessage", chat_id=ann, text="x")
        assert sent["result"]["message_id"] == 3
        unique = updates[1]["message"]["document"]["file_unique_id"]
        assert await people.download(unique) == b"data"
        await people.say(chat, "two")
        later = (await people.call(bot.token, "getUpdates"))["result"][-1]
        assert later["update_id"] == updates[-1]["update_id"] + 1


@pytest.fixture
def starting(tmp_path: Path) -> Iterator[Any]:
    """Start the fake as a process on one folder; all are killed at the end."""
    running: list[subprocess.Popen[str]] = []

    def start(*more: str) -> tuple[subprocess.Popen[str], dict[str, Any]]:
        argv = [sys.executable, "-m", "agentsup.fakes.telegram", "--folder", str(tmp_path / "f")]
        process = subprocess.Popen([*argv, *more], stdout=subprocess.PIPE, text=True)
        running.append(process)
        assert process.stdout is not None
        line: dict[str, Any] = json.loads(process.stdout.readline())
        return process, line

    yield start
    for process in running:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


async def test_as_a_process_it_outlives_sigkill(starting: Any, tmp_path: Path) -> None:
    process, line = starting()
    token = "55:secret"
    async with TelegramDriver(line["url"]) as people:
        bot = await people.add_bot(token, username="killed_bot")
        chat = await people.private(await people.user("Ann"), bot)
        await people.say(chat, "before the kill")
        os.kill(line["pid"], signal.SIGKILL)
        process.wait()
    with (tmp_path / "f/journal.jsonl").open("a") as torn:
        torn.write('["message", "half of a li')
    process, line = starting("--port", str(line["port"]), "--limits", "enforce")
    async with TelegramDriver(line["url"]) as people:
        updates = (await people.call(token, "getUpdates"))["result"]
        assert [update["message"]["text"] for update in updates] == ["before the kill"]
        assert (await people.report())["mode"] == "enforce"
        process.terminate()
        process.wait()
    assert process.returncode == 0


async def test_a_poll_that_was_cut_confirms_nothing(place: FakeTelegramFixture) -> None:
    """A client that dies while it polls gets the same updates again."""
    body = json.dumps({"timeout": 30}).encode()
    head = (
        f"POST /bot{place.bot.token}/getUpdates HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", place.fake.port)) as connection:
        connection.sendall(head.encode() + body)
        while "getUpdates" not in (await place.people.report())["calls"]:
            await place.people.get("clock")
    await place.people.say(place.chat, "after the death")
    assert len(await place.updates()) == 1
