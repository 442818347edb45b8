"""The fake with the real python-telegram-bot: its objects parse, its errors are what it expects."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.contract.fake_telegram.conftest import FakeTelegramFixture
from tests.contract.fake_telegram.test_people import png

telegram = pytest.importorskip("telegram")


@pytest.fixture
async def client(place: FakeTelegramFixture, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    monkeypatch.setenv("PTB_TIMEDELTA", "true")
    base = place.fake.url
    made = telegram.Bot(place.bot.token, base_url=f"{base}/bot", base_file_url=f"{base}/file/bot")
    async with made:
        yield made


async def test_updates_of_every_kind_parse(place: FakeTelegramFixture, client: Any) -> None:
    people, chat = place.people, place.chat
    await client.get_updates(allowed_updates=telegram.Update.ALL_TYPES)
    said = await people.say(chat, "hello /start")
    await people.edit(chat, said, "hello again")
    await people.send_file(chat, b"data", name="a.txt")
    await people.send_file(chat, png(), kind="photo", caption="c")
    await people.react(chat, said, "👍")
    keyboard = telegram.InlineKeyboardMarkup.from_button(
        telegram.InlineKeyboardButton("Yes", callback_data="y")
    )
    sent = await client.send_message(place.ann, "sure?", reply_markup=keyboard)
    await people.press(chat, sent.message_id, text="Yes")
    forum = await people.group("F", [place.ann], administrators=[place.bot.bot_id], forum=True)
    thread = await people.topic(forum, "T", user=place.ann)
    await people.say(forum, "in it", user=place.ann, thread=thread)
    group = await people.group("G", [place.ann, place.bot.bot_id])
    await people.migrate(group)
    await people.block(chat)
    updates = await client.get_updates()
    kinds = [next(n for n in update.to_dict() if n != "update_id") for update in updates]
    assert kinds == [
        "message",
        "edited_message",
        "message",
        "message",
        "message_reaction",
        "callback_query",
        "message",
        "message",
        "message",
        "message",
        "my_chat_member",
    ]
    assert updates[0].message.date.year > 2020
    assert updates[5].callback_query.message.text == "sure?"
    assert updates[7].message.message_thread_id == thread
    document = updates[2].message.document
    assert bytes(await (await client.get_file(document)).download_as_bytearray()) == b"data"


async def test_answers_parse(place: FakeTelegramFixture, client: Any) -> None:
    sent = await client.send_message(place.ann, "<b>x</b>", parse_mode="HTML")
    assert sent.entities[0].type == "bold"
    edited = await client.edit_message_text("y", place.ann, sent.message_id)
    assert edited.text == "y"
    document = await client.send_document(place.ann, b"abc", filename="a.txt", caption="c")
    assert document.document.file_name == "a.txt"
    album = await client.send_media_group(
        place.ann, [telegram.InputMediaPhoto(png()), telegram.InputMediaPhoto(png())]
    )
    assert len(album) == 2
    assert await client.send_message_draft(place.ann, 1, "Hel")
    assert await client.set_message_reaction(place.ann, sent.message_id, "👀")
    assert await client.send_chat_action(place.ann, "typing")
    assert await client.set_my_commands([("help", "what I can do")], language_code="de")
    assert (await client.get_my_commands(language_code="de"))[0].command == "help"
    assert (await client.get_chat(place.ann)).first_name == "Ann"
    assert (await client.get_webhook_info()).url == ""
    forum = int(
        await place.people.group("F", [place.ann], administrators=[place.bot.bot_id], forum=True)
    )
    topic = await client.create_forum_topic(forum, "T")
    in_topic = await client.send_message(forum, "x", message_thread_id=topic.message_thread_id)
    assert in_topic.is_topic_message
    member = await client.get_chat_member(forum, place.bot.bot_id)
    assert member.status == "administrator"
    assert await client.delete_message(place.ann, sent.message_id)
    assert await place.people.violations() == []


async def test_errors_have_their_types(place: FakeTelegramFixture, client: Any) -> None:
    error = telegram.error
    with pytest.raises(error.BadRequest, match=r"[Mm]essage is too long"):
        await client.send_message(place.ann, "x" * 4097)
    await place.people.fault("flood", count=1, retry_after=4)
    with pytest.raises(error.RetryAfter) as flooded:
        await client.send_message(place.ann, "x")
    assert "4" in str(flooded.value)
    group = await place.people.group("G", [place.ann, place.bot.bot_id])
    new = await place.people.migrate(group)
    with pytest.raises(error.ChatMigrated) as migrated:
        await client.send_message(int(group), "x")
    assert migrated.value.new_chat_id == int(new)
    await place.people.block(place.chat)
    with pytest.raises(error.Forbidden, match="blocked by the user"):
        await client.send_message(place.ann, "x")
    await place.people.fault("server_error", count=1)
    with pytest.raises(error.NetworkError):
        await client.get_chat(place.ann)
    await place.people.revoke(place.bot.bot_id)
    with pytest.raises(error.InvalidToken):
        await client.get_me()
