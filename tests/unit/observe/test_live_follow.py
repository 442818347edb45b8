"""Followers: every turn of an agent in a channel, read in place."""

from __future__ import annotations

from agentsup.observe.live import LiveHub, LiveLimits, LiveTurn


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
