"""Messages that today's clients send: blocks without a text, new kinds, replies to files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.component.channels.telegram.rig import TelegramFixture, rigged


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
