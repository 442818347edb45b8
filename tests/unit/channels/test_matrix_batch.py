"""What is taken from an answer to a sync, and what of a new room's history counts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsup.channels.matrix.batch import read_batch, since_entry
from agentsup.channels.matrix.event import INVITE

ME = "@bot:here"


def said(number: int) -> dict[str, Any]:
    return {"event_id": f"${number}", "type": "m.room.message", "sender": "@a:h", "content": {}}


def member(what: str, who: str = ME, number: int = 99) -> dict[str, Any]:
    return {
        "event_id": f"${number}",
        "type": "m.room.member",
        "sender": "@a:h",
        "state_key": who,
        "content": {"membership": what},
    }


def test_rooms_invitations_and_leaves() -> None:
    answer = {
        "next_batch": "s2",
        "rooms": {
            "join": {
                "!a:h": {
                    "state": {"events": [{"type": "m.room.encryption", "state_key": ""}]},
                    "timeline": {
                        "events": [said(1), {"no": "id"}, 7, said(2)],
                        "limited": True,
                        "prev_batch": "p",
                    },
                },
                "!b:h": "nonsense",
            },
            "invite": {
                "!c:h": {"invite_state": {"events": ["x", member("invite")]}},
                "!d:h": {"invite_state": {"events": [member("invite", "@other:h")]}},
            },
            "leave": {"!e:h": {}},
        },
    }
    batch = read_batch(answer, ME)
    (room,) = batch.joined
    assert [each["event_id"] for each in room.timeline] == ["$1", "$2"]
    assert (room.is_limited, room.prev_batch, room.is_encrypted) == (True, "p", True)
    assert room.last_event_id == "$2"
    assert batch.invited["!c:h"]["type"] == INVITE
    assert batch.invited["!c:h"]["sender"] == "@a:h"
    assert "!d:h" not in batch.invited
    assert batch.left == ("!e:h",)
    assert batch.faults == 4


def test_the_inviter_is_who_the_invitation_itself_names() -> None:
    """What stands before it comes from the inviter's server, which may claim anything."""
    forged = [
        member("invite") | {"sender": "@ann:h"},
        member("join") | {"sender": "@ann:h"},
        {"type": "m.room.create", "state_key": "", "sender": "@ann:h", "content": {}},
    ]
    events = [*forged, member("invite") | {"sender": "@eve:evil"}]
    rooms = {"invite": {"!c:h": {"invite_state": {"events": events}}}}
    batch = read_batch({"next_batch": "s", "rooms": rooms}, ME)
    assert batch.invited["!c:h"]["sender"] == "@eve:evil"
    rooms = {"invite": {"!c:h": {"invite_state": {"events": [member("join"), member("leave")]}}}}
    assert not read_batch({"next_batch": "s", "rooms": rooms}, ME).invited


def test_a_mere_event_makes_no_room_encrypted_and_no_id_is_taken_on_trust() -> None:
    events = [
        said(1) | {"type": "m.room.encryption"},
        said(2) | {"event_id": "2"},
        said(3) | {"event_id": "$" + "x" * 300},
        said(4) | {"type": INVITE},
    ]
    rooms = {
        "join": {"!a:h": {"timeline": {"events": events}}, "no room": {}, "!a/b": {}},
        "leave": {"!l:h": {}, "": {}},
    }
    batch = read_batch({"next_batch": "s", "rooms": rooms}, ME)
    (room,) = batch.joined
    assert [each["event_id"] for each in room.timeline] == ["$1"]
    assert not room.is_encrypted
    assert (batch.faults, batch.left) == (5, ("!l:h",))


def test_the_same_invitation_of_another_sync_is_another_one() -> None:
    def invited(token: str) -> str:
        rooms = {"invite": {"!c:h": {"invite_state": {"events": [member("invite")]}}}}
        batch = read_batch({"next_batch": token, "rooms": rooms}, ME)
        return str(batch.invited["!c:h"]["event_id"])

    assert invited("s1") != invited("s2")


@pytest.mark.parametrize("answer", [{}, {"next_batch": ""}, {"next_batch": 5}])
def test_an_answer_without_a_token_is_none(answer: Any) -> None:
    with pytest.raises(ValueError, match="next_batch"):
        read_batch(answer, ME)


@given(st.recursive(st.none() | st.integers() | st.text(max_size=5), lambda inner: st.lists(
    inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["join", "invite", "leave", "timeline", "state", "events", "!r:h", "invite_state"]), inner,
        max_size=4), max_leaves=10))  # fmt: skip
def test_nothing_in_an_answer_stops_the_loop(rooms: Any) -> None:
    batch = read_batch({"next_batch": "s", "rooms": rooms}, ME)
    assert batch.next_batch == "s"


def test_what_counts_of_a_new_room_is_what_followed_the_invitation() -> None:
    before, between, after = said(1), said(2), said(3)
    invited, joined = member("invite"), member("join")
    assert since_entry((before, invited, between, joined, after), ME) == (between, joined, after)
    assert since_entry((before, joined, after), ME) == (after,)
    assert since_entry((before, after), ME) is None
    # An earlier stay does not count, nor do the comings of others.
    earlier = (member("invite"), said(4), member("join"), said(5), member("leave"))
    assert since_entry((*earlier, said(6), invited, between, joined, after), ME) == (
        between,
        joined,
        after,
    )
    assert since_entry((*earlier, said(6), joined, after), ME) == (after,)
    assert since_entry((member("invite", "@eve:h"), after), ME) is None
    # To take another name is not to enter.
    renamed = {**member("join"), "unsigned": {"prev_content": {"membership": "join"}}}
    assert since_entry((before, renamed, after), ME) is None
    assert since_entry((before, joined, between, renamed, after), ME) == (between, renamed, after)
