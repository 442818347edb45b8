"""People through the control plane: who hears what, buttons, groups, topics, files."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import aiohttp
import pytest

from agentsup.fakes.telegram import ControlRefused
from tests.contract.fake_telegram.conftest import Place


def png(width: int = 3, height: int = 2) -> bytes:
    """A real, tiny picture."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = (b"\0" + b"\0" * width) * height
    parts = (chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


async def upload(place: Place, method: str, files: dict[str, Any], **fields: Any) -> dict[str, Any]:
    form = aiohttp.FormData()
    for name, value in fields.items():
        form.add_field(name, str(value))
    for name, (filename, data) in files.items():
        form.add_field(name, data, filename=filename)
    url = f"{place.fake.url}/bot{place.bot.token}/{method}"
    async with aiohttp.ClientSession() as http, http.post(url, data=form) as response:
        return {"status": response.status, **await response.json()}


async def fetch(place: Place, file_id: str) -> tuple[int, bytes]:
    found = (await place.call("getFile", file_id=file_id))["result"]
    url = f"{place.fake.url}/file/bot{place.bot.token}/{found['file_path']}"
    async with aiohttp.ClientSession() as http, http.get(url) as response:
        return response.status, await response.read()


async def button(place: Place) -> int:
    markup = {"inline_keyboard": [[{"text": "Yes", "callback_data": "y:1"}]]}
    return int((await place.send("sure?", reply_markup=markup))["result"]["message_id"])


async def test_a_press_reaches_the_bot_and_its_answer_the_person(place: Place) -> None:
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


async def test_a_press_can_be_answered_for_a_minute(place: Place) -> None:
    query_id = await place.people.press(place.chat, await button(place), data="y:1")
    await place.people.advance(61)
    assert (await place.refusal("answerCallbackQuery", callback_query_id=query_id))[0] == 400


async def test_a_button_that_is_gone(place: Place) -> None:
    message_id = await button(place)
    await place.call("editMessageReplyMarkup", chat_id=place.ann, message_id=message_id)
    with pytest.raises(ControlRefused, match="no such button"):
        await place.people.press(place.chat, message_id, data="y:1")
    await place.people.press(place.chat, message_id, data="y:1", force=True)
    assert (await place.updates())[-1]["callback_query"]["data"] == "y:1"


async def test_blocked_by_the_person(place: Place) -> None:
    await place.people.block(place.chat)
    assert await place.refusal("sendMessage", chat_id=place.ann, text="x") == (
        403,
        "Forbidden: bot was blocked by the user",
    )
    (update,) = await place.updates()
    assert update["my_chat_member"]["new_chat_member"]["status"] == "kicked"
    await place.people.say(place.chat, "back again")
    assert (await place.send("welcome"))["ok"]


async def test_unknown_and_strange_chats(place: Place) -> None:
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


async def test_privacy_mode_in_a_group(place: Place) -> None:
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


async def test_entities_of_what_people_write(place: Place) -> None:
    await place.people.say(place.chat, "🚀 /start@helper_bot see https://x.org @ann_lee")
    (update,) = await place.updates()
    assert update["message"]["entities"] == [
        {"type": "bot_command", "offset": 3, "length": 17},
        {"type": "url", "offset": 25, "length": 13},
        {"type": "mention", "offset": 39, "length": 8},
    ]


async def test_a_kicked_bot(place: Place) -> None:
    group = await place.people.group("G", [place.ann, place.bot.bot_id], supergroup=True)
    await place.people.member(group, place.bot.bot_id, "kicked", by=place.ann)
    assert await place.refusal("sendMessage", chat_id=int(group), text="x") == (
        403,
        "Forbidden: bot was kicked from the supergroup chat",
    )
    await place.people.member(group, place.bot.bot_id, "left", by=place.ann)
    code, why = await place.refusal("sendMessage", chat_id=int(group), text="x")
    assert (code, why) == (403, "Forbidden: bot is not a member of the supergroup chat")


async def test_a_migrated_group(place: Place) -> None:
    group = await place.people.group("G", [place.ann, place.bot.bot_id])
    new = await place.people.migrate(group)
    answer = await place.call("sendMessage", chat_id=int(group), text="x")
    assert answer["description"] == "Bad Request: group chat was upgraded to a supergroup chat"
    assert answer["parameters"] == {"migrate_to_chat_id": int(new)}
    to, come = [update["message"] for update in await place.updates()]
    assert to["migrate_to_chat_id"] == int(new)
    assert come["migrate_from_chat_id"] == int(group)
    assert (await place.call("sendMessage", chat_id=int(new), text="x"))["ok"]


async def test_topics(place: Place) -> None:
    forum = await place.people.group(
        "F", [place.ann], administrators=[place.bot.bot_id], forum=True
    )
    chat_id = int(forum)
    made = (await place.call("createForumTopic", chat_id=chat_id, name="Plans"))["result"]
    thread = made["message_thread_id"]
    sent = await place.call("sendMessage", chat_id=chat_id, text="x", message_thread_id=thread)
    assert sent["result"]["is_topic_message"] is True
    assert await place.refusal("sendMessage", chat_id=chat_id, text="x", message_thread_id=999) == (
        400,
        "Bad Request: message thread not found",
    )
    await place.people.say(forum, "in it", user=place.ann, thread=thread)
    message = (await place.updates())[-1]["message"]
    assert message["message_thread_id"] == thread
    opened = message["reply_to_message"]
    assert opened["forum_topic_created"]["name"] == "Plans", "not a real reply, as in Telegram"
    theirs = await place.people.topic(forum, "Ideas", user=place.ann)
    assert (await place.updates())[-1]["message"]["forum_topic_created"]["name"] == "Ideas"
    target = {"chat_id": chat_id, "message_thread_id": theirs}
    assert (await place.call("editForumTopic", **target, name="Better"))["result"] is True
    assert (await place.refusal("editForumTopic", **target, name="Better"))[0] == 400
    assert (await place.call("closeForumTopic", **target))["result"] is True
    assert (await place.call("deleteForumTopic", **target))["result"] is True
    assert (await place.refusal("closeForumTopic", **target))[0] == 400
    plain = await place.people.group("P", [place.ann, place.bot.bot_id], supergroup=True)
    assert await place.refusal("createForumTopic", chat_id=int(plain), name="x") == (
        400,
        "Bad Request: the chat is not a forum",
    )


async def test_a_closed_topic_and_missing_rights(place: Place) -> None:
    forum = await place.people.group("F", [place.ann, place.bot.bot_id], forum=True)
    thread = await place.people.topic(forum, "Ideas", user=place.ann)
    target = {"chat_id": int(forum), "message_thread_id": thread}
    assert (await place.refusal("closeForumTopic", **target))[0] == 400
    await place.people.member(forum, place.bot.bot_id, "administrator")
    assert (await place.call("closeForumTopic", **target))["ok"]
    await place.people.member(forum, place.bot.bot_id, "member")
    assert await place.refusal("sendMessage", **target, text="x") == (
        400,
        "Bad Request: TOPIC_CLOSED",
    )


async def test_files_from_people(place: Place) -> None:
    await place.people.send_file(place.chat, b"data", name="notes.md", caption="see /this")
    await place.people.send_file(place.chat, png(), name="p.png", kind="photo")
    await place.people.send_file(place.chat, b"OggS", name="v.ogg", kind="voice", mime="audio/ogg")
    notes, photo, voice = [update["message"] for update in await place.updates()]
    assert notes["document"]["file_name"] == "notes.md"
    assert notes["caption_entities"][0]["type"] == "bot_command"
    assert await fetch(place, notes["document"]["file_id"]) == (200, b"data")
    assert (photo["photo"][0]["width"], photo["photo"][0]["height"]) == (3, 2)
    assert await fetch(place, photo["photo"][0]["file_id"]) == (200, png())
    assert voice["voice"]["mime_type"] == "audio/ogg"


async def test_file_ids_belong_to_a_bot_and_links_expire(place: Place) -> None:
    await place.people.send_file(place.chat, b"data")
    (update,) = await place.updates()
    file_id = update["message"]["document"]["file_id"]
    other = place.fake.bot()
    answer = await place.people.call(other.token, "getFile", file_id=file_id)
    assert answer["error_code"] == 400
    assert "wrong file_id" in answer["description"]
    path = (await place.call("getFile", file_id=file_id))["result"]["file_path"]
    await place.people.advance(3601)
    url = f"{place.fake.url}/file/bot{place.bot.token}/{path}"
    async with aiohttp.ClientSession() as http, http.get(url) as response:
        assert response.status == 404


async def test_too_big_to_download(place: Place) -> None:
    await place.people.send_file(place.chat, b"x" * (20 * 1024 * 1024 + 1))
    (update,) = await place.updates()
    file_id = update["message"]["document"]["file_id"]
    assert await place.refusal("getFile", file_id=file_id) == (
        400,
        "Bad Request: file is too big",
    )


async def test_files_to_people(place: Place) -> None:
    answer = await upload(
        place,
        "sendDocument",
        {"document": ("a.txt", b"abc")},
        chat_id=place.ann,
        caption="*c*",
        parse_mode="MarkdownV2",
    )
    document = answer["result"]["document"]
    assert answer["result"]["caption"] == "c"
    assert await place.people.download(document["file_unique_id"]) == b"abc"
    again = await place.call("sendDocument", chat_id=place.ann, document=document["file_id"])
    assert again["result"]["document"]["file_unique_id"] == document["file_unique_id"]
    photo = await upload(place, "sendPhoto", {"x": ("p.png", png())}, chat_id=place.ann,
                         photo="attach://x")  # fmt: skip
    assert photo["result"]["photo"][0]["width"] == 3
    target = {"chat_id": place.ann, "message_id": photo["result"]["message_id"]}
    assert (await place.call("editMessageCaption", **target, caption="new"))["ok"]
    assert await place.refusal("editMessageText", **target, text="x") == (
        400,
        "Bad Request: there is no text in the message to edit",
    )
    assert await place.people.violations() == []


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
    place: Place, method: str, files: dict[str, Any], fields: dict[str, Any], why: str
) -> None:
    answer = await upload(place, method, files, chat_id=place.ann, **fields)
    assert answer["error_code"] == 400
    assert why in answer["description"]


async def test_albums(place: Place) -> None:
    media = '[{"type":"photo","media":"attach://a","caption":"two"},'
    media += '{"type":"photo","media":"attach://b"}]'
    files = {"a": ("a.png", png()), "b": ("b.png", png())}
    answer = await upload(place, "sendMediaGroup", files, chat_id=place.ann, media=media)
    first, second = answer["result"]
    assert first["media_group_id"] == second["media_group_id"]
    assert first["caption"] == "two"
    one = '[{"type":"photo","media":"attach://a"}]'
    answer = await upload(place, "sendMediaGroup", files, chat_id=place.ann, media=one)
    assert answer["error_code"] == 400


async def test_profile_and_commands(place: Place) -> None:
    me = (await place.call("getMe"))["result"]
    assert (me["is_bot"], me["username"]) == (True, "helper_bot")
    commands = [{"command": "help", "description": "What I can do"}]
    german = {"scope": {"type": "all_private_chats"}, "language_code": "de"}
    assert (await place.call("setMyCommands", commands=commands, **german))["result"] is True
    assert (await place.call("getMyCommands", **german))["result"] == commands
    assert (await place.call("getMyCommands"))["result"] == []
    assert (await place.call("deleteMyCommands", **german))["result"] is True
    assert (await place.call("getMyCommands", **german))["result"] == []
    assert (await place.call("setMyName", name="Helfer", language_code="de"))["ok"]
    assert (await place.call("getMyName", language_code="de"))["result"] == {"name": "Helfer"}
    assert (await place.call("getMyName"))["result"] == {"name": "Helper"}
    assert (await place.call("setMyDescription", description="d" * 512))["ok"]
    assert (await place.refusal("setMyDescription", description="d" * 513))[0] == 400
    assert (await place.refusal("setMyShortDescription", short_description="d" * 121))[0] == 400
    assert (await place.call("setChatMenuButton", menu_button={"type": "commands"}))["ok"]
    assert (await place.refusal("setChatMenuButton", menu_button={"type": "x"}))[0] == 400


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
async def test_wrong_commands(place: Place, commands: Any) -> None:
    assert (await place.refusal("setMyCommands", commands=commands))[0] == 400


async def test_scopes_and_languages_are_checked(place: Place) -> None:
    assert (await place.refusal("getMyCommands", scope={"type": "moon"}))[0] == 400
    assert (await place.refusal("getMyCommands", scope={"type": "chat"}))[0] == 400
    assert (await place.refusal("getMyCommands", language_code="deu"))[0] == 400


async def test_chats_and_members(place: Place) -> None:
    full = (await place.call("getChat", chat_id=place.ann))["result"]
    assert (full["type"], full["first_name"]) == ("private", "Ann")
    group = int(await place.people.group("G", [place.ann, place.bot.bot_id]))
    found = await place.call("getChatMember", chat_id=group, user_id=place.bot.bot_id)
    assert found["result"]["status"] == "member"
    assert (await place.refusal("getChatMember", chat_id=group, user_id=99))[0] == 400
    assert (await place.call("leaveChat", chat_id=group))["result"] is True
    assert (await place.refusal("sendMessage", chat_id=group, text="x"))[0] == 403
