"""From the outbox to a room: once, in order, whole; and what troubles on the way mean."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from agentsup.channels.core.errors import (
    ChatGone,
    NotAllowed,
    NotSent,
    OutcomeUnknown,
    PlatformError,
    RateLimited,
    RequestRefused,
)
from agentsup.channels.core.sending import DeliverySettings
from agentsup.channels.matrix import deliver
from agentsup.channels.matrix.deliver import (
    KEY_STORED_MS,
    BotHandle,
    MatrixChannel,
)
from agentsup.channels.matrix.errors import EventTooLarge
from agentsup.channels.matrix.outgoing import txn_of
from agentsup.channels.matrix.sender import Sender
from agentsup.model.channel import OutboxPart
from agentsup.store import Database, Reader
from tests.support.loop_clock import LoopClock
from tests.support.matrix_rooms import ANN, Rooms
from tests.support.outbox_fixture import OutboxFixture, virtual_store
from tests.support.recording_channel import NoMark

pytestmark = pytest.mark.virtual

AGENT, ROOM, OTHER = "agt_1", "!r:localhost", "!s:localhost"
CUT = OutcomeUnknown("the line was cut")
LONG = "\n\n".join(f"Paragraph {n}: " + "lorem <ipsum> " * 300 for n in range(40))
"""Several pieces."""


class Fixture(OutboxFixture):
    """One bot and one relay over rooms in memory."""

    agent_id = AGENT
    within_s = 3600.0

    def __init__(self, folder: Path, database: Database, clock: LoopClock) -> None:
        super().__init__(clock)
        self.database = database
        self.rooms = Rooms(clock)
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        self.settings = DeliverySettings(self.workspace)
        self.begin()

    def begin(self, **more: Any) -> None:
        """What a process has in memory."""
        self.channel: MatrixChannel = MatrixChannel(self.clock)
        self.sender = Sender(self.rooms, self.clock)  # type: ignore[arg-type]  # a twin of what is used
        handle = BotHandle(self.rooms, self.sender, lambda: self.settings, **more)  # type: ignore[arg-type]  # a twin of what is used
        self.channel.attach(AGENT, handle)

    async def kill(self, task: asyncio.Task[None], **more: Any) -> None:
        """The process ends without a word; the next one begins."""
        task.cancel()
        await asyncio.wait({task})
        self.begin(**more)

    async def put(self, text: str = "", kind: str = "answer", room: str = ROOM, **body: Any) -> int:
        return await self.add(room, text, kind, **body)

    async def parts(self) -> list[tuple[str, str]]:
        def look(reader: Reader) -> list[tuple[str, str]]:
            rows = reader.all("SELECT kind, state FROM outbox ORDER BY outbox_id")
            return [tuple(row) for row in rows]

        return await self.database.read(look)


@pytest_asyncio.fixture
async def context(tmp_path: Path) -> AsyncIterator[Fixture]:
    async with virtual_store(tmp_path) as (database, clock):
        yield Fixture(tmp_path, database, clock)


async def test_in_a_thread_clients_without_threads_see_a_reply(context: Fixture) -> None:
    async with context.relaying():
        await context.settled(await context.put("hello", room=f"{ROOM}/$root"))
    (event,) = context.rooms.messages(ROOM)
    assert event.relation == {
        "rel_type": "m.thread",
        "event_id": "$root",
        "is_falling_back": True,
        "m.in_reply_to": {"event_id": "$root"},
    }


async def test_notices_ring_nobody_and_are_shown_as_written(context: Fixture) -> None:
    async with context.relaying():
        await context.settled(await context.put("a *b* <c>", "notice"))
    (event,) = context.rooms.messages()
    assert event.content["msgtype"] == "m.notice"
    assert event.content["body"] == "a *b* <c>"
    assert "formatted_body" not in event.content


# -- exactly once ----------------------------------------------------------------------------------


async def test_a_kill_between_send_and_mark_shows_each_piece_once(context: Fixture) -> None:
    part = await context.put(LONG)
    pieces = 0
    for _ in range(40):
        never = asyncio.Event()
        context.rooms.after["send"] = [never.wait]
        _, task, _ = await context.start_relay()
        context.rooms.changed.clear()
        await context.rooms.changed.wait()
        await context.kill(task)
        context.rooms.after.clear()
        _, task, _ = await context.start_relay()
        row = await context.until(
            part,
            lambda row, n=pieces: row["progress"] > n or row["state"] == "delivered",  # type: ignore[misc]  # bound now
        )
        pieces = row["progress"]
        await context.kill(task)
        if row["state"] != "pending":
            break
    texts = context.rooms.texts()
    assert pieces + 1 == len(texts) > 3
    assert "".join("".join(texts).split()) == "".join(LONG.split())
    assert await context.parts() == [("answer", "delivered")]


async def test_parts_of_another_store_have_other_keys(context: Fixture) -> None:
    """A store restored from a backup gives out numbers again within the server's memory."""
    async with context.relaying():
        await context.settled(await context.put("hello"))
        await context.settled(await context.put("hello"))
    txns = [event.txn_id for event in context.rooms.messages()]
    assert txns[0] != txns[1]

    def part(message_id: str) -> OutboxPart:
        return OutboxPart(1, message_id, AGENT, "s", "matrix", ROOM, 0, "answer", {"text": "a"}, 0)

    assert (await context.channel.deliver(part("m1"), NoMark())).outcome == "delivered"
    assert (await context.channel.deliver(part("m2"), NoMark())).outcome == "delivered"
    assert context.rooms.texts()[2:] == ["a", "a"]


def test_a_key_outlives_what_is_taken_out_of_a_part_meanwhile() -> None:
    """A note loses its button when the message it is about waits no longer."""
    bodies: list[dict[str, Any]] = [{}, {"cancel": "m1"}, {"in_place": "$e"}, {"buttons": []}]
    parts = [
        OutboxPart(1, "m1", AGENT, "s", "matrix", ROOM, 0, "notice", {"text": "a"} | more, 0)
        for more in bodies
    ]
    keys = [txn_of(part) for part in parts]
    assert keys[0] == keys[1] == keys[2] != keys[3]


async def test_what_the_server_may_have_forgotten_is_not_sent_again(context: Fixture) -> None:
    part = await context.put("hello")
    never = asyncio.Event()
    context.rooms.after["send"] = [never.wait]
    _, task, _ = await context.start_relay()
    await context.rooms.changed.wait()
    await context.kill(task)
    await context.clock.sleep(KEY_STORED_MS / 1000 + 60)
    context.rooms.by_txn.clear()
    async with context.relaying():
        row = await context.settled(part, within_s=1.0)
        assert row["state"] == "unknown"
        note = part + 1
        assert (await context.settled(note))["state"] == "delivered"
    assert context.rooms.texts()[0] == "hello"
    assert "may not have reached you" in context.rooms.texts()[1]
    assert "1. Show again" in context.rooms.texts()[1]
    assert len(context.rooms.texts()) == 2


async def test_what_waited_for_days_without_being_begun_is_sent(
    context: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliver, "KEY_STORED_MS", 600_000)
    context.rooms.before["send"] = [NotSent("no way there")] * 100_000
    part = await context.put("hello")
    _, task, _ = await context.start_relay()
    await context.clock.sleep(3_600.0)
    await context.until(part, lambda row: row["begun_at"] == 0)  # surely nothing was sent
    context.rooms.before.clear()
    row = await context.settled(part, 120.0)
    assert row["state"] == "delivered"
    assert row["attempts"] == 1
    await context.kill(task)


async def test_a_piece_begun_as_another_device_is_not_sent_again(context: Fixture) -> None:
    part = await context.put("hello")
    never = asyncio.Event()
    context.rooms.after["send"] = [never.wait]
    _, task, _ = await context.start_relay()
    await context.rooms.changed.wait()
    await context.clock.sleep(1.0)
    await context.kill(task, keys_since_ms=context.clock.now_ms())
    context.rooms.by_txn.clear()
    async with context.relaying():
        assert (await context.settled(part))["state"] == "unknown"
    assert context.rooms.texts().count("hello") == 1


# -- troubles --------------------------------------------------------------------------------------


async def test_a_pause_asked_for_in_one_room_delays_no_other(context: Fixture) -> None:
    context.rooms.before["send"] = [RateLimited(30.0)]
    async with context.relaying():
        first = await context.put("for Ann")
        await context.until(first, lambda row: "pause" in row["detail"])
        began = context.clock.monotonic()
        other = await context.settled(await context.put("for Bob", room=OTHER))
        assert context.clock.monotonic() - began < 1.0
        behind = await context.put("more for Ann")
        row = await context.settled(first)
        assert 29.0 < context.clock.monotonic() - began < 32.0
        await context.settled(behind)
    assert (other["state"], row["state"], row["attempts"]) == ("delivered", "delivered", 1)
    assert context.rooms.texts(ROOM) == ["for Ann", "more for Ann"]
    assert len(context.rooms.times("send")) == 4, "the server was not asked while it had to wait"


async def test_an_outage_of_hours_loses_and_doubts_nothing(context: Fixture) -> None:
    context.rooms.before["send"] = [OutcomeUnknown("HTTP 502")] * 10_000
    context.rooms.before["state"] = [OutcomeUnknown("HTTP 502")] * 10_000
    part = await context.put("hello")
    behind = await context.put("more")
    async with context.relaying():
        await context.clock.sleep(3 * 3600.0)
        assert (await context.row(part))["state"] == "pending"
        tries = len(context.rooms.times("send"))
        assert 100 < tries < 400, "not too often, and not too rarely"
        context.rooms.before.clear()
        await context.settled(behind, 120.0)
    assert context.rooms.texts() == ["hello", "more"]


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_text_that_is_too_large_on_its_way_goes_in_small_parts(
    context: Fixture, *, streamed: bool
) -> None:
    """Whatever stands before the homeserver may take less than the homeserver itself."""
    there = await context.rooms.send(
        ROOM, "m.room.message", {"msgtype": "m.text", "body": "begin…"}, txn_id="s"
    )

    async def takeover(message_id: str) -> str | None:
        return there if streamed else None

    context.rooms.max_bytes = 16_000
    context.begin(takeover=takeover)
    part = await context.put(LONG)
    context.rooms.after["send"] = [CUT, CUT, CUT]
    async with context.relaying():
        row = await context.settled(part)
    assert row["state"] == "delivered"
    texts = context.rooms.texts()[0 if streamed else 1 :]
    assert "".join("".join(texts).split()) == "".join(LONG.split()), "all of it, in order, once"
    assert len(json.loads(row["platform_ids"])) == len(texts) > 20
    assert (context.rooms.texts()[0] == "begin…") is not streamed


async def test_what_is_too_large_however_small_is_given_up_with_the_reason(
    context: Fixture,
) -> None:
    context.rooms.max_bytes = 10
    part, behind = await context.put("hello"), await context.put("more")
    async with context.relaying():
        rows = [await context.settled(each) for each in (part, behind)]
    assert {row["state"] for row in rows} == {"dropped"}
    assert "larger than the server takes" in rows[0]["detail"]
    assert len(context.rooms.times("send")) == 2, "it is not tried for ever"


async def test_a_thread_that_can_not_be_written_to_costs_no_answer(context: Fixture) -> None:
    """Servers refuse threads that begin at an event of another thread."""
    refusal = RequestRefused(400, "Cannot start threads from an event with a relation", "M_UNKNOWN")

    async def fine() -> None:
        return

    context.rooms.before["send"] = [refusal, fine, refusal]
    context.rooms.after["send"] = [CUT]
    async with context.relaying():
        row = await context.settled(await context.put("hello", room=f"{ROOM}/$root"))
    assert row["state"] == "delivered"
    (event,) = context.rooms.messages()
    assert event.content["body"] == "hello"
    assert event.relation == {"m.in_reply_to": {"event_id": "$root"}}


@pytest.mark.parametrize(
    "name",
    [f"{ROOM}/root", f"{ROOM}/$", f"{ROOM}/$a b", f"{ROOM}/$" + "x" * 300, f"{ROOM}/$\ud800"],
)
async def test_a_name_of_no_thread_is_refused_and_costs_nobody_else(
    context: Fixture, name: str
) -> None:
    part = OutboxPart(1, "m1", AGENT, "s", "matrix", name, 0, "answer", {"text": "a"}, 0)
    assert (await context.channel.deliver(part, NoMark())).outcome == "refused"
    assert context.rooms.calls == []


async def test_an_event_that_alone_makes_the_server_fail_gives_way(context: Fixture) -> None:
    context.rooms.before["send"] = [OutcomeUnknown("HTTP 500")] * 9
    part = await context.put("poison")
    behind = await context.put("more")
    async with context.relaying():
        row = await context.settled(part, 1200.0)
        await context.settled(behind)
    assert row["state"] == "unknown"
    assert context.rooms.texts()[0] == "more"


async def test_a_room_that_was_replaced_names_the_other(context: Fixture) -> None:
    context.rooms.before["send"] = [NotAllowed(403, "too little power", "M_FORBIDDEN")]
    context.rooms.room_states[ROOM, "m.room.tombstone"] = {"replacement_room": OTHER}
    async with context.relaying():
        row = await context.settled(await context.put("hello"))
    assert row["state"] == "dropped"
    assert f"replaced by {OTHER}" in row["detail"]


# -- the answer that was streamed ------------------------------------------------------------------


async def test_what_a_person_removed_is_not_edited(context: Fixture) -> None:
    streamed = await context.rooms.send(
        ROOM, "m.room.message", {"msgtype": "m.text", "body": "begin…"}, txn_id="s"
    )
    await context.rooms.redact(ROOM, streamed, txn_id="x")

    async def takeover(message_id: str) -> str | None:
        return streamed

    context.begin(takeover=takeover)
    async with context.relaying():
        await context.settled(await context.put("the answer"))
    assert context.rooms.texts() == ["the answer"]
    assert context.rooms.times("edit") == []


# -- files -----------------------------------------------------------------------------------------


async def test_a_file_whose_send_was_cut_is_shown_once(context: Fixture) -> None:
    (context.workspace / "a.pdf").write_bytes(b"12345")
    context.rooms.after["upload"] = [CUT]
    context.rooms.after["send"] = [CUT]
    async with context.relaying():
        await context.settled(await context.put("", "file", path="a.pdf"))
    assert len(context.rooms.messages()) == 1
    assert len(context.rooms.times("upload")) == 2


@pytest.mark.parametrize(
    "error",
    [EventTooLarge(413, "too large", "M_TOO_LARGE"), RequestRefused(400, "bad type", "M_X")],
)
async def test_a_file_that_is_refused_becomes_a_text(
    context: Fixture, error: RequestRefused
) -> None:
    (context.workspace / "a.pdf").write_bytes(b"12345")
    context.rooms.before["upload"] = [error]
    async with context.relaying():
        row = await context.settled(await context.put("", "file", path="a.pdf"))
    assert row["state"] == "delivered"
    assert error.description in context.rooms.texts()[0]


async def test_a_long_answer_can_go_as_a_file_with_its_beginning(context: Fixture) -> None:
    context.settings = DeliverySettings(context.workspace, long_as_file_pieces=2)
    async with context.relaying():
        await context.settled(await context.put(LONG))
    text, file = context.rooms.messages()
    assert text.content["body"].endswith("…")
    assert file.content["filename"] == "answer.md"
    assert context.rooms.files[file.content["url"]].decode().strip() == LONG.strip()


# -- choices ---------------------------------------------------------------------------------------


async def test_what_can_be_pressed_is_on_record_before_it_counts_as_delivered(
    context: Fixture,
) -> None:
    told: list[tuple[str, list[str]]] = []

    async def offered(place: Any, event_id: str, piece: Any) -> None:
        told.append((event_id, [choice.data for choice in piece.choices]))
        if len(told) == 1:
            raise OutcomeUnknown("this process ends here")

    context.begin(offered=offered)
    rows = [[{"label": "A", "data": "b:1"}, {"label": "B", "data": "b:2"}]]
    async with context.relaying():
        await context.settled(await context.put("pick", "notice", buttons=rows, plain=True))
    assert context.rooms.texts() == [
        "pick\n\n1. A\n2. B\n\nAnswer with the number, or press its reaction below."
    ]
    (event,) = context.rooms.messages()
    assert told == [(event.event_id, ["b:1", "b:2"])] * 2
    assert event.content["msgtype"] == "m.text", "what wants a press may ring"


# -- what is for one person alone ------------------------------------------------------------------


async def alarmed(context: Fixture) -> tuple[str, list[str]]:
    """Say something that is for Ann alone; what became of it, and what was said elsewhere."""
    told: list[str] = []

    async def tell(text: str) -> None:
        told.append(text)

    context.begin(tell=tell)
    async with context.relaying():
        row = await context.settled(await context.put("it is ill", "notice", only_with=ANN))
    return row["state"], told


async def test_words_for_one_person_are_said_where_nobody_else_is(context: Fixture) -> None:
    assert await alarmed(context) == ("delivered", [])
    assert context.rooms.texts() == ["it is ill"]


@pytest.mark.parametrize("others", [{ANN, "@eve:localhost"}, {"@eve:localhost"}, set()])
async def test_where_others_are_they_are_said_in_another_way(
    context: Fixture, others: set[str]
) -> None:
    context.rooms.people[ROOM] = others
    assert await alarmed(context) == ("dropped", ["it is ill"])
    assert context.rooms.texts() == []


@pytest.mark.parametrize("trouble", [CUT, ChatGone(403, "not in room", "M_FORBIDDEN")])
async def test_where_nobody_can_say_who_is_there_too(
    context: Fixture, trouble: PlatformError
) -> None:
    context.rooms.before["members"] = [trouble]
    assert await alarmed(context) == ("dropped", ["it is ill"])
    assert context.rooms.texts() == []


async def test_where_the_room_does_not_take_them_too(context: Fixture) -> None:
    context.rooms.before["send"] = [NotAllowed(403, "too little power", "M_FORBIDDEN")]
    assert await alarmed(context) == ("dropped", ["it is ill"])


async def test_words_do_not_come_back_to_a_room_that_does_not_take_them(context: Fixture) -> None:
    """A room that was replaced still has the operator in it, and lets nobody write."""
    said_at: list[str] = []

    async def tell(text: str) -> None:
        if await context.channel.alone_with(AGENT, ROOM) == ANN:
            said_at.append("the room")
            await context.put(text, "notice", only_with=ANN)
        else:
            said_at.append("elsewhere")

    context.begin(tell=tell)
    context.rooms.before["send"] = [NotAllowed(403, "too little power", "M_FORBIDDEN")] * 50
    async with context.relaying():
        await context.settled(await context.put("it is ill", "notice", only_with=ANN))
        await asyncio.sleep(60)
    assert said_at == ["elsewhere"]
    await asyncio.sleep(600)
    assert await context.channel.alone_with(AGENT, ROOM) == ANN, "it may have been mended"
