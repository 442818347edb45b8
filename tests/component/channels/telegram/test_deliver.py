"""From the outbox to the person: once, in order, whole; and what troubles on the way mean."""

import asyncio
import json
import struct
import zlib
from pathlib import Path
from statistics import median

import pytest

from agentsup.channels.telegram import deliver
from agentsup.mailbox import outbox
from agentsup.model.channel import OutboxPart
from tests.component.channels.telegram.bench import AGENT, TOKEN, Bench

LONG = "\n\n".join(f"Paragraph {n}: " + "lorem ipsum " * 60 for n in range(20))
"""Four pieces."""


async def test_a_part_is_delivered_once_with_its_formatting(bench: Bench) -> None:
    ann, chat = await bench.person()
    async with bench.relaying():
        row = await bench.settled(await bench.add(ann, "Hello **Ann**, see `x`"))
    (record,) = [one for one in await bench.people.messages(chat) if one["is_bot"]]
    assert (row["state"], row["progress"], row["doubts"]) == ("delivered", 0, 0)
    assert json.loads(row["platform_ids"]) == [str(record["message_id"])]
    assert record["message"]["text"] == "Hello Ann, see x"
    assert [e["type"] for e in record["message"]["entities"]] == ["bold", "code"]


async def test_a_long_answer_arrives_in_pieces_that_are_the_answer(bench: Bench) -> None:
    ann, chat = await bench.person()
    async with bench.relaying():
        row = await bench.settled(
            await bench.add(ann, LONG, buttons=[[{"label": "A", "data": "a"}]])
        )
    records = [one for one in await bench.people.messages(chat) if one["is_bot"]]
    assert len(records) == 4 == len(json.loads(row["platform_ids"]))
    assert "".join("".join(r["message"]["text"] for r in records).split()) == "".join(LONG.split())
    assert ["reply_markup" in one["message"] for one in records] == [False, False, False, True]
    assert (await bench.people.report())["exceeded"] == []


_NOISE_S = 0.25
"""What a busy machine adds; waiting for another chat would add a second and more."""


async def test_a_flood_in_one_chat_delays_no_other(bench: Bench) -> None:
    ann, _ = await bench.person("Ann")
    others = [(await bench.person(f"P{n}"))[0] for n in range(8)]

    async def took_s(chat_id: int) -> float:
        began_at = bench.clock.monotonic()
        await bench.settled(await bench.add(chat_id, "news"))
        return bench.clock.monotonic() - began_at

    async with bench.relaying():
        await took_s(others[0])
        quiet_s = median([await took_s(one) for one in others])
        await bench.people.fault("flood", chat_id=ann, retry_after=3, count=1)
        flooded = await bench.add(ann, "for Ann")
        await bench.until(flooded, lambda row: "pause" in row["detail"])
        began_at = bench.clock.monotonic()
        busy_s = median([await took_s(one) for one in others])
        assert bench.clock.monotonic() - began_at < 2.5, "measured while Ann's chat waits"
        row = await bench.settled(flooded)
        assert bench.clock.monotonic() - began_at > 2.5
    assert busy_s < 2 * quiet_s + _NOISE_S
    assert row["state"] == "delivered"
    assert row["attempts"] == 1  # the refusal cost none
    report = await bench.people.report()
    assert (report["hammered"], report["exceeded"]) == (0, [])


@pytest.mark.parametrize(
    "kind", ["hang", "slow", "late", "server_error", "malformed", "cut_before", "cut_after"]
)
async def test_trouble_in_one_chat_delays_no_other(
    bench: Bench, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliver, "_TEXT_TIMEOUT_S", 1.5)
    ann, _ = await bench.person("Ann")
    others = [(await bench.person(f"P{n}"))[0] for n in range(8)]

    async def took_s(chat_id: int) -> float:
        began_at = bench.clock.monotonic()
        await bench.settled(await bench.add(chat_id, "news"))
        return bench.clock.monotonic() - began_at

    async with bench.relaying():
        await took_s(others[0])
        quiet_s = median([await took_s(one) for one in others])
        await bench.people.fault(kind, method="sendMessage", chat_id=ann, seconds=3)
        troubled = [await bench.add(ann, f"for Ann {n}") for n in range(3)]
        busy_s = median([await took_s(one) for one in others])
        await bench.people.clear_faults()
        for part in troubled:
            assert (await bench.settled(part))["state"] in {"delivered", "unknown"}
    assert busy_s < 2 * quiet_s + _NOISE_S


@pytest.mark.parametrize("kind", ["late", "cut_after", "malformed", "server_error", "hang"])
async def test_an_unknown_fate_is_told_and_never_sent_again(
    bench: Bench, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliver, "_TEXT_TIMEOUT_S", 0.5)
    ann, chat = await bench.person()
    await bench.people.fault(kind, method="sendMessage", count=1, seconds=1.5)
    async with bench.relaying():
        part = await bench.add(ann, "the answer")
        note = await bench.people.wait_text(chat, "may not have reached you")
        row = await bench.settled(part)
    assert row["state"] == "unknown"
    keyboard = note["message"]["reply_markup"]["inline_keyboard"]
    assert keyboard[0][0]["callback_data"] == f"again:{part}"
    was_applied = kind in {"late", "cut_after", "malformed"}
    texts = await bench.people.texts(chat)
    assert texts.count("the answer") == was_applied
    assert len(texts) == 1 + was_applied


async def test_what_surely_was_not_sent_goes_again(bench: Bench) -> None:
    ann, chat = await bench.person()
    port = bench.url.rpartition(":")[2]
    bench.client._root = bench.client._root.replace(port, "1")  # nobody listens there
    async with bench.relaying():
        part = await bench.add(ann, "later")
        row = await bench.until(part, lambda row: row["attempts"] > 0)
        assert row["state"] == "pending"
        assert "can't be reached" in row["detail"]
        bench.client._root = bench.url
        bench.client._library = None
        row = await bench.settled(part)
    assert row["state"] == "delivered"
    assert await bench.people.texts(chat) == ["later"]


async def test_an_outage_costs_one_part_and_its_note_comes_through(bench: Bench) -> None:
    ann, chat = await bench.person()
    bob, bobs = await bench.person("Bob")
    await bench.people.fault("server_error")
    async with bench.relaying():
        lost = await bench.add(ann, "lost")
        await bench.settled(lost)
        later = [await bench.add(bob, "one"), await bench.add(bob, "two")]
        waiting = await bench.until(later[0], lambda row: row["attempts"] > 0)
        assert waiting["state"] == "pending"
        assert "answer again" in waiting["detail"]
        await bench.people.clear_faults()
        assert [(await bench.settled(part))["state"] for part in later] == ["delivered"] * 2
        await bench.people.wait_text(chat, f"/again {lost}")
    assert await bench.people.texts(bobs) == ["one", "two"]


async def test_shown_again_it_says_that_it_may_be_a_repetition(bench: Bench) -> None:
    ann, chat = await bench.person()
    await bench.people.fault("cut_after", method="sendMessage", count=1)
    async with bench.relaying():
        part = await bench.add(ann, "the **answer**")
        await bench.settled(part)
        again = await bench.database.write(
            lambda tx: outbox.again_tx(
                tx, part, agent_id=AGENT, channel="telegram", conversation=str(ann), at=1
            )
        )
        await bench.settled(again)
    texts = await bench.people.texts(chat)
    assert texts[0] == "the answer"
    assert texts[-1] == "↻ Perhaps for the second time:\n\nthe answer"


async def test_a_cut_before_an_answer_is_unknown_too(bench: Bench) -> None:
    ann, chat = await bench.person()
    await bench.people.fault("cut_before", method="sendMessage", count=1)
    async with bench.relaying():
        row = await bench.settled(await bench.add(ann, "gone"))
        await bench.people.wait_text(chat, "may not have reached you")
    assert row["state"] == "unknown"
    assert "gone" not in await bench.people.texts(chat)


async def test_one_lost_piece_costs_one_piece(bench: Bench) -> None:
    ann, chat = await bench.person()
    await bench.people.fault("server_error", method="sendMessage", count=1, skip=1)
    async with bench.relaying():
        row = await bench.settled(await bench.add(ann, LONG))
        await bench.people.wait_text(chat, "piece of a message may not have reached you")
    assert (row["state"], row["progress"], row["doubts"]) == ("unknown", 3, 1)
    assert "502" in row["detail"]
    texts = await bench.people.texts(chat)
    assert len(texts) == 3 + 1
    assert len(json.loads(row["platform_ids"])) == 3


async def test_refused_formatting_goes_as_plain_text(bench: Bench) -> None:
    ann, chat = await bench.person()
    await bench.people.fault(
        "error",
        method="sendMessage",
        count=1,
        status=400,
        description="Bad Request: can't parse entities: unexpected end",
    )
    async with bench.relaying():
        row = await bench.settled(await bench.add(ann, "so **bold**"))
    (record,) = [one for one in await bench.people.messages(chat) if one["is_bot"]]
    assert row["state"] == "delivered"
    assert record["message"]["text"] == "so bold"
    assert "entities" not in record["message"]


async def test_a_group_that_moved_is_followed_and_remembered(bench: Bench) -> None:
    ann, _ = await bench.person()
    group = await bench.people.group("team", [ann, bench.bot_id])
    moves: list[tuple[int, int]] = []
    bench.attach(moved=lambda old, new: moves.append((old, new)))
    new = await bench.people.migrate(group)
    async with bench.relaying():
        for text in ("one", "two"):
            row = await bench.settled(await bench.add(group, text))
            assert row["state"] == "delivered"
    assert await bench.people.texts(new) == ["one", "two"]
    assert moves == [(int(group), int(new))]
    assert (await bench.people.report())["calls"]["sendMessage"] == 3


async def test_a_blocked_bot_drops_the_part_and_says_why(bench: Bench) -> None:
    ann, chat = await bench.person()
    await bench.people.block(chat)
    async with bench.relaying():
        row = await bench.settled(await bench.add(ann, "hello?"))
    assert row["state"] == "dropped"
    assert "blocked by the user" in row["detail"]


async def test_without_its_bot_a_part_waits_and_goes_when_it_comes(bench: Bench) -> None:
    ann, chat = await bench.person()
    bench.channel.detach(AGENT)
    async with bench.relaying():
        part = await bench.add(ann, "patience")
        row = await bench.until(part, lambda row: row["detail"] == deliver.NOT_ATTACHED)
        assert (row["state"], row["attempts"]) == ("pending", 0)
        bench.attach()
        woken = await bench.database.write(
            lambda tx: outbox.wake_tx(
                tx, channel="telegram", agent_id=AGENT, detail=deliver.NOT_ATTACHED
            )
        )
        assert woken == 1
        await bench.settled(part, timeout_s=3.0)
    assert await bench.people.texts(chat) == ["patience"]


async def test_a_file_is_uploaded_from_the_workspace(bench: Bench) -> None:
    ann, chat = await bench.person()
    (bench.workspace / "report.csv").write_bytes(b"a,b\n1,2\n")
    async with bench.relaying():
        part = await bench.add(ann, "The *figures*", "file", path="report.csv", name="figures.csv")
        row = await bench.settled(part)
    assert row["state"] == "delivered"
    (record,) = [one for one in await bench.people.messages(chat) if one["is_bot"]]
    document = record["message"]["document"]
    assert document["file_name"] == "figures.csv"
    assert record["message"]["caption"] == "The figures"
    assert await bench.people.download(document["file_unique_id"]) == b"a,b\n1,2\n"


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
    bench: Bench,
) -> None:
    ann, chat = await bench.person()
    (bench.workspace / "dot.png").write_bytes(a_picture())
    (bench.workspace / "fake.png").write_bytes(b"no picture at all")
    async with bench.relaying():
        for name in ("dot.png", "fake.png"):
            row = await bench.settled(await bench.add(ann, "", "file", path=name, name=name))
            assert row["state"] == "delivered"
    records = [one["message"] for one in await bench.people.messages(chat) if one["is_bot"]]
    assert ["photo" in one for one in records] == [True, False]
    assert records[1]["document"]["file_name"] == "fake.png"


async def test_a_text_too_long_for_a_caption_goes_before_its_file(bench: Bench) -> None:
    ann, chat = await bench.person()
    (bench.workspace / "a.txt").write_text("data")
    text = "word " * 400
    async with bench.relaying():
        await bench.settled(await bench.add(ann, text, "file", path="a.txt", name="a.txt"))
    first, second = [one["message"] for one in await bench.people.messages(chat) if one["is_bot"]]
    assert first["text"] == text.strip()
    assert "caption" not in second
    assert second["document"]["file_name"] == "a.txt"


async def test_refused_buttons_cost_the_buttons_only(bench: Bench) -> None:
    ann, chat = await bench.person()
    rows = [[{"label": "Go", "data": "x" * 65}]]
    async with bench.relaying():
        row = await bench.settled(await bench.add(ann, "choose", "notice", buttons=rows))
    (record,) = [one for one in await bench.people.messages(chat) if one["is_bot"]]
    assert (row["state"], record["message"]["text"]) == ("delivered", "choose")
    assert "reply_markup" not in record["message"]


async def test_an_empty_answer_is_said_to_be_empty(bench: Bench) -> None:
    ann, chat = await bench.person()
    async with bench.relaying():
        row = await bench.settled(await bench.add(ann, "  \n"))
    assert row["state"] == "delivered"
    assert await bench.people.texts(chat) == ["(an empty message)"]


async def test_what_does_not_name_a_chat_is_refused(bench: Bench) -> None:
    async with bench.relaying():
        row = await bench.settled(await bench.add("nowhere", "x"))
    assert row["state"] == "dropped"
    assert "names no Telegram chat" in row["detail"]


@pytest.mark.parametrize(
    "path, why",
    [("none.txt", "no such file"), ("out.txt", "not a regular file"), ("empty", "empty")],
)
async def test_a_file_that_cannot_go_is_told_in_its_place(
    bench: Bench, tmp_path: Path, path: str, why: str
) -> None:
    ann, chat = await bench.person()
    (tmp_path / "secret").write_text("s")
    (bench.workspace / "out.txt").symlink_to(tmp_path / "secret")
    (bench.workspace / "empty").touch()
    async with bench.relaying():
        await bench.settled(await bench.add(ann, "", "file", path=path))
    (text,) = await bench.people.texts(chat)
    assert why in text
    assert path in text


async def test_a_very_long_answer_may_go_as_a_file(bench: Bench) -> None:
    ann, chat = await bench.person()
    bench.settings = deliver.TelegramSettings(bench.workspace, long_as_file_pieces=2)
    async with bench.relaying():
        await bench.settled(await bench.add(ann, LONG))
    (record,) = [one for one in await bench.people.messages(chat) if one["is_bot"]]
    data = await bench.people.download(record["message"]["document"]["file_unique_id"])
    assert data.decode().strip() == LONG.strip()


async def test_the_streamed_message_becomes_the_answer(bench: Bench) -> None:
    ann, chat = await bench.person()
    sent = await bench.people.call(TOKEN, "sendMessage", chat_id=ann, text="Hel…")
    streamed_id = int(sent["result"]["message_id"])

    async def takeover(message_id: str) -> int | None:
        assert message_id == "m1"
        return streamed_id

    bench.attach(takeover=takeover)
    # An answer that is lost on its way does no harm: the same edit again changes nothing.
    await bench.people.fault("cut_after", method="editMessageText", count=1)
    async with bench.relaying():
        row = await bench.settled(await bench.add(ann, "Hello, whole."))
    assert (row["state"], json.loads(row["platform_ids"])) == ("delivered", [str(streamed_id)])
    assert await bench.people.texts(chat) == ["Hello, whole."]


async def test_a_streamed_message_that_is_gone_is_sent_anew(bench: Bench) -> None:
    ann, chat = await bench.person()

    async def takeover(message_id: str) -> int | None:
        return 9_999

    bench.attach(takeover=takeover)
    async with bench.relaying():
        row = await bench.settled(await bench.add(ann, "Hello again"))
    assert row["state"] == "delivered"
    assert await bench.people.texts(chat) == ["Hello again"]


@pytest.mark.parametrize("fault", ["late", "hang"])
async def test_killed_while_the_answer_takes_its_place_it_does_so_again(
    bench: Bench, fault: str
) -> None:
    """Applied and not answered (late), or never applied (hang): an edit may go twice."""
    ann, chat = await bench.person()
    sent = await bench.people.call(TOKEN, "sendMessage", chat_id=ann, text="Hel…")
    streamed_id = int(sent["result"]["message_id"])
    known: list[int | None] = [streamed_id, None]  # the next life does not trust it

    async def takeover(message_id: str) -> int | None:
        return known.pop(0)

    bench.attach(takeover=takeover, in_place=bench.in_place)
    await bench.people.fault(fault, method="editMessageText", count=1, seconds=30)
    _, task, _ = await bench.start_relay()
    part = await bench.add(ann, "Hello, whole.")
    await bench.until(part, lambda row: "in_place" in row["body"])
    if fault == "late":
        await bench.people.wait_text(chat, "Hello, whole.")
    task.cancel()
    await asyncio.wait({task})
    assert (await bench.row(part))["begun_boot"] == "", "an edit is in no doubt"
    await bench.people.clear_faults()
    async with bench.relaying():
        row = await bench.settled(part)
        await bench.settled(await bench.add(ann, "and more", kind="notice"))
    assert (row["state"], json.loads(row["platform_ids"])) == ("delivered", [str(streamed_id)])
    assert await bench.people.texts(chat) == ["Hello, whole.", "and more"]


async def test_killed_after_the_streamed_message_was_refused_it_is_in_doubt(bench: Bench) -> None:
    """What was an edit has become a blind send, and is on record as one before it goes."""
    ann, chat = await bench.person()

    async def takeover(message_id: str) -> int | None:
        return 9_999

    bench.attach(takeover=takeover, in_place=bench.in_place)
    await bench.people.fault("late", method="sendMessage", count=1, seconds=30)
    _, task, _ = await bench.start_relay()
    part = await bench.add(ann, "Hello again")
    await bench.people.wait_text(chat, "Hello again")
    task.cancel()
    await asyncio.wait({task})
    async with bench.relaying():
        row = await bench.settled(part)
        await bench.people.wait_text(chat, "may not have reached you: “Hello again”")
    assert row["state"] == "unknown"
    assert (await bench.people.texts(chat)).count("Hello again") == 1
    again = await bench.database.write(
        lambda tx: outbox.again_tx(
            tx, part, agent_id=AGENT, channel="telegram", conversation=str(ann), at=1
        )
    )
    assert "in_place" not in json.loads((await bench.row(again))["body"])


async def test_killed_between_pieces_the_begun_piece_is_in_doubt_and_the_rest_follows(
    bench: Bench,
) -> None:
    ann, chat = await bench.person()
    # The second piece hangs, and the process ends while it does.
    await bench.people.fault("late", method="sendMessage", skip=1, count=1, seconds=30)
    _, task, _ = await bench.start_relay()
    part = await bench.add(ann, LONG)
    await bench.until(part, lambda row: row["progress"] == 1 and row["begun_boot"] == "boot1")
    await bench.people.wait_for(chat, lambda view: len(_texts(view)) == 2)
    task.cancel()
    await asyncio.wait({task})
    await bench.people.clear_faults()
    bench.channel._kept.clear()
    async with bench.relaying():
        row = await bench.settled(part)
        await bench.people.wait_text(chat, "piece of a message may not have reached you")
    assert (row["state"], row["doubts"]) == ("unknown", 1)
    assert "boot1" in row["detail"]
    texts = await bench.people.texts(chat)
    assert len(texts) == 4 + 1
    assert "".join("".join(texts[:4]).split()) == "".join(LONG.split())


async def test_killed_in_the_last_piece_nothing_is_sent_again(bench: Bench) -> None:
    ann, chat = await bench.person()
    await bench.people.fault("late", method="sendMessage", count=1, seconds=30)
    _, task, _ = await bench.start_relay()
    part = await bench.add(ann, "short")
    await bench.people.wait_text(chat, "short")
    task.cancel()
    await asyncio.wait({task})
    async with bench.relaying():
        row = await bench.settled(part)
        await bench.people.wait_text(chat, "may not have reached you: “short”")
    assert row["state"] == "unknown"
    assert (await bench.people.texts(chat)).count("short") == 1


async def test_a_topic_is_answered_in_its_topic(bench: Bench) -> None:
    ann, _ = await bench.person()
    group = await bench.people.group(
        "forum", [ann, bench.bot_id], administrators=[bench.bot_id], forum=True
    )
    topic = await bench.people.topic(group, "plans", user=ann)
    async with bench.relaying():
        row = await bench.settled(await bench.add(f"{group}/{topic}", "in the topic"))
    assert row["state"] == "delivered"
    records = await bench.people.messages(group, thread=topic)
    assert "in the topic" in [one["message"].get("text") for one in records]


def _texts(view: dict[str, object]) -> list[str]:
    records = view["messages"]
    assert isinstance(records, list)
    return [one["message"].get("text", "") for one in records if one["is_bot"]]


def test_the_channel_keeps_the_contract() -> None:
    channel = deliver.TelegramChannel()
    assert (channel.name, channel.idempotent, channel.in_pieces) == ("telegram", False, True)
    assert "progress" in OutboxPart.__dataclass_fields__


async def test_what_belongs_to_a_closed_topic_is_said_in_the_chat(bench: Bench) -> None:
    ann, _ = await bench.person()
    group = await bench.people.group(
        "forum", [ann, bench.bot_id], administrators=[bench.bot_id], forum=True
    )
    topic = await bench.people.topic(group, "plans", user=ann)
    await bench.people.call(TOKEN, "closeForumTopic", chat_id=int(group), message_thread_id=topic)
    await bench.people.member(group, bench.bot_id, "member")
    async with bench.relaying():
        row = await bench.settled(await bench.add(f"{group}/{topic}", "the **answer**"))
    assert row["state"] == "delivered"
    records = await bench.people.messages(group)
    (said,) = [one["message"] for one in records if "text" in one["message"]]
    assert said["text"] == "(This belongs to a topic that is closed.)\n\nthe answer"
    (bold,) = said["entities"]
    assert (bold["type"], said["text"][bold["offset"] :][: bold["length"]]) == ("bold", "answer")


async def test_what_a_platform_takes_no_more_is_on_record(bench: Bench) -> None:
    ann, chat = await bench.person()
    await bench.people.block(chat)
    async with bench.relaying():
        row = await bench.settled(await bench.add(ann, "for nobody"))
    assert row["state"] == "dropped"
    event = await bench.database.read(
        lambda r: r.one("SELECT conversation, data FROM events WHERE type = 'chat.refused'")
    )
    assert event is not None
    assert event["conversation"] == f"telegram:{ann}"
    data = json.loads(event["data"])
    assert data["text"] == "for nobody"
    assert "blocked" in data["why"]
