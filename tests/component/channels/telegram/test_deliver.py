"""From the outbox to the person: once, in order, whole; and what troubles on the way mean."""

from __future__ import annotations

import asyncio
import json
import struct
import zlib
from pathlib import Path
from statistics import median

import pytest

from agentsup.channels.core.sending import DeliverySettings
from agentsup.channels.telegram import deliver
from agentsup.mailbox.delivery import outbox
from agentsup.model.channel import OutboxPart
from tests.component.channels.telegram.bench import AGENT, TOKEN, StreamFixture

LONG = "\n\n".join(f"Paragraph {n}: " + "lorem ipsum " * 60 for n in range(20))
"""Four pieces."""


async def test_a_long_answer_arrives_in_pieces_that_are_the_answer(context: StreamFixture) -> None:
    ann, chat = await context.person()
    async with context.relaying():
        row = await context.settled(
            await context.add(ann, LONG, buttons=[[{"label": "A", "data": "a"}]])
        )
    records = [one for one in await context.people.messages(chat) if one["is_bot"]]
    assert len(records) == 4 == len(json.loads(row["platform_ids"]))
    assert "".join("".join(r["message"]["text"] for r in records).split()) == "".join(LONG.split())
    assert ["reply_markup" in one["message"] for one in records] == [False, False, False, True]
    assert (await context.people.report())["exceeded"] == []


_NOISE_S = 0.75
"""What a busy machine adds; waiting for another chat would add a second and more."""


async def test_a_flood_in_one_chat_delays_no_other(context: StreamFixture) -> None:
    ann, _ = await context.person("Ann")
    others = [(await context.person(f"P{n}"))[0] for n in range(8)]
    async with context.relaying():
        await context.people.fault("flood", chat_id=ann, retry_after=200, count=1)
        flooded = await context.add(ann, "for Ann")
        await context.until(flooded, lambda row: "pause" in row["detail"])
        for one in others:
            await context.settled(await context.add(one, "news"))
        assert (await context.row(flooded))["state"] == "pending", "Ann's chat waits for long"
    context.clock.ahead_s += 200
    await context.reborn()
    async with context.relaying():
        row = await context.settled(flooded)
    assert row["state"] == "delivered"
    assert row["attempts"] == 1  # the refusal cost none
    report = await context.people.report()
    assert (report["hammered"], report["exceeded"]) == (0, [])


@pytest.mark.parametrize(
    "kind", ["hang", "slow", "late", "server_error", "malformed", "cut_before", "cut_after"]
)
async def test_trouble_in_one_chat_delays_no_other(
    context: StreamFixture, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliver, "_TEXT_TIMEOUT_S", 1.5)
    ann, _ = await context.person("Ann")
    others = [(await context.person(f"P{n}"))[0] for n in range(8)]

    async def took_s(chat_id: int) -> float:
        began_at = context.clock.monotonic()
        await context.settled(await context.add(chat_id, "news"))
        return context.clock.monotonic() - began_at

    async with context.relaying():
        await took_s(others[0])
        quiet_s = median([await took_s(one) for one in others])
        await context.people.fault(kind, method="sendMessage", chat_id=ann, seconds=3)
        troubled = [await context.add(ann, f"for Ann {n}") for n in range(3)]
        busy_s = median([await took_s(one) for one in others])
        await context.people.clear_faults()
        for part in troubled:
            assert (await context.settled(part))["state"] in {"delivered", "unknown"}
    assert busy_s < 2 * quiet_s + _NOISE_S


@pytest.mark.parametrize(
    "kind", ["late", "cut_after", "malformed", "server_error", "hang", "cut_before"]
)
async def test_an_unknown_fate_is_told_and_never_sent_again(
    context: StreamFixture, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliver, "_TEXT_TIMEOUT_S", 0.5)
    ann, chat = await context.person()
    await context.people.fault(kind, method="sendMessage", count=1, seconds=1.5)
    async with context.relaying():
        part = await context.add(ann, "the answer")
        note = await context.people.wait_text(chat, "may not have reached you")
        row = await context.settled(part)
    assert row["state"] == "unknown"
    keyboard = note["message"]["reply_markup"]["inline_keyboard"]
    assert keyboard[0][0]["callback_data"] == f"again:{part}"
    was_applied = kind in {"late", "cut_after", "malformed"}
    texts = await context.people.texts(chat)
    assert texts.count("the answer") == was_applied
    assert len(texts) == 1 + was_applied


async def test_what_surely_was_not_sent_goes_again(context: StreamFixture) -> None:
    ann, chat = await context.person()
    port = context.url.rpartition(":")[2]
    context.client._root = context.client._root.replace(port, "1")  # nobody listens there
    async with context.relaying():
        part = await context.add(ann, "later")
        row = await context.until(part, lambda row: row["attempts"] > 0)
        assert row["state"] == "pending"
        assert "can't be reached" in row["detail"]
        context.client._root = context.url
        row = await context.settled(part)
    assert row["state"] == "delivered"
    assert await context.people.texts(chat) == ["later"]


async def test_an_outage_costs_one_part_and_its_note_comes_through(context: StreamFixture) -> None:
    ann, chat = await context.person()
    bob, bobs = await context.person("Bob")
    await context.people.fault("server_error")
    async with context.relaying():
        lost = await context.add(ann, "lost")
        await context.settled(lost)
        later = [await context.add(bob, "one"), await context.add(bob, "two")]
        waiting = await context.until(later[0], lambda row: row["attempts"] > 0)
        assert waiting["state"] == "pending"
        assert "answer again" in waiting["detail"]
        await context.people.clear_faults()
        assert [(await context.settled(part))["state"] for part in later] == ["delivered"] * 2
        await context.people.wait_text(chat, f"/again {lost}")
    assert await context.people.texts(bobs) == ["one", "two"]


async def test_shown_again_it_says_that_it_may_be_a_repetition(context: StreamFixture) -> None:
    ann, chat = await context.person()
    await context.people.fault("cut_after", method="sendMessage", count=1)
    async with context.relaying():
        part = await context.add(ann, "the **answer**")
        await context.settled(part)
        again = await context.database.write(
            lambda tx: outbox.again_tx(
                tx, part, agent_id=AGENT, channel="telegram", conversation=str(ann), at=1
            )
        )
        await context.settled(again)
    texts = await context.people.texts(chat)
    assert texts[0] == "the answer"
    assert texts[-1] == "↻ Perhaps for the second time:\n\nthe answer"


async def test_one_lost_piece_costs_one_piece(context: StreamFixture) -> None:
    ann, chat = await context.person()
    await context.people.fault("server_error", method="sendMessage", count=1, skip=1)
    async with context.relaying():
        row = await context.settled(await context.add(ann, LONG))
        await context.people.wait_text(chat, "piece of a message may not have reached you")
    assert (row["state"], row["progress"], row["doubts"]) == ("unknown", 3, 1)
    assert "502" in row["detail"]
    texts = await context.people.texts(chat)
    assert len(texts) == 3 + 1
    assert len(json.loads(row["platform_ids"])) == 3


async def test_refused_formatting_goes_as_plain_text(context: StreamFixture) -> None:
    ann, chat = await context.person()
    await context.people.fault(
        "error",
        method="sendMessage",
        count=1,
        status=400,
        description="Bad Request: can't parse entities: unexpected end",
    )
    async with context.relaying():
        row = await context.settled(await context.add(ann, "so **bold**"))
    (record,) = [one for one in await context.people.messages(chat) if one["is_bot"]]
    assert row["state"] == "delivered"
    assert record["message"]["text"] == "so bold"
    assert "entities" not in record["message"]


async def test_a_group_that_moved_is_followed_and_remembered(context: StreamFixture) -> None:
    ann, _ = await context.person()
    group = await context.people.group("team", [ann, context.bot_id])
    new = await context.people.migrate(group)
    async with context.relaying():
        for text in ("one", "two"):
            row = await context.settled(await context.add(group, text))
            assert row["state"] == "delivered"
    assert await context.people.texts(new) == ["one", "two"]
    assert (await context.people.report())["calls"]["sendMessage"] == 3


def a_picture() -> bytes:
    """A black dot as PNG."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"\0\0")
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    )


async def test_a_picture_goes_as_one_and_what_only_looks_like_one_as_a_document(
    context: StreamFixture,
) -> None:
    ann, chat = await context.person()
    (context.workspace / "dot.png").write_bytes(a_picture())
    (context.workspace / "fake.png").write_bytes(b"no picture at all")
    async with context.relaying():
        for name in ("dot.png", "fake.png"):
            row = await context.settled(await context.add(ann, "", "file", path=name, name=name))
            assert row["state"] == "delivered"
    records = [one["message"] for one in await context.people.messages(chat) if one["is_bot"]]
    assert ["photo" in one for one in records] == [True, False]
    assert records[1]["document"]["file_name"] == "fake.png"


async def test_a_text_too_long_for_a_caption_goes_before_its_file(context: StreamFixture) -> None:
    ann, chat = await context.person()
    (context.workspace / "a.txt").write_text("data")
    text = "word " * 400
    async with context.relaying():
        await context.settled(await context.add(ann, text, "file", path="a.txt", name="a.txt"))
    first, second = [one["message"] for one in await context.people.messages(chat) if one["is_bot"]]
    assert first["text"] == text.strip()
    assert "caption" not in second
    assert second["document"]["file_name"] == "a.txt"


async def test_refused_buttons_cost_the_buttons_only(context: StreamFixture) -> None:
    ann, chat = await context.person()
    rows = [[{"label": "Go", "data": "x" * 65}]]
    async with context.relaying():
        row = await context.settled(await context.add(ann, "choose", "notice", buttons=rows))
    (record,) = [one for one in await context.people.messages(chat) if one["is_bot"]]
    assert (row["state"], record["message"]["text"]) == ("delivered", "choose")
    assert "reply_markup" not in record["message"]


async def test_what_does_not_name_a_chat_is_refused(context: StreamFixture) -> None:
    async with context.relaying():
        row = await context.settled(await context.add("nowhere", "x"))
    assert row["state"] == "dropped"
    assert "names no Telegram chat" in row["detail"]


@pytest.mark.parametrize(
    "path, why",
    [("none.txt", "no such file"), ("out.txt", "not a regular file"), ("empty", "empty")],
)
async def test_a_file_that_cannot_go_is_told_in_its_place(
    context: StreamFixture, tmp_path: Path, path: str, why: str
) -> None:
    ann, chat = await context.person()
    (tmp_path / "secret").write_text("s")
    (context.workspace / "out.txt").symlink_to(tmp_path / "secret")
    (context.workspace / "empty").touch()
    async with context.relaying():
        await context.settled(await context.add(ann, "", "file", path=path))
    (text,) = await context.people.texts(chat)
    assert why in text
    assert path in text


async def test_a_very_long_answer_may_go_as_a_file(context: StreamFixture) -> None:
    ann, chat = await context.person()
    context.settings = DeliverySettings(context.workspace, long_as_file_pieces=2)
    async with context.relaying():
        await context.settled(await context.add(ann, LONG))
    (record,) = [one for one in await context.people.messages(chat) if one["is_bot"]]
    data = await context.people.download(record["message"]["document"]["file_unique_id"])
    assert data.decode().strip() == LONG.strip()


async def test_a_streamed_message_that_is_gone_is_sent_anew(context: StreamFixture) -> None:
    ann, chat = await context.person()

    async def takeover(message_id: str) -> int | None:
        return 9_999

    context.attach(takeover=takeover)
    async with context.relaying():
        row = await context.settled(await context.add(ann, "Hello again"))
    assert row["state"] == "delivered"
    assert await context.people.texts(chat) == ["Hello again"]


@pytest.mark.parametrize("fault", ["late", "hang"])
async def test_killed_while_the_answer_takes_its_place_it_does_so_again(
    context: StreamFixture, fault: str
) -> None:
    """Applied and not answered (late), or never applied (hang): an edit may go twice."""
    ann, chat = await context.person()
    sent = await context.people.call(TOKEN, "sendMessage", chat_id=ann, text="Hel…")
    streamed_id = int(sent["result"]["message_id"])
    known: list[int | None] = [streamed_id, None]  # the next life does not trust it

    async def takeover(message_id: str) -> int | None:
        return known.pop(0)

    context.attach(takeover=takeover, store_target=context.in_place)
    await context.people.fault(fault, method="editMessageText", count=1, seconds=30)
    _, task, _ = await context.start_relay()
    part = await context.add(ann, "Hello, whole.")
    await context.until(part, lambda row: "in_place" in row["body"])
    if fault == "late":
        await context.people.wait_text(chat, "Hello, whole.")
    task.cancel()
    await asyncio.wait({task})
    assert (await context.row(part))["begun_boot"] == "", "an edit is in no doubt"
    await context.people.clear_faults()
    async with context.relaying():
        row = await context.settled(part)
        await context.settled(await context.add(ann, "and more", kind="notice"))
    assert (row["state"], json.loads(row["platform_ids"])) == ("delivered", [str(streamed_id)])
    assert await context.people.texts(chat) == ["Hello, whole.", "and more"]


async def test_killed_after_the_streamed_message_was_refused_it_is_in_doubt(
    context: StreamFixture,
) -> None:
    """What was an edit has become a blind send, and is on record as one before it goes."""
    ann, chat = await context.person()

    async def takeover(message_id: str) -> int | None:
        return 9_999

    context.attach(takeover=takeover, store_target=context.in_place)
    await context.people.fault("late", method="sendMessage", count=1, seconds=30)
    _, task, _ = await context.start_relay()
    part = await context.add(ann, "Hello again")
    await context.people.wait_text(chat, "Hello again")
    task.cancel()
    await asyncio.wait({task})
    async with context.relaying():
        row = await context.settled(part)
        await context.people.wait_text(chat, "may not have reached you: “Hello again”")
    assert row["state"] == "unknown"
    assert (await context.people.texts(chat)).count("Hello again") == 1
    again = await context.database.write(
        lambda tx: outbox.again_tx(
            tx, part, agent_id=AGENT, channel="telegram", conversation=str(ann), at=1
        )
    )
    assert "in_place" not in json.loads((await context.row(again))["body"])


async def test_killed_between_pieces_the_begun_piece_is_in_doubt_and_the_rest_follows(
    context: StreamFixture,
) -> None:
    ann, chat = await context.person()
    # The second piece hangs, and the process ends while it does.
    await context.people.fault("late", method="sendMessage", skip=1, count=1, seconds=30)
    _, task, _ = await context.start_relay()
    part = await context.add(ann, LONG)
    await context.until(part, lambda row: row["progress"] == 1 and row["begun_boot"] == "boot1")
    await context.people.wait_for(chat, lambda view: len(_texts(view)) == 2)
    task.cancel()
    await asyncio.wait({task})
    await context.people.clear_faults()
    context.channel._cached.clear()
    async with context.relaying():
        row = await context.settled(part)
        await context.people.wait_text(chat, "piece of a message may not have reached you")
    assert (row["state"], row["doubts"]) == ("unknown", 1)
    assert "boot1" in row["detail"]
    texts = await context.people.texts(chat)
    assert len(texts) == 4 + 1
    assert "".join("".join(texts[:4]).split()) == "".join(LONG.split())


async def test_killed_in_the_last_piece_nothing_is_sent_again(context: StreamFixture) -> None:
    ann, chat = await context.person()
    await context.people.fault("late", method="sendMessage", count=1, seconds=30)
    _, task, _ = await context.start_relay()
    part = await context.add(ann, "short")
    await context.people.wait_text(chat, "short")
    task.cancel()
    await asyncio.wait({task})
    async with context.relaying():
        row = await context.settled(part)
        await context.people.wait_text(chat, "may not have reached you: “short”")
    assert row["state"] == "unknown"
    assert (await context.people.texts(chat)).count("short") == 1


async def test_a_topic_is_answered_in_its_topic(context: StreamFixture) -> None:
    ann, _ = await context.person()
    group = await context.people.group(
        "forum", [ann, context.bot_id], administrators=[context.bot_id], forum=True
    )
    topic = await context.people.topic(group, "plans", user=ann)
    async with context.relaying():
        row = await context.settled(await context.add(f"{group}/{topic}", "in the topic"))
    assert row["state"] == "delivered"
    records = await context.people.messages(group, thread=topic)
    assert "in the topic" in [one["message"].get("text") for one in records]


def _texts(view: dict[str, object]) -> list[str]:
    records = view["messages"]
    assert isinstance(records, list)
    return [one["message"].get("text", "") for one in records if one["is_bot"]]


def test_the_channel_keeps_the_contract() -> None:
    channel = deliver.TelegramChannel()
    assert (channel.name, channel.idempotent, channel.in_pieces) == ("telegram", False, True)
    assert "progress" in OutboxPart.__dataclass_fields__


async def test_what_belongs_to_a_closed_topic_is_said_in_the_chat(context: StreamFixture) -> None:
    ann, _ = await context.person()
    group = await context.people.group(
        "forum", [ann, context.bot_id], administrators=[context.bot_id], forum=True
    )
    topic = await context.people.topic(group, "plans", user=ann)
    await context.people.call(TOKEN, "closeForumTopic", chat_id=int(group), message_thread_id=topic)
    await context.people.member(group, context.bot_id, "member")
    async with context.relaying():
        row = await context.settled(await context.add(f"{group}/{topic}", "the **answer**"))
    assert row["state"] == "delivered"
    records = await context.people.messages(group)
    (said,) = [one["message"] for one in records if "text" in one["message"]]
    assert said["text"] == "(This belongs to a topic that is closed.)\n\nthe answer"
    (bold,) = said["entities"]
    assert (bold["type"], said["text"][bold["offset"] :][: bold["length"]]) == ("bold", "answer")


async def test_what_a_platform_takes_no_more_is_on_record(context: StreamFixture) -> None:
    ann, chat = await context.person()
    await context.people.block(chat)
    async with context.relaying():
        row = await context.settled(await context.add(ann, "for nobody"))
    assert row["state"] == "dropped"
    event = await context.database.read(
        lambda r: r.one("SELECT conversation, data FROM events WHERE type = 'chat.refused'")
    )
    assert event is not None
    assert event["conversation"] == f"telegram:{ann}"
    data = json.loads(event["data"])
    assert data["text"] == "for nobody"
    assert "blocked" in data["why"]
