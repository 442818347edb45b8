"""Messages that today's clients send: blocks without a text, new kinds, replies to files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.component.channels.telegram.fixture import TelegramFixture, rigged


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[TelegramFixture]:
    async with rigged(tmp_path) as rig:
        yield rig


async def sent(rig: TelegramFixture, **fields: Any) -> None:
    """Ann sends a message with these fields, and perhaps no text."""
    update = await rig.message_update("x" * (len(await rig.rows("SELECT 1 FROM received")) + 1))
    del update["message"]["text"]
    update["message"] |= fields
    await rig.people.inject(rig.bot.bot_id, update)


def paragraphs(*texts: Any) -> dict[str, Any]:
    return {"blocks": [{"type": "paragraph", "text": text} for text in texts]}


async def test_a_rich_message_is_answered(rig: TelegramFixture) -> None:
    await rig.start()
    await sent(rig, rich_message=paragraphs("first", ["and ", {"type": "bold", "text": "more"}]))
    await rig.people.wait_text(rig.chat, "echo: first")
    assert rig.agent.texts == ["first\n\nand more"]


async def test_a_stop_in_blocks_ends_what_runs(rig: TelegramFixture) -> None:
    await rig.start()
    stop = {"type": "bot_command", "text": "/stop", "bot_command": "/stop"}
    await sent(rig, rich_message=paragraphs(stop))
    await rig.people.wait_text(rig.chat, "stopped")
    assert rig.ran == ["stop"]


async def test_an_edit_that_only_moves_a_link_is_an_edit(rig: TelegramFixture) -> None:
    await rig.start()
    link = {"type": "text_link", "offset": 5, "length": 4, "url": "https://a.example/1"}
    await sent(rig, message_id=70, text="read this", entities=[link])
    await rig.people.wait_text(rig.chat, "echo: read this")
    update = await rig.message_update("read this")
    link["url"] = "https://a.example/2"
    body = {"message_id": 70, "edit_date": update["message"]["date"], "entities": [link]}
    await rig.people.inject(rig.bot.bot_id, {"edited_message": update["message"] | body})
    await rig.people.wait_text(rig.chat, "(edited) read this")
    assert rig.agent.texts == [
        "read [this](https://a.example/1)",
        "(edited) read [this](https://a.example/2)",
    ]


async def test_content_that_nobody_knows_is_told(rig: TelegramFixture) -> None:
    await rig.start()
    await sent(rig, hologram={"file_id": "x"})
    await rig.people.wait_text(rig.chat, "hologram")
    mixed = paragraphs("see")
    mixed["blocks"].append({"type": "shape", "x": 1})
    await sent(rig, rich_message=mixed)
    await rig.people.wait_text(rig.chat, "(shape)")
    await rig.settled()
    (text,) = rig.agent.texts
    assert text.startswith("see\n\n[a part of the kind “shape”")
    assert "[the person was told: " in text
    await sent(rig, pinned_message={"message_id": 1, "date": 0})
    await rig.people.say(rig.chat, "last")
    await rig.people.wait_text(rig.chat, "echo: last")
    assert len(rig.agent.texts) == 2


async def test_a_file_that_is_replied_to_is_fetched(rig: TelegramFixture) -> None:
    await rig.start()
    message_id = await rig.people.send_file(rig.chat, b"data", name="a.txt", caption="here")
    await rig.people.wait_text(rig.chat, "echo: here")
    await rig.people.say(rig.chat, "summarise this", reply_to=message_id)
    await rig.people.wait_text(rig.chat, "summarise this")
    _, text, parts = rig.agent.seen[1]
    assert text == "[in reply to Ann: here (with a.txt)]\nsummarise this"
    (file,) = [part for part in parts if part.type == "file"]
    assert (rig.folder / "workspace" / file.path).read_bytes() == b"data"
    await rig.people.say(rig.chat, "/ping", reply_to=message_id)
    await rig.people.wait_text(rig.chat, "pong")


async def test_what_did_not_arrive_is_told_to_the_agent_too(rig: TelegramFixture) -> None:
    rig.limits = rig.quick(max_file_bytes=1024)
    await rig.start()
    await rig.people.send_file(rig.chat, bytes(2000), name="big.zip", caption="look")
    await rig.people.wait_text(rig.chat, "echo: look")
    (text,) = rig.agent.texts
    assert text.startswith("look\n[the person was told: big.zip")


FORWARD = {"forward_origin": {"type": "user", "date": 1, "sender_user": {"first_name": "Eve"}}}


async def in_a_row(rig: TelegramFixture, *messages: dict[str, Any]) -> None:
    for number, fields in enumerate(messages):
        await sent(rig, message_id=500 + number, **fields)


async def test_the_pieces_of_a_long_text_are_one_message(rig: TelegramFixture) -> None:
    await rig.start()
    first, second = ("😀" * 2048, "lorem " * 600)
    await in_a_row(rig, {"text": first}, {"text": second}, {"text": "Summarise that."})
    await rig.people.wait_text(rig.chat, "Summarise that.")
    await rig.settled()
    assert rig.agent.texts == [f"{first}\n{second}\nSummarise that."]
    assert await rig.states() == {"done": 3}


async def test_forwarded_messages_and_their_comment_are_one_message(rig: TelegramFixture) -> None:
    rig.limits = rig.quick(comment_s=0.3)
    await rig.start()
    await in_a_row(rig, {"text": "is that so?"}, *({"text": f"no {n}", **FORWARD} for n in "123"))
    await rig.people.wait_text(rig.chat, "no 3")
    await rig.settled()
    (text,) = rig.agent.texts
    mark = "[forwarded from Eve]\n"
    assert text == f"is that so?\n{mark}no 1\n{mark}no 2\n{mark}no 3"


async def test_short_texts_commands_and_old_ones_stay_apart(rig: TelegramFixture) -> None:
    rig.limits = rig.quick(comment_s=0.3)
    long = "lorem " * 600
    update = await rig.message_update("x")
    at = update["message"]["date"]
    await in_a_row(
        rig,
        {"text": "one"},
        {"text": "two"},
        {"text": f"/ping {long}"},
        {"text": long},
        {"text": "/ping"},
        {"text": long},
        {"text": "much later", "date": at + 60},
    )
    await rig.start()
    await rig.people.wait_text(rig.chat, "echo: much later")
    await rig.settled()
    assert rig.agent.texts == ["one", "two", long, long, "much later"]
    assert len(rig.ran) == 2


async def test_an_edit_of_a_piece_keeps_the_others(rig: TelegramFixture) -> None:
    rig.agent.gate.clear()
    await rig.start()
    await rig.people.say(rig.chat, "first")
    long = "lorem " * 600
    await in_a_row(rig, {"text": long}, {"text": "teh rest"})
    await rig.updates_done(3)
    update = await rig.message_update("the rest")
    body = update["message"] | {"message_id": 501, "edit_date": update["message"]["date"]}
    await rig.people.inject(rig.bot.bot_id, {"edited_message": body})
    await rig.updates_done(4)
    rig.agent.gate.set()
    await rig.people.wait_text(rig.chat, "the rest")
    assert rig.agent.texts[-1] == f"{long}\nthe rest"


async def test_a_piece_that_is_for_the_bot_makes_the_others_so(rig: TelegramFixture) -> None:
    group = await rig.people.group("Team", [rig.ann, rig.bot.bot_id])
    rig.allow(groups=(int(group),))
    rig.limits = rig.quick(comment_s=0.3)
    await rig.start()
    chat = {"id": int(group), "type": "group", "title": "Team"}
    call = {"type": "mention", "offset": 0, "length": 8}
    await in_a_row(
        rig,
        {"chat": chat, "text": "@bob_bot is it true?", "entities": [call]},
        {"chat": chat, "text": "yes", **FORWARD},
    )
    await rig.people.wait_text(group, "echo: is it true?")
    await rig.settled()
    assert rig.agent.texts == ["is it true?\n[forwarded from Eve]\nyes"]


async def test_a_live_location_that_moves_is_no_further_turn(rig: TelegramFixture) -> None:
    """Reported of comparable systems: hermes-agent#49806, each step was a message."""
    await rig.start()
    place = {"latitude": 1.0, "longitude": 2.0, "live_period": 3600}
    await sent(rig, message_id=70, location=place)
    update = (await rig.message_update(""))["message"]
    del update["text"]
    for step in range(1, 4):
        moved = {"location": place | {"latitude": 1.0 + step, "heading": 90}}
        edit = {"message_id": 70, "edit_date": update["date"] + step}
        await rig.people.inject(rig.bot.bot_id, {"edited_message": update | moved | edit})
    await rig.people.say(rig.chat, "next")
    await rig.people.wait_text(rig.chat, "echo: next")
    await rig.settled()
    assert rig.agent.texts == ["[place: 1.0, 2.0]", "next"]
