"""People through the control plane: who hears what, buttons, groups, topics, files."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import aiohttp
import pytest

from tests.contract.fake_telegram.conftest import FakeTelegramFixture


def png(width: int = 3, height: int = 2) -> bytes:
    """A real, tiny picture."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = (b"\0" + b"\0" * width) * height
    parts = (chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


async def upload(
    place: FakeTelegramFixture, method: str, files: dict[str, Any], **fields: Any
) -> dict[str, Any]:
    form = aiohttp.FormData()
    for name, value in fields.items():
        form.add_field(name, str(value))
    for name, (filename, data) in files.items():
        form.add_field(name, data, filename=filename)
    url = f"{place.fake.url}/bot{place.bot.token}/{method}"
    async with aiohttp.ClientSession() as http, http.post(url, data=form) as response:
        return {"status": response.status, **await response.json()}


async def button(place: FakeTelegramFixture) -> int:
    markup = {"inline_keyboard": [[{"text": "Yes", "callback_data": "y:1"}]]}
    return int((await place.send("sure?", reply_markup=markup))["result"]["message_id"])


async def test_a_press_reaches_the_bot_and_its_answer_the_person(
    place: FakeTelegramFixture,
) -> None:
    message_id = await button(place)
    query_id = await place.people.press(place.chat, message_id, text="Yes")
    (update,) = await place.updates()
    query = update["callback_query"]
    assert query["id"] == query_id
    assert query["data"] == "y:1"
    assert query["chat_instance"]
    assert query["message"]["message_id"] == message_id
    assert (await place.call("answerCallbackQuery", callback_query_id=query_id, text="done"))["ok"]
    assert (await place.people.pressed(query_id))["text"] == "done"
    old = "Bad Request: query is too old and response timeout expired or query ID is invalid"
    again = await place.refusal("answerCallbackQuery", callback_query_id=query_id)
    assert again == (400, old)
    assert await place.refusal("answerCallbackQuery", callback_query_id="5") == (400, old)


async def test_blocked_by_the_person(place: FakeTelegramFixture) -> None:
    await place.people.block(place.chat)
    assert await place.refusal("sendMessage", chat_id=place.ann, text="x") == (
        403,
        "Forbidden: bot was blocked by the user",
    )
    (update,) = await place.updates()
    assert update["my_chat_member"]["new_chat_member"]["status"] == "kicked"
    await place.people.say(place.chat, "back again")
    assert (await place.send("welcome"))["ok"]


async def test_unknown_and_strange_chats(place: FakeTelegramFixture) -> None:
    for chat_id in (424242, -5, "@nobody"):
        assert await place.refusal("sendMessage", chat_id=chat_id, text="x") == (
            400,
            "Bad Request: chat not found",
        )
    assert await place.refusal("sendMessage", text="x") == (400, "Bad Request: chat_id is empty")
    stranger = await place.people.user("Bob")
    assert (await place.refusal("sendMessage", chat_id=stranger, text="x"))[0] == 400
    await place.people.act("user", id=place.ann, is_deactivated=True)
    assert await place.refusal("sendMessage", chat_id=place.ann, text="x") == (
        403,
        "Forbidden: user is deactivated",
    )


async def test_privacy_mode_in_a_group(place: FakeTelegramFixture) -> None:
    group = await place.people.group("G", [place.ann, place.bot.bot_id])
    own = (await place.call("sendMessage", chat_id=int(group), text="hi"))["result"]["message_id"]
    say = place.people.say
    await say(group, "just talk", user=place.ann)
    await say(group, "hey @helper_bot", user=place.ann)
    await say(group, "an answer", user=place.ann, reply_to=own)
    await say(group, "/help", user=place.ann)
    await say(group, "/help@other_bot", user=place.ann)
    heard = [update["message"]["text"] for update in await place.updates()]
    assert heard == ["hey @helper_bot", "an answer", "/help"]
    curious = place.fake.bot(username="curious_bot", can_read_all_group_messages=True)
    await place.people.member(group, curious.bot_id, "member", by=place.ann)
    await say(group, "just talk", user=place.ann)
    answer = await place.people.call(curious.token, "getUpdates")
    assert answer["result"][0]["my_chat_member"]["new_chat_member"]["status"] == "member"
    assert answer["result"][-1]["message"]["text"] == "just talk"
    await place.people.member(group, place.bot.bot_id, "administrator", by=place.ann)
    await say(group, "to the administrator", user=place.ann)
    assert (await place.updates())[-1]["message"]["text"] == "to the administrator"


async def test_too_big_to_download(place: FakeTelegramFixture) -> None:
    await place.people.send_file(place.chat, b"x" * (20 * 1024 * 1024 + 1))
    (update,) = await place.updates()
    file_id = update["message"]["document"]["file_id"]
    assert await place.refusal("getFile", file_id=file_id) == (
        400,
        "Bad Request: file is too big",
    )


@pytest.mark.parametrize(
    "method, files, fields, why",
    [
        ("sendDocument", {}, {}, "there is no document in the request"),
        ("sendDocument", {"document": ("a", b"")}, {}, "file must be non-empty"),
        ("sendPhoto", {"photo": ("a.png", b"text")}, {}, "IMAGE_PROCESS_FAILED"),
        ("sendDocument", {"document": ("a", b"x")}, {"caption": "x" * 1025}, "caption is too long"),
        ("sendDocument", {}, {"document": "nonsense"}, "wrong remote file identifier"),
        ("sendDocument", {}, {"document": "attach://gone"}, "there is no document in the request"),
    ],
)
async def test_wrong_files(
    place: FakeTelegramFixture, method: str, files: dict[str, Any], fields: dict[str, Any], why: str
) -> None:
    answer = await upload(place, method, files, chat_id=place.ann, **fields)
    assert answer["error_code"] == 400
    assert why in answer["description"]


@pytest.mark.parametrize(
    "commands",
    [
        [{"command": "Help", "description": "d"}],
        [{"command": "a" * 33, "description": "d"}],
        [{"command": "a-b", "description": "d"}],
        [{"command": "a", "description": ""}],
        [{"command": "a", "description": "d" * 257}],
        [{"command": "a"}],
        [{"command": f"c{n}", "description": "d"} for n in range(101)],
        "nonsense",
    ],
)
async def test_wrong_commands(place: FakeTelegramFixture, commands: Any) -> None:
    assert (await place.refusal("setMyCommands", commands=commands))[0] == 400


async def test_scopes_and_languages_are_checked(place: FakeTelegramFixture) -> None:
    assert (await place.refusal("getMyCommands", scope={"type": "moon"}))[0] == 400
    assert (await place.refusal("getMyCommands", scope={"type": "chat"}))[0] == 400
    assert (await place.refusal("getMyCommands", language_code="deu"))[0] == 400
