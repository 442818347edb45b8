"""From the outbox to a room: once, in order, whole; and what troubles on the way mean."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from agentsup.channels.matrix import deliver
from agentsup.channels.matrix.deliver import (
    KEY_KEPT_MS,
    NOT_ATTACHED,
    BotHandle,
    MatrixChannel,
    MatrixSettings,
)
from agentsup.channels.matrix.errors import (
    FateUnknown,
    MatrixError,
    NotAllowed,
    NotSent,
    RateLimited,
    Refused,
    RoomGone,
    TokenRefused,
    TooLong,
)
from agentsup.channels.matrix.outgoing import txn_of
from agentsup.channels.matrix.sender import Sender
from agentsup.kit.clock import LoopClock
from agentsup.kit.entropy import SeededEntropy
from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox import outbox
from agentsup.mailbox.relay import Relay
from agentsup.model.channel import OutboxPart
from agentsup.store import Database, InlineRunner, Reader, Tx
from agentsup.testing.fresh_store import lay_store
from agentsup.testing.matrix_rooms import ANN, Rooms
from agentsup.testing.recording_channel import NoMark

pytestmark = pytest.mark.virtual

AGENT, ROOM, OTHER = "agt_1", "!r:localhost", "!s:localhost"
CUT = FateUnknown("the line was cut")
LONG = "\n\n".join(f"Paragraph {n}: " + "lorem <ipsum> " * 300 for n in range(40))
"""Several pieces."""


class Bench:
    """One bot and one relay over rooms in memory."""

    def __init__(self, folder: Path, database: Database, clock: LoopClock) -> None:
        self.database = database
        self.clock = clock
        self.rooms = Rooms(clock)
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        self.settings = MatrixSettings(self.workspace)
        self.owner = TaskOwner("test")
        self.boots = 0
        self.begin()

    def begin(self, **more: Any) -> None:
        """What a process has in memory."""
        self.channel = MatrixChannel(self.clock)
        self.sender = Sender(self.rooms, self.clock)
        handle = BotHandle(self.rooms, self.sender, lambda: self.settings, **more)
        self.channel.attach(AGENT, handle)

    @asynccontextmanager
    async def relaying(self) -> AsyncIterator[None]:
        """One life of the relay, drained at its end."""
        task, draining = await self.start()
        yield
        draining.set()
        await task

    async def start(self) -> tuple[asyncio.Task[None], asyncio.Event]:
        self.boots += 1
        relay = Relay(
            self.database,
            self.clock,
            SeededEntropy(self.clock, 7),
            {"matrix": self.channel},
            boot_id=f"boot{self.boots}",
        )
        ready, draining = asyncio.Event(), asyncio.Event()
        task = self.owner.spawn(relay.run(ready.set, draining), name="relay:test")
        await ready.wait()
        return task, draining

    async def kill(self, task: asyncio.Task[None], **more: Any) -> None:
        """The process ends without a word; the next one begins."""
        task.cancel()
        await asyncio.wait({task})
        self.begin(**more)

    async def add(self, text: str = "", kind: str = "answer", room: str = ROOM, **body: Any) -> int:
        def add(tx: Tx) -> int:
            return outbox.add_tx(
                tx,
                agent_id=AGENT,
                channel="matrix",
                conversation=room,
                kind=kind,
                body={"text": text, **body},
                at=self.clock.now_ms(),
                message_id="m1",
                session_id="s1",
            )

        return await self.database.write(add)

    async def row(self, outbox_id: int) -> dict[str, Any]:
        def look(reader: Reader) -> dict[str, Any]:
            row = reader.one("SELECT * FROM outbox WHERE outbox_id = ?", (outbox_id,))
            assert row is not None
            return dict(row)

        return await self.database.read(look)

    async def until(
        self, outbox_id: int, fits: Callable[[dict[str, Any]], bool], within_s: float = 3600.0
    ) -> dict[str, Any]:
        async with asyncio.timeout(within_s):
            while True:
                row = await self.row(outbox_id)
                if fits(row):
                    return row
                await self.clock.sleep(0.1)

    async def settled(self, outbox_id: int, within_s: float = 3600.0) -> dict[str, Any]:
        return await self.until(outbox_id, lambda row: row["state"] != "pending", within_s)

    async def parts(self) -> list[tuple[str, str]]:
        def look(reader: Reader) -> list[tuple[str, str]]:
            rows = reader.all("SELECT kind, state FROM outbox ORDER BY outbox_id")
            return [tuple(row) for row in rows]

        return await self.database.read(look)


@pytest_asyncio.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    clock = LoopClock()
    path = tmp_path / "state.db"
    runner = InlineRunner(path, clock=clock, entropy=SeededEntropy(clock, 3), max_delay_s=0)
    database = await Database.open(lay_store(path), clock=clock, runner=runner)
    bench = Bench(tmp_path, database, clock)
    yield bench
    await bench.owner.close(1.0)
    await database.close()


async def test_a_part_is_one_event_with_body_and_html(bench: Bench) -> None:
    async with bench.relaying():
        row = await bench.settled(await bench.add("Hello **Ann**, see `x`"))
    (event,) = bench.rooms.messages()
    assert (row["state"], row["progress"], row["begun_at"]) == ("delivered", 0, 0)
    assert json.loads(row["platform_ids"]) == [event.event_id]
    assert event.content["msgtype"] == "m.text"
    assert event.content["body"] == "Hello Ann, see x"
    assert event.content["formatted_body"] == (
        "<p>Hello <strong>Ann</strong>, see <code>x</code></p>"
    )
    assert event.content["m.mentions"] == {}


async def test_a_long_answer_is_several_events_in_order(bench: Bench) -> None:
    async with bench.relaying():
        row = await bench.settled(await bench.add(LONG))
    texts = bench.rooms.texts()
    assert len(texts) > 3
    assert len(json.loads(row["platform_ids"])) == len(texts)
    assert "".join("".join(texts).split()) == "".join(LONG.split())
    assert all(
        len(json.dumps(event.content, ensure_ascii=False).encode()) < 50_000
        for event in bench.rooms.messages()
    )


async def test_in_a_thread_clients_without_threads_see_a_reply(bench: Bench) -> None:
    async with bench.relaying():
        await bench.settled(await bench.add("hello", room=f"{ROOM}/$root"))
    (event,) = bench.rooms.messages(ROOM)
    assert event.relation == {
        "rel_type": "m.thread",
        "event_id": "$root",
        "is_falling_back": True,
        "m.in_reply_to": {"event_id": "$root"},
    }


async def test_notices_ring_nobody_and_are_shown_as_written(bench: Bench) -> None:
    async with bench.relaying():
        await bench.settled(await bench.add("a *b* <c>", "notice"))
    (event,) = bench.rooms.messages()
    assert event.content["msgtype"] == "m.notice"
    assert event.content["body"] == "a *b* <c>"
    assert "formatted_body" not in event.content


async def test_an_empty_answer_says_so(bench: Bench) -> None:
    async with bench.relaying():
        await bench.settled(await bench.add(" "))
    assert bench.rooms.texts() == ["(an empty message)"]


# -- exactly once ----------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_lost_response_shows_the_answer_once(bench: Bench, when: str) -> None:
    getattr(bench.rooms, when)["send"] = [CUT, CUT]
    async with bench.relaying():
        row = await bench.settled(await bench.add("hello"))
    assert row["state"] == "delivered"
    assert bench.rooms.texts() == ["hello"]
    txns = {facts["txn_id"] for _, call, facts in bench.rooms.calls if call == "send"}
    assert len(bench.rooms.times("send")) == 3
    assert len(txns) == 1


async def test_a_kill_between_send_and_mark_shows_each_piece_once(bench: Bench) -> None:
    part = await bench.add(LONG)
    pieces = 0
    for _ in range(40):
        never = asyncio.Event()
        bench.rooms.after["send"] = [never.wait]
        task, _ = await bench.start()
        bench.rooms.changed.clear()
        await bench.rooms.changed.wait()
        await bench.kill(task)
        bench.rooms.after.clear()
        task, _ = await bench.start()
        row = await bench.until(
            part,
            lambda row, n=pieces: row["progress"] > n or row["state"] == "delivered",  # type: ignore[misc]  # bound now
        )
        pieces = row["progress"]
        await bench.kill(task)
        if row["state"] != "pending":
            break
    texts = bench.rooms.texts()
    assert pieces + 1 == len(texts) > 3
    assert "".join("".join(texts).split()) == "".join(LONG.split())
    assert await bench.parts() == [("answer", "delivered")]


async def test_parts_of_another_store_have_other_keys(bench: Bench) -> None:
    """A store restored from a backup gives out numbers again within the server's memory."""
    async with bench.relaying():
        await bench.settled(await bench.add("hello"))
        await bench.settled(await bench.add("hello"))
    txns = [event.txn_id for event in bench.rooms.messages()]
    assert txns[0] != txns[1]

    def part(message_id: str) -> OutboxPart:
        return OutboxPart(1, message_id, AGENT, "s", "matrix", ROOM, 0, "answer", {"text": "a"}, 0)

    assert (await bench.channel.deliver(part("m1"), NoMark())).outcome == "delivered"
    assert (await bench.channel.deliver(part("m2"), NoMark())).outcome == "delivered"
    assert bench.rooms.texts()[2:] == ["a", "a"]


def test_a_key_outlives_what_is_taken_out_of_a_part_meanwhile() -> None:
    """A note loses its button when the message it is about waits no longer."""
    bodies: list[dict[str, Any]] = [{}, {"cancel": "m1"}, {"in_place": "$e"}, {"buttons": []}]
    parts = [
        OutboxPart(1, "m1", AGENT, "s", "matrix", ROOM, 0, "notice", {"text": "a"} | more, 0)
        for more in bodies
    ]
    keys = [txn_of(part) for part in parts]
    assert keys[0] == keys[1] == keys[2] != keys[3]


async def test_what_the_server_may_have_forgotten_is_not_sent_again(bench: Bench) -> None:
    part = await bench.add("hello")
    never = asyncio.Event()
    bench.rooms.after["send"] = [never.wait]
    task, _ = await bench.start()
    await bench.rooms.changed.wait()
    await bench.kill(task)
    await bench.clock.sleep(KEY_KEPT_MS / 1000 + 60)
    bench.rooms.by_txn.clear()
    async with bench.relaying():
        row = await bench.settled(part, within_s=1.0)
        assert row["state"] == "unknown"
        note = part + 1
        assert (await bench.settled(note))["state"] == "delivered"
    assert bench.rooms.texts()[0] == "hello"
    assert "may not have reached you" in bench.rooms.texts()[1]
    assert "1. Show again" in bench.rooms.texts()[1]
    assert len(bench.rooms.texts()) == 2


async def test_what_waited_for_days_without_being_begun_is_sent(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliver, "KEY_KEPT_MS", 600_000)
    bench.rooms.before["send"] = [NotSent("no way there")] * 100_000
    part = await bench.add("hello")
    task, _ = await bench.start()
    await bench.clock.sleep(3_600.0)
    await bench.until(part, lambda row: row["begun_at"] == 0)  # surely nothing was sent
    bench.rooms.before.clear()
    row = await bench.settled(part, 120.0)
    assert row["state"] == "delivered"
    assert row["attempts"] == 1
    await bench.kill(task)


async def test_a_piece_begun_as_another_device_is_not_sent_again(bench: Bench) -> None:
    part = await bench.add("hello")
    never = asyncio.Event()
    bench.rooms.after["send"] = [never.wait]
    task, _ = await bench.start()
    await bench.rooms.changed.wait()
    await bench.clock.sleep(1.0)
    await bench.kill(task, keys_since_ms=bench.clock.now_ms())
    bench.rooms.by_txn.clear()
    async with bench.relaying():
        assert (await bench.settled(part))["state"] == "unknown"
    assert bench.rooms.texts().count("hello") == 1


# -- troubles --------------------------------------------------------------------------------------


async def test_a_pause_asked_for_in_one_room_delays_no_other(bench: Bench) -> None:
    bench.rooms.before["send"] = [RateLimited(30.0)]
    async with bench.relaying():
        first = await bench.add("for Ann")
        await bench.until(first, lambda row: "pause" in row["detail"])
        began = bench.clock.monotonic()
        other = await bench.settled(await bench.add("for Bob", room=OTHER))
        assert bench.clock.monotonic() - began < 1.0
        behind = await bench.add("more for Ann")
        row = await bench.settled(first)
        assert 29.0 < bench.clock.monotonic() - began < 32.0
        await bench.settled(behind)
    assert (other["state"], row["state"], row["attempts"]) == ("delivered", "delivered", 1)
    assert bench.rooms.texts(ROOM) == ["for Ann", "more for Ann"]
    assert len(bench.rooms.times("send")) == 4, "the server was not asked while it had to wait"


async def test_an_outage_of_hours_loses_and_doubts_nothing(bench: Bench) -> None:
    bench.rooms.before["send"] = [FateUnknown("HTTP 502")] * 10_000
    bench.rooms.before["state"] = [FateUnknown("HTTP 502")] * 10_000
    part = await bench.add("hello")
    behind = await bench.add("more")
    async with bench.relaying():
        await bench.clock.sleep(3 * 3600.0)
        assert (await bench.row(part))["state"] == "pending"
        tries = len(bench.rooms.times("send"))
        assert 100 < tries < 400, "not too often, and not too rarely"
        bench.rooms.before.clear()
        await bench.settled(behind, 120.0)
    assert bench.rooms.texts() == ["hello", "more"]


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_text_that_is_too_large_on_its_way_goes_in_small_parts(
    bench: Bench, *, streamed: bool
) -> None:
    """Whatever stands before the homeserver may take less than the homeserver itself."""
    there = await bench.rooms.send(
        ROOM, "m.room.message", {"msgtype": "m.text", "body": "begin…"}, txn_id="s"
    )

    async def takeover(message_id: str) -> str | None:
        return there if streamed else None

    bench.rooms.max_bytes = 16_000
    bench.begin(takeover=takeover)
    part = await bench.add(LONG)
    bench.rooms.after["send"] = [CUT, CUT, CUT]
    async with bench.relaying():
        row = await bench.settled(part)
    assert row["state"] == "delivered"
    texts = bench.rooms.texts()[0 if streamed else 1 :]
    assert "".join("".join(texts).split()) == "".join(LONG.split()), "all of it, in order, once"
    assert len(json.loads(row["platform_ids"])) == len(texts) > 20
    assert (bench.rooms.texts()[0] == "begin…") is not streamed


async def test_what_is_too_large_however_small_is_given_up_with_the_reason(bench: Bench) -> None:
    bench.rooms.max_bytes = 10
    part, behind = await bench.add("hello"), await bench.add("more")
    async with bench.relaying():
        rows = [await bench.settled(each) for each in (part, behind)]
    assert {row["state"] for row in rows} == {"dropped"}
    assert "larger than the server takes" in rows[0]["detail"]
    assert len(bench.rooms.times("send")) == 2, "it is not tried for ever"


async def test_a_thread_that_can_not_be_written_to_costs_no_answer(bench: Bench) -> None:
    """Servers refuse threads that begin at an event of another thread."""
    refusal = Refused(400, "M_UNKNOWN", "Cannot start threads from an event with a relation")

    async def fine() -> None:
        return

    bench.rooms.before["send"] = [refusal, fine, refusal]
    bench.rooms.after["send"] = [CUT]
    async with bench.relaying():
        row = await bench.settled(await bench.add("hello", room=f"{ROOM}/$root"))
    assert row["state"] == "delivered"
    (event,) = bench.rooms.messages()
    assert event.content["body"] == "hello"
    assert event.relation == {"m.in_reply_to": {"event_id": "$root"}}


@pytest.mark.parametrize(
    "name",
    [f"{ROOM}/root", f"{ROOM}/$", f"{ROOM}/$a b", f"{ROOM}/$" + "x" * 300, f"{ROOM}/$\ud800"],
)
async def test_a_name_of_no_thread_is_refused_and_costs_nobody_else(
    bench: Bench, name: str
) -> None:
    part = OutboxPart(1, "m1", AGENT, "s", "matrix", name, 0, "answer", {"text": "a"}, 0)
    assert (await bench.channel.deliver(part, NoMark())).outcome == "refused"
    assert bench.rooms.calls == []


async def test_an_event_that_alone_makes_the_server_fail_gives_way(bench: Bench) -> None:
    bench.rooms.before["send"] = [FateUnknown("HTTP 500")] * 9
    part = await bench.add("poison")
    behind = await bench.add("more")
    async with bench.relaying():
        row = await bench.settled(part, 1200.0)
        await bench.settled(behind)
    assert row["state"] == "unknown"
    assert bench.rooms.texts()[0] == "more"


async def test_a_room_that_is_gone_says_so(bench: Bench) -> None:
    bench.rooms.gone.add(ROOM)
    async with bench.relaying():
        row = await bench.settled(await bench.add("hello"))
    assert row["state"] == "dropped"
    assert "not in room" in row["detail"]


async def test_a_room_that_was_replaced_names_the_other(bench: Bench) -> None:
    bench.rooms.before["send"] = [NotAllowed(403, "M_FORBIDDEN", "too little power")]
    bench.rooms.room_states[ROOM, "m.room.tombstone"] = {"replacement_room": OTHER}
    async with bench.relaying():
        row = await bench.settled(await bench.add("hello"))
    assert row["state"] == "dropped"
    assert f"replaced by {OTHER}" in row["detail"]


async def test_parts_wait_for_a_token_and_for_a_bot(bench: Bench) -> None:
    bench.rooms.before["send"] = [TokenRefused("no")]
    part = await bench.add("hello")
    async with bench.relaying():
        await bench.until(part, lambda row: row["detail"] == "no")
        bench.channel.detach(AGENT)
        await bench.until(part, lambda row: row["detail"] == NOT_ATTACHED)
        bench.channel.attach(AGENT, BotHandle(bench.rooms, bench.sender, lambda: bench.settings))
        row = await bench.settled(part)
    assert (row["state"], row["attempts"]) == ("delivered", 1)


async def test_a_name_of_another_kind_is_refused(bench: Bench) -> None:
    async with bench.relaying():
        row = await bench.settled(await bench.add("hello", room="12345"))
    assert row["state"] == "dropped"


# -- the answer that was streamed ------------------------------------------------------------------


async def test_the_answer_takes_the_place_of_what_was_streamed(bench: Bench) -> None:
    streamed = await bench.rooms.send(
        ROOM, "m.room.message", {"msgtype": "m.text", "body": "begin…"}, txn_id="s"
    )

    async def takeover(message_id: str) -> str | None:
        assert message_id == "m1"
        return streamed

    bench.begin(takeover=takeover)
    bench.rooms.after["edit"] = [CUT]
    async with bench.relaying():
        row = await bench.settled(await bench.add(LONG))
    texts = bench.rooms.texts()
    assert "".join("".join(texts).split()) == "".join(LONG.split())
    assert json.loads(row["platform_ids"])[0] == streamed
    assert bench.rooms.events[streamed].edits == 1
    sizes = [len(json.dumps(event.content).encode()) for event in bench.rooms.events.values()]
    assert max(sizes) < 60_000


async def test_what_a_person_removed_is_not_edited(bench: Bench) -> None:
    streamed = await bench.rooms.send(
        ROOM, "m.room.message", {"msgtype": "m.text", "body": "begin…"}, txn_id="s"
    )
    await bench.rooms.redact(ROOM, streamed, txn_id="x")

    async def takeover(message_id: str) -> str | None:
        return streamed

    bench.begin(takeover=takeover)
    async with bench.relaying():
        await bench.settled(await bench.add("the answer"))
    assert bench.rooms.texts() == ["the answer"]
    assert bench.rooms.times("edit") == []


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, kind", [("a.pdf", "m.file"), ("b.PNG", "m.image"), ("c.mp3", "m.audio")]
)
async def test_a_file_is_uploaded_and_named(bench: Bench, name: str, kind: str) -> None:
    (bench.workspace / name).write_bytes(b"12345")
    async with bench.relaying():
        await bench.settled(await bench.add("look", "file", path=name))
    text, file = bench.rooms.messages()
    assert text.content["body"] == "look"
    assert file.content["msgtype"] == kind
    assert file.content["filename"] == name
    assert file.content["info"]["size"] == 5
    assert bench.rooms.files[file.content["url"]] == b"12345"


async def test_a_file_whose_send_was_cut_is_shown_once(bench: Bench) -> None:
    (bench.workspace / "a.pdf").write_bytes(b"12345")
    bench.rooms.after["upload"] = [CUT]
    bench.rooms.after["send"] = [CUT]
    async with bench.relaying():
        await bench.settled(await bench.add("", "file", path="a.pdf"))
    assert len(bench.rooms.messages()) == 1
    assert len(bench.rooms.times("upload")) == 2


@pytest.mark.parametrize(
    "path, why",
    [
        ("../secret", "it lies outside the workspace"),
        ("link", "not a regular file"),
        ("gone.txt", "no such file"),
        ("empty", "it is empty"),
        (".", "not a regular file"),
    ],
)
async def test_a_file_that_may_not_be_sent_becomes_a_text(
    bench: Bench, path: str, why: str
) -> None:
    (bench.workspace.parent / "secret").write_text("secret")
    (bench.workspace / "link").symlink_to(bench.workspace.parent / "secret")
    (bench.workspace / "empty").touch()
    async with bench.relaying():
        row = await bench.settled(await bench.add("", "file", path=path))
    assert row["state"] == "delivered"
    assert why in bench.rooms.texts()[0]
    assert bench.rooms.files == {}


@pytest.mark.parametrize(
    "error", [TooLong(413, "M_TOO_LARGE", "too large"), Refused(400, "M_X", "bad type")]
)
async def test_a_file_that_is_refused_becomes_a_text(bench: Bench, error: Refused) -> None:
    (bench.workspace / "a.pdf").write_bytes(b"12345")
    bench.rooms.before["upload"] = [error]
    async with bench.relaying():
        row = await bench.settled(await bench.add("", "file", path="a.pdf"))
    assert row["state"] == "delivered"
    assert error.description in bench.rooms.texts()[0]


async def test_a_long_answer_can_go_as_a_file_with_its_beginning(bench: Bench) -> None:
    bench.settings = MatrixSettings(bench.workspace, long_as_file_pieces=2)
    async with bench.relaying():
        await bench.settled(await bench.add(LONG))
    text, file = bench.rooms.messages()
    assert text.content["body"].endswith("…")
    assert file.content["filename"] == "answer.md"
    assert bench.rooms.files[file.content["url"]].decode().strip() == LONG.strip()


# -- choices ---------------------------------------------------------------------------------------


async def test_what_can_be_pressed_is_on_record_before_it_counts_as_delivered(bench: Bench) -> None:
    told: list[tuple[str, list[str]]] = []

    async def offered(place: Any, event_id: str, piece: Any) -> None:
        told.append((event_id, [choice.data for choice in piece.choices]))
        if len(told) == 1:
            raise FateUnknown("this process ends here")

    bench.begin(offered=offered)
    rows = [[{"label": "A", "data": "b:1"}, {"label": "B", "data": "b:2"}]]
    async with bench.relaying():
        await bench.settled(await bench.add("pick", "notice", buttons=rows, plain=True))
    assert bench.rooms.texts() == [
        "pick\n\n1. A\n2. B\n\nAnswer with the number, or press its reaction below."
    ]
    (event,) = bench.rooms.messages()
    assert told == [(event.event_id, ["b:1", "b:2"])] * 2
    assert event.content["msgtype"] == "m.text", "what wants a press may ring"


# -- what is for one person alone ------------------------------------------------------------------


async def alarmed(bench: Bench) -> tuple[str, list[str]]:
    """Say something that is for Ann alone; what became of it, and what was said elsewhere."""
    told: list[str] = []

    async def tell(text: str) -> None:
        told.append(text)

    bench.begin(tell=tell)
    async with bench.relaying():
        row = await bench.settled(await bench.add("it is ill", "notice", only_with=ANN))
    return row["state"], told


async def test_words_for_one_person_are_said_where_nobody_else_is(bench: Bench) -> None:
    assert await alarmed(bench) == ("delivered", [])
    assert bench.rooms.texts() == ["it is ill"]


@pytest.mark.parametrize("others", [{ANN, "@eve:localhost"}, {"@eve:localhost"}, set()])
async def test_where_others_are_they_are_said_in_another_way(
    bench: Bench, others: set[str]
) -> None:
    bench.rooms.people[ROOM] = others
    assert await alarmed(bench) == ("dropped", ["it is ill"])
    assert bench.rooms.texts() == []


@pytest.mark.parametrize("trouble", [CUT, RoomGone(403, "M_FORBIDDEN", "not in room")])
async def test_where_nobody_can_say_who_is_there_too(bench: Bench, trouble: MatrixError) -> None:
    bench.rooms.before["members"] = [trouble]
    assert await alarmed(bench) == ("dropped", ["it is ill"])
    assert bench.rooms.texts() == []


async def test_where_the_room_does_not_take_them_too(bench: Bench) -> None:
    bench.rooms.before["send"] = [NotAllowed(403, "M_FORBIDDEN", "too little power")]
    assert await alarmed(bench) == ("dropped", ["it is ill"])


async def test_words_do_not_come_back_to_a_room_that_does_not_take_them(bench: Bench) -> None:
    """A room that was replaced still has the operator in it, and lets nobody write."""
    said_at: list[str] = []

    async def tell(text: str) -> None:
        if await bench.channel.alone_with(AGENT, ROOM) == ANN:
            said_at.append("the room")
            await bench.add(text, "notice", only_with=ANN)
        else:
            said_at.append("elsewhere")

    bench.begin(tell=tell)
    bench.rooms.before["send"] = [NotAllowed(403, "M_FORBIDDEN", "too little power")] * 50
    async with bench.relaying():
        await bench.settled(await bench.add("it is ill", "notice", only_with=ANN))
        await asyncio.sleep(60)
    assert said_at == ["elsewhere"]
    await asyncio.sleep(600)
    assert await bench.channel.alone_with(AGENT, ROOM) == ANN, "it may have been mended"
