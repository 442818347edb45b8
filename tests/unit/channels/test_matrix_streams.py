"""Matrix streams in virtual time, over a real database and rooms in memory."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from agentsup.channels.core.errors import ChatGone, NotSent, OutcomeUnknown, RateLimited
from agentsup.channels.matrix.live_answer import Streams
from agentsup.channels.matrix.sender import Sender
from agentsup.model.agent import Streaming
from agentsup.store import Database
from tests.support.loop_clock import LoopClock
from tests.support.matrix_rooms import Rooms
from tests.support.outbox_fixture import virtual_store
from tests.support.stream_fixture import StreamsFixture

pytestmark = pytest.mark.virtual

ROOM, THREAD = "!r:localhost", "!r:localhost/$root"
LIVE = Streaming(edit_interval_s=2.0, min_chars=20, idle_ms=500)
CUT = OutcomeUnknown("the line was cut")


class Fixture(StreamsFixture):
    """Its rooms are in memory."""

    channel_name, conversation = "matrix", ROOM

    def __init__(self, database: Database, clock: LoopClock) -> None:
        super().__init__(database, clock, LIVE)
        self.rooms = Rooms(clock)
        self.start()

    def _streams(self) -> Streams:
        sender = Sender(self.rooms, self.clock)  # type: ignore[arg-type]  # a twin of what is used
        return Streams(self, sender)  # type: ignore[arg-type]  # a twin of what is used

    async def on_record(self) -> list[str]:
        return [row[0] for row in await self.sql("SELECT platform_id FROM placeholders")]

    async def eyes(self) -> int:
        return int((await self.sql("SELECT count(*) FROM matrix_eyes"))[0][0])

    def shown(self) -> str:
        """The one message that is there."""
        (text,) = self.rooms.texts()
        return text


@pytest_asyncio.fixture
async def context(tmp_path: Path) -> AsyncIterator[Fixture]:
    async with virtual_store(tmp_path) as (database, clock):
        bench = Fixture(database, clock)
        yield bench
        await bench.close()


async def test_edits_are_a_second_apart_whatever_the_setting_says(context: Fixture) -> None:
    context.streaming = Streaming(edit_interval_s=0.1, min_chars=1, idle_ms=10)
    await context.accept()
    await context.turn()
    for word in range(100):
        await context.say(f"word{word} ", then_s=0.1)
    at = context.rooms.times("send") + context.rooms.times("edit")
    assert len(at) >= 8
    assert min(later - earlier for earlier, later in itertools.pairwise(at)) >= 1.0


async def test_an_edit_has_the_new_text_and_a_beginning_for_old_clients(context: Fixture) -> None:
    await context.accept(THREAD)
    await context.turn(THREAD)
    await context.say("The **first** words of many", then_s=1.0)
    await context.say(", and `<more>` of them", then_s=3.0)
    first, edit = context.rooms.events.values()
    assert first.relation["rel_type"] == "m.thread"
    assert first.relation["event_id"] == "$root"
    assert edit.relation == {"rel_type": "m.replace", "event_id": first.event_id}
    assert edit.content["body"].startswith("* The first words of many")
    new = edit.content["m.new_content"]
    assert "<code>&lt;more&gt;</code>" in new["formatted_body"]
    assert "m.relates_to" not in new


async def test_a_hanging_edit_makes_the_answer_a_message_of_its_own(context: Fixture) -> None:
    await context.accept()
    await context.turn()
    await context.say("The first words of many", then_s=1.0)
    never = asyncio.Event()
    context.rooms.before["edit"] = [never.wait]
    await context.say(", and then some", then_s=5.0)
    context.live.end("m1")
    await context.answer("the whole answer")
    began = context.clock.monotonic()
    assert await context.streams.takeover("m1") is None
    assert context.clock.monotonic() - began <= 1.1
    assert context.rooms.texts() == [], "half of it is gone before the whole comes"
    # The edit comes into effect late, over whatever is there.
    never.set()
    await context.settle("delivered", "$other")
    await context.clock.sleep(30.0)
    assert context.rooms.texts() == [], "the placeholder is gone, late edit or not"
    assert await context.on_record() == []


async def test_an_edit_whose_answer_was_lost_goes_again_and_is_trusted_then(
    context: Fixture,
) -> None:
    await context.accept()
    await context.turn()
    await context.say("The first words of many", then_s=1.0)
    context.rooms.after["edit"] = [CUT]
    await context.say(", and then some", then_s=3.0)
    await context.say(", and more", then_s=6.0)
    assert context.shown().startswith("The first words of many, and then some, and more")
    txns = [facts["txn_id"] for _, call, facts in context.rooms.calls if call == "edit"]
    assert len(txns) > len(set(txns)), "the lost one went again under its own id"
    (event,) = context.rooms.messages()
    context.live.end("m1")
    await context.answer("the whole answer")
    assert await context.streams.takeover("m1") == event.event_id


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_first_event_whose_fate_is_unknown_is_there_once(
    context: Fixture, when: str
) -> None:
    await context.accept()
    await context.turn()
    getattr(context.rooms, when)["send"] = [CUT]
    await context.say("The first words of many", then_s=1.0)
    await context.say(", and then some", then_s=10.0)
    assert context.shown().startswith("The first words of many, and then some")


@pytest.mark.parametrize("when", ["before", "after"])
async def test_no_event_is_left_behind_by_a_first_one_that_never_was_known(
    context: Fixture, when: str
) -> None:
    await context.accept()
    await context.turn()
    getattr(context.rooms, when)["send"] = [CUT, CUT, CUT]
    await context.say("The first words of many", then_s=20.0)
    context.live.end("m1")
    await context.answer("the whole answer")
    assert await context.streams.takeover("m1") is None
    await context.settle("delivered", "$other")
    await context.clock.sleep(40.0)
    assert context.rooms.texts() == []
    assert await context.on_record() == []


async def test_what_was_surely_not_sent_is_not_looked_for(context: Fixture) -> None:
    await context.accept()
    await context.turn()
    context.rooms.before["send"] = [NotSent("no way there")] * 9
    await context.say("The first words of many", then_s=20.0)
    context.live.end("m1")
    await context.answer("the whole answer", "delivered", "$other")
    await context.clock.sleep(20.0)
    assert context.rooms.events == {}
    assert await context.on_record() == []


async def test_a_crash_before_the_id_was_known_leaves_nothing_behind(context: Fixture) -> None:
    await context.accept()
    await context.turn()
    never = asyncio.Event()
    context.rooms.after["send"] = [never.wait]
    await context.say("The first words of many", then_s=1.0)
    assert context.shown().startswith("The first words")
    assert await context.on_record() == [""]
    await context.crash()
    await context.answer("the whole answer", "delivered", "$other")
    await context.clock.sleep(20.0)
    assert context.rooms.texts() == []
    assert await context.on_record() == []


async def test_once_an_answer_went_as_its_own_message_no_later_life_takes_over(
    context: Fixture,
) -> None:
    """Else it would be shown twice: there, and in the place of what was streamed."""
    await context.accept()
    await context.turn()
    await context.say("The first words of many", then_s=1.0)
    await context.crash()
    await context.answer("the whole answer")
    assert await context.streams.takeover("m1") is None, "an edit may still be on its way"
    await context.crash()
    await context.clock.sleep(10.0)
    assert await context.streams.takeover("m1") is None
    await context.settle("delivered", "$other")
    await context.clock.sleep(15.0)
    assert context.rooms.texts() == []


async def test_a_crash_while_the_answer_takes_the_place_lets_it_take_it_again(
    context: Fixture,
) -> None:
    await context.accept()
    await context.turn()
    await context.say("The first words of many", then_s=1.0)
    (event,) = context.rooms.messages()
    context.live.end("m1")
    await context.answer("the whole answer")
    assert await context.streams.takeover("m1") == event.event_id
    await context.crash()
    assert await context.streams.takeover("m1") == event.event_id, "at once: no edit is on its way"


async def test_a_refusal_silences_the_stream_and_nothing_else(context: Fixture) -> None:
    await context.accept()
    await context.turn()
    context.rooms.before["send"] = [ChatGone(403, "not in room", "M_FORBIDDEN")]
    await context.say("The first words of many", then_s=1.0)
    await context.say(", and more of them", then_s=30.0)
    assert context.rooms.events == {}


async def test_a_stream_that_was_told_to_pause_pauses_and_then_is_slower(context: Fixture) -> None:
    await context.accept()
    await context.turn()
    await context.say("The first words of many", then_s=1.0)
    context.rooms.before["edit"] = [RateLimited(5.0)]
    for _ in range(40):
        await context.say("and some more words ", then_s=1.0)
    at = context.rooms.times("edit")
    assert at[1] - at[0] >= 15.0, "longer than was asked for, so that answers find room"
    assert at[2] - at[1] > 2.0


async def test_a_stream_leaves_its_window_on_long_texts(context: Fixture) -> None:
    await context.accept()
    await context.turn()
    await context.say("begin\n\n" + "words and words\n\n" * 2_000 + "the end so far", then_s=3.0)
    assert context.shown().startswith("…")
    assert "the end so far" in context.shown()
    sizes = [
        len(json.dumps(facts["content"]).encode())
        for _, call, facts in context.rooms.calls
        if call in {"send", "edit"}
    ]
    assert max(sizes) < 60_000


async def test_typing_is_renewed_before_it_fades(context: Fixture) -> None:
    await context.accept()
    await context.turn()
    await context.clock.sleep(100.0)
    at = context.rooms.times("typing")
    assert len(at) >= 5
    assert max(later - earlier for earlier, later in itertools.pairwise(at)) < 30.0


# -- eyes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", [False, True], ids=["known", "answer lost"])
async def test_eyes_of_an_earlier_life_are_taken_back(context: Fixture, lost: bool) -> None:
    await context.accept()
    if lost:
        context.rooms.after["reaction"] = [asyncio.Event().wait]
    context.streams.accepted("m1", ROOM, "$person")
    await context.clock.sleep(1.0)
    assert context.rooms.reactions("$person") == ["👀"]
    await context.crash()
    await context.clock.sleep(1.0)
    assert context.rooms.reactions("$person") == ["👀"]
    await context.become("done", "ok")
    await context.clock.sleep(1.0)
    assert context.rooms.reactions("$person") == []
    assert await context.eyes() == 0


async def test_eyes_on_what_ended_while_nobody_looked_are_taken_back(context: Fixture) -> None:
    await context.accept()
    context.streams.accepted("m1", ROOM, "$person")
    await context.clock.sleep(1.0)
    await context.drain()
    await context.become("done", "ok")
    context.streaming = Streaming(reactions=False)
    context.start()
    await context.clock.sleep(1.0)
    assert context.rooms.reactions("$person") == []
    assert await context.eyes() == 0
