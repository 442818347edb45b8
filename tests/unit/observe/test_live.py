"""Text of running turns, as screens show it and as followers read it."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsup.model.errors import Overloaded
from agentsup.observe.live import FeedClosed, LiveFeed, LiveHub, LiveLimits, LiveTurn

PLACE = ("a", "console:c")


class Screen:
    """A client: what it shows after each frame."""

    def __init__(self, feed: LiveFeed) -> None:
        self.feed = feed
        self.turns: dict[str, str] = {}
        self.tools: list[tuple[str, str, str]] = []
        self.finished: dict[str, str] = {}
        self.pictures = 0

    def show(self, frame: dict[str, Any]) -> None:
        match frame["type"]:
            case "live":
                self.pictures += 1
                self.turns = {turn["message_id"]: turn["text"] for turn in frame["turns"]}
            case "begin":
                self.turns[frame["message_id"]] = ""
            case "delta":
                self.turns[frame["message_id"]] += frame["text"]
            case "tool":
                self.tools.append((frame["message_id"], frame["name"], frame["state"]))
            case "end":
                self.finished[frame["message_id"]] = self.turns.pop(frame["message_id"])

    def catch_up(self) -> None:
        while (frame := self.feed._take()) is not None:
            self.show(frame)


def hub_with_a_turn(*deltas: str, limits: LiveLimits | None = None) -> LiveHub:
    hub = LiveHub(limits or LiveLimits())
    hub.begin(*PLACE, "m1")
    for delta in deltas:
        hub.delta("m1", delta)
    return hub


async def running(hub: LiveHub) -> Any:
    """The turns that a new reader is shown first."""
    with hub.subscribe(*PLACE) as feed:
        return (await feed.next())["turns"]


async def test_a_reader_gets_begin_deltas_tools_and_end_in_order() -> None:
    hub = LiveHub()
    with hub.subscribe(*PLACE) as feed:
        assert await feed.next() == {"type": "live", "turns": []}
        hub.begin(*PLACE, "m1")
        hub.delta("m1", "let me ")
        hub.tool("m1", "ask_agent", "started", "writer")
        hub.delta("m1", "see")
        hub.end("m1")
        frames = [await feed.next() for _ in range(5)]
    about = {"message_id": "m1"}
    assert frames == [
        {"type": "begin", **about},
        {"type": "delta", **about, "text": "let me "},
        {"type": "tool", **about, "name": "ask_agent", "state": "started", "to": "writer"},
        {"type": "delta", **about, "text": "see"},
        {"type": "end", **about},
    ]


async def test_who_joins_in_the_middle_misses_nothing() -> None:
    hub = hub_with_a_turn("once ", "upon ")
    hub.tool("m1", "look", "started")
    with hub.subscribe(*PLACE) as feed:
        hub.delta("m1", "a ")
        screen = Screen(feed)
        screen.catch_up()
        assert screen.turns == {"m1": "once upon a "}
        hub.delta("m1", "time")
        screen.catch_up()
        assert screen.turns == {"m1": "once upon a time"}
        assert screen.pictures == 1
    assert await running(hub) == [
        {
            "message_id": "m1",
            "text": "once upon a time",
            "shortened": False,
            "tools": [{"name": "look", "state": "started"}],
        }
    ]


async def test_a_reader_that_waits_is_woken_by_each_change() -> None:
    hub = LiveHub()
    with hub.subscribe(*PLACE) as feed:
        await feed.next()

        async def read(count: int) -> list[dict[str, Any]]:
            return [await feed.next() for _ in range(count)]

        reading = asyncio.create_task(read(3))
        await asyncio.sleep(0)
        hub.begin(*PLACE, "m1")
        await asyncio.sleep(0)
        hub.delta("m1", "x")
        await asyncio.sleep(0)
        hub.end("m1")
        assert [frame["type"] for frame in await reading] == ["begin", "delta", "end"]


async def test_other_conversations_and_agents_are_not_seen() -> None:
    hub = LiveHub()
    with hub.subscribe(*PLACE) as feed:
        hub.begin("a", "console:other", "m2")
        hub.begin("b", "console:c", "m3")
        hub.delta("m2", "secret")
        assert await feed.next() == {"type": "live", "turns": []}
        assert feed._take() is None


async def test_a_slow_reader_gets_what_it_missed_in_few_pieces() -> None:
    hub = hub_with_a_turn()
    with hub.subscribe(*PLACE) as feed:
        screen = Screen(feed)
        screen.catch_up()
        for number in range(10_000):
            hub.delta("m1", f"{number} ")
        frames = 0
        while (frame := feed._take()) is not None:
            frames += 1
            screen.show(frame)
        assert frames <= 4
        assert screen.turns["m1"] == "".join(f"{number} " for number in range(10_000))


async def test_a_reader_too_far_behind_gets_a_fresh_picture_of_what_is_kept() -> None:
    hub = hub_with_a_turn(limits=LiveLimits(turn_chars=100))
    with hub.subscribe(*PLACE) as feed:
        screen = Screen(feed)
        screen.catch_up()
        text = "".join(f"{number:03} " for number in range(60))
        for start in range(0, len(text), 4):
            hub.delta("m1", text[start : start + 4])
        screen.catch_up()
        assert screen.pictures == 2
        assert text.endswith(screen.turns["m1"])
        assert 50 <= len(screen.turns["m1"]) <= 100
        assert (await running(hub))[0]["shortened"] is True
        hub.delta("m1", "end")
        screen.catch_up()
        assert screen.turns["m1"].endswith("end")
        assert screen.pictures == 2


async def test_tools_beyond_what_is_kept_also_lead_to_a_picture() -> None:
    hub = hub_with_a_turn(limits=LiveLimits(turn_tools=3))
    with hub.subscribe(*PLACE) as feed:
        screen = Screen(feed)
        screen.catch_up()
        for number in range(10):
            hub.tool("m1", f"t{number}", "started")
        screen.catch_up()
        assert (screen.pictures, screen.tools) == (2, [])
        hub.tool("m1", "t10", "started")
        screen.catch_up()
        assert screen.tools == [("m1", "t10", "started")]


async def test_a_reader_that_never_reads_keeps_little_of_turns_that_ended() -> None:
    hub = LiveHub()
    with hub.subscribe(*PLACE) as feed:
        await feed.next()
        for number in range(1000):
            hub.begin(*PLACE, f"m{number}")
            hub.delta(f"m{number}", "x" * 1000)
            hub.end(f"m{number}")
        assert len(feed._marks) <= LiveLimits().ended_turns
        hub.begin(*PLACE, "last")
        hub.delta("last", "here")
        screen = Screen(feed)
        screen.catch_up()
        assert screen.turns == {"last": "here"}


async def test_a_long_text_of_an_ended_turn_is_not_kept_for_a_slow_reader() -> None:
    hub = hub_with_a_turn()
    with hub.subscribe(*PLACE) as feed:
        await feed.next()
        hub.delta("m1", "x" * 200_000)
        hub.end("m1")
        assert feed._marks == {}
        assert await feed.next() == {"type": "live", "turns": []}


async def test_a_further_segment_starts_with_empty_text() -> None:
    hub = hub_with_a_turn("first try")
    with hub.subscribe(*PLACE) as feed:
        screen = Screen(feed)
        screen.catch_up()
        hub.begin(*PLACE, "m1")
        hub.delta("m1", "second")
        screen.catch_up()
        assert screen.turns == {"m1": "second"}
        assert screen.finished == {}
        assert len(hub._turns) == 1


async def test_many_readers_see_the_same_and_share_one_text() -> None:
    hub = hub_with_a_turn()
    feeds = [hub.subscribe(*PLACE) for _ in range(500)]
    screens = [Screen(feed) for feed in feeds]
    for screen in screens:
        screen.catch_up()
    gc.collect()
    tracemalloc.start()
    for number in range(2000):
        hub.delta("m1", f"word{number} ")
    grown_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert grown_bytes < 2_000_000, "the text is kept once, not once per reader"
    for screen in screens[:20]:
        screen.catch_up()
        assert screen.turns["m1"].endswith("word1999 ")
    for feed in feeds:
        feed.close()
    assert (hub._feed_count, hub._feeds) == (0, {})


async def test_memory_of_one_endless_turn_is_bounded() -> None:
    hub = hub_with_a_turn(limits=LiveLimits(turn_chars=10_000))
    for _ in range(5_000):
        hub.delta("m1", "x" * 100)
        hub.tool("m1", "t", "started")
    (picture,) = await running(hub)
    assert len(picture["text"]) <= 10_000
    assert len(picture["tools"]) <= 256


async def test_numbers_of_turns_and_readers_are_bounded() -> None:
    hub = LiveHub(LiveLimits(turns=3, feeds=2))
    for number in range(5):
        hub.begin(*PLACE, f"m{number}")
    assert [turn["message_id"] for turn in await running(hub)] == ["m2", "m3", "m4"]
    feeds = [hub.subscribe(*PLACE) for _ in range(2)]
    with pytest.raises(Overloaded) as caught:
        hub.subscribe(*PLACE)
    assert caught.value.facts == {"queue": "live.feeds", "size": 2, "limit": 2}
    feeds[0].close()
    feeds[0].close()
    hub.subscribe(*PLACE).close()
    feeds[1].close()


async def test_what_is_said_about_a_turn_that_does_not_run_is_ignored() -> None:
    hub = LiveHub()
    hub.delta("m9", "x")
    hub.tool("m9", "t", "started")
    hub.end("m9")
    assert await running(hub) == []
    assert len(hub._turns) == 0


async def test_closing_tells_a_reader_that_waits() -> None:
    feed = LiveHub().subscribe(*PLACE)
    await feed.next()
    waiting = asyncio.create_task(feed.next())
    await asyncio.sleep(0)
    feed.close()
    with pytest.raises(FeedClosed):
        await waiting
    with pytest.raises(FeedClosed):
        await feed.next()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), st.sampled_from("xyz"), st.just("")),
        st.tuples(st.just("delta"), st.sampled_from("xyz"), st.text(max_size=12)),
        st.tuples(st.just("tool"), st.sampled_from("xyz"), st.just("t")),
        st.tuples(st.just("end"), st.sampled_from("xyz"), st.just("")),
        st.tuples(st.just("read"), st.sampled_from("xyz"), st.just("")),
    ),
    max_size=80,
)


@given(STEPS, st.integers(10, 60))
def test_whoever_has_caught_up_shows_exactly_what_the_hub_has(
    steps: list[tuple[str, str, str]], turn_chars: int
) -> None:
    hub = LiveHub(LiveLimits(turn_chars=turn_chars, turn_tools=2, delta_chars=5, ended_turns=2))
    true_text: dict[str, str] = {}
    feed = hub.subscribe(*PLACE)
    screen = Screen(feed)
    for step, message_id, text in steps:
        match step:
            case "begin":
                hub.begin(*PLACE, message_id)
                true_text[message_id] = ""
            case "delta":
                hub.delta(message_id, text)
                if message_id in true_text:
                    true_text[message_id] += text
            case "tool":
                hub.tool(message_id, text, "started")
            case "end":
                hub.end(message_id)
                true_text.pop(message_id, None)
            case _:
                frame = feed._take()
                if frame is not None:
                    screen.show(frame)
    screen.catch_up()
    assert set(screen.turns) == set(true_text)
    for message_id, whole in true_text.items():
        shown = screen.turns[message_id]
        assert whole.endswith(shown)
        assert shown == whole or len(shown) >= turn_chars // 2
    feed.close()


async def test_that_an_attempt_is_made_again_is_said_to_who_watches_now_and_not_kept() -> None:
    hub = LiveHub()
    with hub.subscribe("agt", "web:ann") as feed, hub.subscribe("agt", "web:bob") as other:
        for each in (feed, other):
            assert (await each.next())["type"] == "live"
        hub.begin("agt", "web:ann", "m1")
        hub.end("m1")
        hub.retry("agt", "web:ann", "m1", why="down", attempt=2)
        hub.begin("agt", "web:bob", "m2")
        frames = [await feed.next() for _ in range(3)]
        assert [each["type"] for each in frames] == ["begin", "end", "retry"]
        assert frames[2] == {"type": "retry", "message_id": "m1", "why": "down", "attempt": 2}
        assert (await other.next())["message_id"] == "m2", "another conversation is not told"
    with hub.subscribe("agt", "web:ann") as late:
        assert (await late.next())["turns"] == []


# -- followers: every turn of an agent in a channel, read in place ---------------------------------


def test_a_follower_hears_of_running_and_later_turns_of_its_agent_and_channel_alone() -> None:
    hub, heard = LiveHub(), list[LiveTurn]()
    hub.begin("a", "telegram:1", "m1")
    hub.delta("m1", "so far")
    hub.begin("a", "console:c", "m2")
    unfollow = hub.follow("a", "telegram", heard.append)
    hub.begin("b", "telegram:1", "m3")
    hub.begin("a", "telegram:-5/7", "m4")
    assert [(turn.message_id, turn.conversation) for turn in heard] == [
        ("m1", "telegram:1"),
        ("m4", "telegram:-5/7"),
    ]
    assert heard[0].text() == "so far"
    unfollow()
    unfollow()
    hub.begin("a", "telegram:1", "m5")
    assert len(heard) == 2


def test_a_turn_tells_of_text_and_of_its_end_and_can_be_read_after_it() -> None:
    hub, heard, told = LiveHub(), list[LiveTurn](), list[tuple[int, bool]]()
    hub.follow("a", "telegram", heard.append)
    hub.begin("a", "telegram:1", "m1")
    turn = heard[0]
    turn.listen(lambda: told.append((turn.length, turn.ended)))
    hub.delta("m1", "one ")
    hub.delta("m1", "two")
    hub.end("m1")
    assert told == [(4, False), (7, False), (7, True)]
    assert turn.text(4) == "two"


def test_a_further_segment_is_another_turn_and_ends_the_first_view() -> None:
    hub, heard = LiveHub(), list[LiveTurn]()
    hub.follow("a", "telegram", heard.append)
    hub.begin("a", "telegram:1", "m1")
    hub.delta("m1", "before")
    hub.begin("a", "telegram:1", "m1")
    hub.delta("m1", "after")
    assert [(turn.ended, turn.text()) for turn in heard] == [(True, "before"), (False, "after")]


def test_who_left_hears_no_more() -> None:
    hub, heard, told = LiveHub(), list[LiveTurn](), list[int]()
    hub.follow("a", "telegram", heard.append)
    hub.begin("a", "telegram:1", "m1")

    def changed() -> None:
        told.append(heard[0].length)

    heard[0].listen(changed)
    heard[0].unlisten(changed)
    heard[0].unlisten(changed)
    hub.delta("m1", "x")
    assert told == []


def test_of_a_long_text_the_kept_part_is_read() -> None:
    hub, heard = LiveHub(LiveLimits(turn_chars=10)), list[LiveTurn]()
    hub.follow("a", "telegram", heard.append)
    hub.begin("a", "telegram:1", "m1")
    hub.delta("m1", "0123456789")
    hub.delta("m1", "ab")
    turn = heard[0]
    assert (turn.stored_from, turn.length, turn.text()) == (7, 12, "789ab")
    assert turn.text(10) == "ab"
