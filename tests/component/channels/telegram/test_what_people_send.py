"""What people send and what it becomes: groups, topics, edits, files, commands, late messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.component.channels.telegram.fixture import TelegramFixture, rigged
from tests.support.bound import BOUND_S

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360606060000000050001a5f64540"
    "0000000049454e44ae426082"
)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[TelegramFixture]:
    async with rigged(tmp_path) as rig:
        yield rig


async def group_of(rig: TelegramFixture, **facts: Any) -> tuple[str, int]:
    """A group with Ann, Eve (a stranger) and the bot; its key and Eve's id."""
    eve = await rig.people.user("Eve")
    group = await rig.people.group("Team", [rig.ann, eve, rig.bot.bot_id], **facts)
    rig.allow(groups=(int(group),))
    return group, eve


# -- groups ----------------------------------------------------------------------------------------


async def test_in_a_group_it_answers_what_is_meant_for_it(rig: TelegramFixture) -> None:
    await rig.people.add_bot(rig.bot.token, can_read_all_group_messages=True)
    group, eve = await group_of(rig)
    await rig.start()
    await rig.people.say(group, "just talk", user=rig.ann)
    await rig.people.say(group, "@bob_bot for you", user=rig.ann)
    record = await rig.people.wait_text(group, "echo: for you")
    await rig.people.say(group, "and this", user=rig.ann, reply_to=record["message_id"])
    await rig.people.wait_text(group, "echo: [about your own words: echo: for you]")
    await rig.people.say(group, "/ping@bob_bot", user=rig.ann)
    await rig.people.wait_text(group, "pong")
    await rig.people.say(group, "/ping@other_bot", user=rig.ann)
    await rig.people.say(group, "@bob_bot let me in", user=eve)
    await rig.people.say(group, "@bob_bot the last", user=rig.ann)
    await rig.people.wait_text(group, "echo: the last")
    assert rig.agent.texts == [
        "for you",
        "[about your own words: echo: for you]\nand this",
        "the last",
    ]
    assert len(rig.ran) == 1


async def test_a_group_that_may_speak_freely_is_heard_whole(rig: TelegramFixture) -> None:
    await rig.people.add_bot(rig.bot.token, can_read_all_group_messages=True)
    group, _ = await group_of(rig)
    rig.spec = rig.spec_with(group_mention_only=False)
    await rig.start()
    await rig.people.say(group, "just talk", user=rig.ann)
    await rig.people.wait_text(group, "echo: just talk")


async def test_a_group_that_is_not_allowed_is_silent(
    rig: TelegramFixture, caplog: pytest.LogCaptureFixture
) -> None:
    group = await rig.people.group("Others", [rig.ann, rig.bot.bot_id])
    await rig.start()
    await rig.people.say(group, "@bob_bot hello", user=rig.ann)
    await rig.people.say(rig.chat, "here")
    await rig.people.wait_text(rig.chat, "echo: here")
    await rig.settled()
    assert await rig.people.texts(group) == []
    assert f"add {group} to allowed_group_ids" in caplog.text


async def test_a_topic_is_a_session_of_its_own(rig: TelegramFixture) -> None:
    group, _ = await group_of(rig, supergroup=True, forum=True)
    one = await rig.people.topic(group, "One", user=rig.ann)
    two = await rig.people.topic(group, "Two", user=rig.ann)
    await rig.start()
    for topic in (one, two):
        await rig.people.say(group, f"@bob_bot in {topic}", user=rig.ann, thread=topic)
    await rig.people.wait_text(group, f"echo: in {one}")
    record = await rig.people.wait_text(group, f"echo: in {two}")
    assert record["message"]["message_thread_id"] == two
    assert {place for place, _, _ in rig.agent.seen} == {f"{group}/{one}", f"{group}/{two}"}
    assert len(await rig.rows("SELECT 1 FROM sessions")) == 2


async def test_a_strangers_press_in_a_group_is_answered_and_has_no_effect(
    rig: TelegramFixture,
) -> None:
    group, eve = await group_of(rig)
    await rig.start()
    await rig.people.say(group, "/ping@bob_bot", user=rig.ann)
    record = await rig.people.wait_text(group, "pong")
    query = await rig.people.press(group, record["message_id"], text="again", user=eve)
    answer = await rig.people.pressed(query)
    assert answer["text"]
    await rig.settled()
    assert len(rig.ran) == 1


async def test_a_group_that_moved_is_told_to_the_operator(rig: TelegramFixture) -> None:
    group, _ = await group_of(rig)
    await rig.start()
    moved = await rig.people.migrate(group)
    await rig.until(lambda: bool(rig.told))
    assert moved in rig.told[0]
    assert group in rig.told[0]


async def test_an_album_is_meant_for_it_where_any_of_its_pictures_says_so(
    rig: TelegramFixture,
) -> None:
    await rig.people.add_bot(rig.bot.token, can_read_all_group_messages=True)
    group, _ = await group_of(rig)
    await rig.start()
    for number in range(3):
        await rig.people.send_file(
            group,
            b"x",
            name=f"{number}.txt",
            caption="@bob_bot look" if number == 1 else "",
            user=rig.ann,
            media_group_id="for it",
        )
    await rig.people.wait_text(group, "echo: look")
    for number in range(2):
        await rig.people.send_file(
            group, b"x", name=f"{number}.txt", user=rig.ann, media_group_id="for others"
        )
    await rig.people.say(group, "@bob_bot next", user=rig.ann)
    await rig.people.wait_text(group, "echo: next")
    assert [len([p for p in parts if p.type == "file"]) for _, _, parts in rig.agent.seen] == [3, 0]
    assert await rig.states() == {"done": 4, "skipped": 2}


async def test_a_group_that_moved_keeps_its_session(rig: TelegramFixture) -> None:
    await rig.people.add_bot(rig.bot.token, can_read_all_group_messages=True)
    group, _ = await group_of(rig)
    await rig.start()
    await rig.people.say(group, "@bob_bot one", user=rig.ann)
    await rig.people.wait_text(group, "echo: one")
    moved = await rig.people.migrate(group)
    rig.allow(groups=(int(moved),))
    await rig.people.say(moved, "@bob_bot two", user=rig.ann)
    await rig.people.wait_text(moved, "echo: two")
    assert len(await rig.rows("SELECT DISTINCT session_id FROM messages")) == 1


async def test_what_holds_nothing_to_read_is_said_and_the_rest_is_told(
    rig: TelegramFixture,
) -> None:
    await rig.start()
    kinds: dict[str, dict[str, Any]] = {
        "story": {"id": 1, "chat": {"id": 5, "type": "private"}},
        "checklist": {"title": "shopping", "tasks": [{"id": 1, "text": "milk"}]},
        "venue": {"title": "Café", "address": "High Street 1"},
    }
    for number, (kind, body) in enumerate(kinds.items()):
        update = await rig.message_update("x" * (number + 1))
        del update["message"]["text"]
        update["message"][kind] = body
        if kind == "venue":
            update["message"]["location"] = {"latitude": 1.0, "longitude": 2.0}
        await rig.people.inject(rig.bot.bot_id, update)
    await rig.people.wait_text(rig.chat, "I can't read stories")
    await rig.settled()
    assert rig.agent.texts == [
        "[checklist: shopping (milk)]",
        "[place: Café, High Street 1, 1.0, 2.0]",
    ]


# -- edits -----------------------------------------------------------------------------------------


async def test_an_edit_of_a_waiting_text_takes_its_place(rig: TelegramFixture) -> None:
    rig.agent.gate.clear()
    await rig.start()
    await rig.people.say(rig.chat, "first")
    second = await rig.people.say(rig.chat, "secnd")
    await rig.people.edit(rig.chat, second, "second")
    await rig.updates_done(3)
    rig.agent.gate.set()
    await rig.people.wait_text(rig.chat, "echo: second")
    assert rig.agent.texts == ["first", "second"]


async def test_an_edit_of_an_answered_text_is_a_new_message_that_says_so(
    rig: TelegramFixture,
) -> None:
    await rig.start()
    message_id = await rig.people.say(rig.chat, "what is 2+2")
    await rig.people.wait_text(rig.chat, "echo: what is 2+2")
    await rig.people.edit(rig.chat, message_id, "what is 3+3")
    await rig.people.wait_text(rig.chat, "echo: (edited) what is 3+3")


async def test_an_edit_while_its_turn_runs_is_a_new_message(rig: TelegramFixture) -> None:
    rig.agent.gate.clear()
    await rig.start()
    message_id = await rig.people.say(rig.chat, "first")
    async with asyncio.timeout(BOUND_S):
        while not rig.agent.begun:
            await asyncio.sleep(0.01)
    await rig.people.edit(rig.chat, message_id, "changed")
    await rig.updates_done(2)
    rig.agent.gate.set()
    await rig.people.wait_text(rig.chat, "echo: (edited) changed")
    assert rig.agent.texts == ["first", "(edited) changed"]


async def test_two_edits_of_a_waiting_text_leave_the_last(rig: TelegramFixture) -> None:
    rig.agent.gate.clear()
    await rig.start()
    await rig.people.say(rig.chat, "first")
    second = await rig.people.say(rig.chat, "a")
    await rig.people.edit(rig.chat, second, "b")
    await rig.people.edit(rig.chat, second, "a")
    await rig.updates_done(4)
    rig.agent.gate.set()
    await rig.people.wait_text(rig.chat, "echo: a")
    assert rig.agent.texts == ["first", "a"]


# -- files -----------------------------------------------------------------------------------------


async def test_a_file_lands_in_the_workspace_under_a_safe_name(rig: TelegramFixture) -> None:
    await rig.start()
    await rig.people.send_file(
        rig.chat, b"some data", name="../../etc/passwd.txt", caption="look at this"
    )
    await rig.people.wait_text(rig.chat, "echo: look at this")
    ((_, text, parts),) = rig.agent.seen
    assert text == "look at this"
    (part,) = [part for part in parts if part.type == "file"]
    assert part.path.startswith("inbox/")
    path = rig.folder / "workspace" / part.path
    assert path.resolve().is_relative_to((rig.folder / "workspace").resolve())
    assert path.read_bytes() == b"some data"
    assert path.name.endswith("passwd.txt")


async def test_two_files_of_one_name_are_two_files(rig: TelegramFixture) -> None:
    await rig.start()
    for data in (b"one", b"two"):
        await rig.people.send_file(rig.chat, data, name="a.txt")
    async with asyncio.timeout(BOUND_S):
        while len(rig.agent.seen) < 2:
            await asyncio.sleep(0.01)
    folder = rig.folder / "workspace" / "inbox"
    assert sorted(path.read_bytes() for path in folder.iterdir()) == [b"one", b"two"]


async def test_an_album_is_one_message_with_all_its_pictures(rig: TelegramFixture) -> None:
    await rig.start()
    for number in range(3):
        await rig.people.send_file(
            rig.chat,
            PNG,
            name=f"{number}.png",
            kind="photo",
            caption="three of them" if number == 0 else "",
            media_group_id="album",
        )
    await rig.people.wait_text(rig.chat, "echo: three of them")
    await rig.settled()
    ((_, _, parts),) = rig.agent.seen
    assert len([part for part in parts if part.type == "file"]) == 3
    assert await rig.states() == {"done": 3}


async def test_a_file_that_is_too_large_is_told_and_its_text_goes_on(rig: TelegramFixture) -> None:
    rig.limits = rig.quick(max_file_bytes=1024 * 1024)
    await rig.start()
    await rig.people.send_file(
        rig.chat, bytes(1024 * 1024 + 1), name="big.bin", caption="read it please"
    )
    await rig.people.wait_text(rig.chat, "big.bin")
    await rig.people.wait_text(rig.chat, "echo: read it please")
    assert not list((rig.folder / "workspace").rglob("*big.bin"))


async def test_a_download_that_fails_is_tried_again(rig: TelegramFixture) -> None:
    await rig.start()
    await rig.people.fault("server_error", method="getFile", count=1)
    await rig.people.send_file(rig.chat, b"data", name="a.txt", caption="here")
    await rig.people.wait_text(rig.chat, "echo: here")
    assert [part.type for part in rig.agent.seen[0][2]] == ["text", "file"]


# -- commands --------------------------------------------------------------------------------------


async def test_a_command_that_a_crash_interrupted_is_not_run_again(rig: TelegramFixture) -> None:
    await rig.people.say(rig.chat, "/ping x")
    await rig.start()
    await rig.people.wait_text(rig.chat, "pong x")
    await rig.stop()
    await rig.database.write(lambda tx: tx.execute("UPDATE received SET state = 'received'"))
    await rig.start()
    await rig.people.wait_text(rig.chat, "restarted while /ping ran")
    assert rig.ran == ["ping x"]


# -- waiting and late ------------------------------------------------------------------------------


async def test_who_waits_is_told_and_can_take_the_message_back(rig: TelegramFixture) -> None:
    rig.agent.gate.clear()
    await rig.start()
    for text in ("first", "second", "third"):
        await rig.people.say(rig.chat, text)
    record = await rig.people.wait_text(rig.chat, "Your message waits: one message is before it")
    query = await rig.people.press(rig.chat, record["message_id"])
    assert (await rig.people.pressed(query))["text"] == "taken back"
    rig.agent.gate.set()
    await rig.people.wait_text(rig.chat, "echo: third")
    await rig.settled()
    assert rig.agent.texts == ["first", "third"]
    notes = [text for text in await rig.people.texts(rig.chat) if "Your message waits" in text]
    assert len(notes) <= 1


async def test_nobody_is_told_of_a_wait_that_is_over(rig: TelegramFixture) -> None:
    await rig.start()
    for number in range(4):
        await rig.people.say(rig.chat, f"text {number}")
    await rig.people.wait_text(rig.chat, "echo: text 3")
    assert not [text for text in await rig.people.texts(rig.chat) if "waits" in text]


async def test_what_came_too_late_is_named_once_and_not_answered(rig: TelegramFixture) -> None:
    for text in ("old one", "/ping", "old three"):
        await rig.people.say(rig.chat, text)
    await rig.start()
    await rig.updates_done(3)
    await rig.settled()
    await rig.stop()
    await rig.database.write(
        lambda tx: (
            tx.execute("UPDATE received SET state = 'received', begun = 0"),
            tx.execute("DELETE FROM ledger"),
        )
    )
    before = list(rig.agent.texts)
    rig.clock.offset_ms = 25 * 3600 * 1000
    await rig.people.advance(25 * 3600)
    await rig.people.say(rig.chat, "fresh")
    await rig.start()
    record = await rig.people.wait_text(rig.chat, "3 messages came more than 24 hours late")
    assert "old one" in record["message"]["text"]
    assert "/ping" in record["message"]["text"]
    await rig.people.wait_text(rig.chat, "echo: fresh")
    assert rig.agent.texts == [*before, "fresh"]
