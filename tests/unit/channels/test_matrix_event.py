"""Events as a homeserver gives them: what is read, what is poison, and who is meant."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsup.channels.core.errors import (
    ChatGone,
    NotAllowed,
    OutcomeUnknown,
    RateLimited,
    RequestRefused,
    TokenRefused,
)
from agentsup.channels.core.receiving.raw import Malformed
from agentsup.channels.core.receiving.texts import Attachment, Quoted
from agentsup.channels.matrix.address import RoomAddress, parse
from agentsup.channels.matrix.context import said
from agentsup.channels.matrix.errors import EventTooLarge, error_of
from agentsup.channels.matrix.event import DOUBTFUL, BotUser, RoomEvent, RoomEventKind, read

ROOM = "!room:here"
ME = BotUser("@bob_bot:here", "Bob")


def event(content: Any, kind: str = "m.room.message", **more: Any) -> RoomEvent:
    raw = {
        "type": kind,
        "event_id": "$1",
        "sender": "@ann:here",
        "origin_server_ts": 1_000,
        "content": content,
        **more,
    }
    return read(raw, ROOM, ME)


def text(body: str, **more: Any) -> RoomEvent:
    return event({"msgtype": "m.text", "body": body, **more})


def test_a_text_is_read_with_its_place_and_time() -> None:
    found = text("hello", formatted_body="<b>hello</b><script>x</script>")
    assert (found.kind, found.text, found.sender, found.at) == (
        RoomEventKind.MESSAGE,
        "hello",
        "@ann:here",
        1_000,
    )
    assert found.address == RoomAddress(ROOM)
    assert not found.addressed


@pytest.mark.parametrize(
    "body, rest, addressed",
    [
        ("Bob: hi", "hi", True),
        ("bob, hi", "hi", True),
        ("@bob_bot hi", "hi", True),
        ("@bob_bot:here: hi", "hi", True),
        ("@Bob hi", "hi", True),
        ("bob_bot: /stop", "/stop", True),
        ("Bob is ill", "Bob is ill", True),
        ("ask Bob", "ask Bob", True),
        ("is @bob_bot here?", "is @bob_bot here?", True),
        ("Bobby: hi", "Bobby: hi", False),
        ("write to bob@example.org", "write to bob@example.org", False),
        ("mail to x@bob_bot", "mail to x@bob_bot", False),
        ("the bob_bot script", "the bob_bot script", False),
    ],
)
def test_who_is_meant_by_name(body: str, rest: str, addressed: bool) -> None:
    found = text(body)
    assert (found.text, found.addressed) == (rest, addressed)


def test_a_mention_counts_whatever_the_text_says() -> None:
    found = text("Bob is ill", **{"m.mentions": {"user_ids": ["@bob_bot:here"]}})
    assert (found.text, found.addressed) == ("is ill", True)
    assert not text("hi", **{"m.mentions": {"user_ids": ["@eve:here"]}}).addressed
    assert not text("hi", **{"m.mentions": {"user_ids": "@bob_bot:here"}}).addressed


def test_a_thread_a_reply_and_the_quotation_of_old_clients() -> None:
    relates = {
        "rel_type": "m.thread",
        "event_id": "$root",
        "is_falling_back": True,
        "m.in_reply_to": {"event_id": "$last"},
    }
    found = text("on", **{"m.relates_to": relates})
    assert (found.address, found.reply_to) == (RoomAddress(ROOM, "$root"), "")
    relates["is_falling_back"] = False
    assert text("on", **{"m.relates_to": relates}).reply_to == "$last"
    reply = {"m.relates_to": {"m.in_reply_to": {"event_id": "$9"}}}
    found = text("> <@eve:here> what\n> is it\n\nthis\n> kept", **reply)
    assert (found.text, found.reply_to) == ("this\n> kept", "$9")
    assert text("> <@eve:here> said\n\nthis").text.startswith("> <@eve")


@pytest.mark.parametrize("wrong", ["root", "$", "$a b", "$" + "a" * 255, "$\ud800", "$a\n"])
def test_what_can_be_no_events_id_is_no_thread_reply_or_target(wrong: str) -> None:
    thread = {"rel_type": "m.thread", "event_id": wrong, "m.in_reply_to": {"event_id": wrong}}
    found = text("on", **{"m.relates_to": thread})
    assert (found.address, found.reply_to, found.text) == (RoomAddress(ROOM), "", "on")
    relates = {"m.relates_to": {"rel_type": "m.annotation", "event_id": wrong, "key": "x"}}
    assert event(relates, "m.reaction").kind is RoomEventKind.OTHER
    with pytest.raises(Malformed):
        event({}, "m.room.redaction", redacts=wrong)


def test_doubt_is_ours_to_note() -> None:
    doubtful: Any = {DOUBTFUL: True}
    assert event({"msgtype": "m.text", "body": "x"}, **doubtful).is_doubtful
    assert not text("x").is_doubtful


def test_an_edit_names_its_event_and_gives_the_new_words() -> None:
    found = event(
        {
            "msgtype": "m.text",
            "body": "* new",
            "m.new_content": {"msgtype": "m.text", "body": "new"},
            "m.relates_to": {"rel_type": "m.replace", "event_id": "$0"},
        }
    )
    assert (found.kind, found.text, found.target_id) == (RoomEventKind.EDITED, "new", "$0")


@pytest.mark.parametrize("kind", ["image", "file", "audio", "video"])
def test_files_with_and_without_a_caption(kind: str) -> None:
    content = {"msgtype": f"m.{kind}", "body": "a.bin", "url": "mxc://h/1", "info": {"size": 5}}
    found = event(content)
    assert (found.text, found.attachments) == ("", (Attachment(kind, "mxc://h/1", "a.bin", 5),))
    found = event(content | {"filename": "b.bin", "body": "see"})
    assert (found.text, found.attachments[0].name) == ("see", "b.bin")
    found = event({"msgtype": f"m.{kind}", "body": "x", "file": {"url": "mxc://h/1"}})
    assert not found.attachments
    assert "encrypted" in found.notes[0]
    assert found.has_content


def test_other_kinds() -> None:
    assert event({"m.relates_to": {"rel_type": "m.annotation", "event_id": "$0", "key": "👍"}},
                 "m.reaction").emoji == "👍"  # fmt: skip
    assert event({"redacts": "$7"}, "m.room.redaction").target_id == "$7"
    assert event({}, "m.room.redaction", redacts="$8").target_id == "$8"
    assert event({"algorithm": "x"}, "m.room.encrypted").kind is RoomEventKind.ENCRYPTED
    switch = event({"algorithm": "x"}, "m.room.encryption", state_key="")
    assert switch.kind is RoomEventKind.ENCRYPTED
    moved = event({"replacement_room": "!new:x"}, "m.room.tombstone", state_key="")
    assert moved.moved_to == "!new:x"
    for kind in ("m.room.encryption", "m.room.tombstone"):
        assert event({"algorithm": "x"}, kind).kind is RoomEventKind.OTHER, "no state"
        assert event({"algorithm": "x"}, kind, state_key="x").kind is RoomEventKind.OTHER
    assert event({"msgtype": "m.notice", "body": "beep"}).is_notice
    assert event({"x": 1}, "org.example.custom").kind is RoomEventKind.OTHER
    assert event({}).kind is RoomEventKind.OTHER, "taken back before we saw it"
    assert event({"msgtype": "m.location", "geo_uri": "geo:1,2", "body": "home"}).notes


@pytest.mark.parametrize(
    "raw",
    [
        {"type": "m.room.message", "event_id": "$1", "content": {"body": "x"}},
        {"type": "m.room.message", "sender": "@a:b", "content": {"body": "x"}},
        {"type": "m.room.message", "event_id": "$1", "sender": "@a:b", "content": "x"},
        {"type": "m.room.message", "event_id": "$1", "sender": "@a:b", "content": {"body": 5}},
        {"type": "m.room.redaction", "event_id": "$1", "sender": "@a:b", "content": {}},
        {
            "type": "m.room.message",
            "event_id": "$1",
            "sender": "@a:b",
            "content": {"msgtype": "m.file", "body": "x"},
        },
        {"type": 7},
    ],
)
def test_what_makes_no_sense_says_so(raw: Any) -> None:
    with pytest.raises(Malformed):
        read(raw, ROOM, ME)


KEYS = (
    *("body", "msgtype", "m.relates_to", "event_id", "rel_type", "m.new_content", "key"),
    *("m.in_reply_to", "info", "url", "m.mentions", "user_ids", "file", "filename"),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(KEYS),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@given(
    JSON,
    st.sampled_from(["m.room.message", "m.reaction", "m.room.redaction", "m.sticker", "m.x"]),
    st.text(max_size=30),
)
def test_no_content_of_others_does_more_than_be_malformed(
    content: Any, kind: str, body: str
) -> None:
    raw = {"type": kind, "event_id": "$1", "sender": "@a:b", "content": content}
    for each in (raw, raw | {"content": {"msgtype": "m.text", "body": body}}):
        try:
            read(each, ROOM, ME)
        except Malformed:
            continue


def test_conversations_name_rooms_and_threads() -> None:
    for place in (RoomAddress(ROOM), RoomAddress(ROOM, "$a/b+c"), RoomAddress("!v12hash")):
        assert parse(place.conversation) == place
    for wrong in ("", "5", "#alias:here", "!a b", f"{ROOM}/", f"{ROOM}/x", "!" + "a" * 255):
        with pytest.raises(ValueError, match="names no Matrix room"):
            parse(wrong)


def answer(errcode: str, **more: Any) -> bytes:
    return json.dumps({"errcode": errcode, "error": "words", **more}).encode()


@pytest.mark.parametrize(
    "status, body, kind",
    [
        (429, answer("M_LIMIT_EXCEEDED", retry_after_ms=1500), RateLimited),
        (429, b"<html>", RateLimited),
        (401, answer("M_UNKNOWN_TOKEN"), TokenRefused),
        (401, answer("M_MISSING_TOKEN"), TokenRefused),
        (403, answer("M_USER_DEACTIVATED"), TokenRefused),
        (403, answer("M_FORBIDDEN", error="User @b:h not in room !r:h"), ChatGone),
        (403, answer("M_FORBIDDEN"), NotAllowed),
        (404, answer("M_NOT_FOUND"), ChatGone),
        (413, answer("M_TOO_LARGE"), EventTooLarge),
        (413, b"<html>413 Request Entity Too Large</html>", EventTooLarge),
        (413, b"", EventTooLarge),
        (400, answer("M_UNKNOWN"), RequestRefused),
        (404, answer("M_UNRECOGNIZED"), RequestRefused),
        (500, answer("M_UNKNOWN"), OutcomeUnknown),
        (502, b"<html>bad gateway</html>", OutcomeUnknown),
        (403, b"<html>a proxy's word</html>", OutcomeUnknown),
        (400, b"[]", OutcomeUnknown),
    ],
)
def test_the_type_of_an_error_is_what_is_done_about_it(
    status: int, body: bytes, kind: type[Exception]
) -> None:
    assert type(error_of(status, body)) is kind


def test_an_answer_of_any_depth_is_an_error_and_no_more() -> None:
    deep = b'{"errcode": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert type(error_of(400, deep)) is OutcomeUnknown
    assert type(error_of(429, deep)) is RateLimited


def test_how_long_a_pause_is() -> None:
    def wait(body: bytes, header: str = "") -> float:
        error = error_of(429, body, retry_after=header)
        assert isinstance(error, RateLimited)
        return error.retry_after_s

    assert wait(answer("M_LIMIT_EXCEEDED", retry_after_ms=1500)) == 1.5
    assert wait(b"", "7") == 7.0
    assert wait(b"", "soon") == 5.0
    assert wait(b"", "-3") == 5.0
    assert wait(b"", "1e9") == 3600.0


@pytest.mark.parametrize(
    "is_ours, told",
    [
        (True, "[about your own words: the plan]\nwhat of it?"),
        (False, "[in reply to @eve:x: the plan]\nwhat of it?"),
    ],
)
def test_what_is_replied_to_is_quoted(is_ours: bool, told: str) -> None:
    """Also the agent's own words: which of them is meant, only the person knows."""
    quoted = Quoted("$1", is_ours=is_ours, who="@eve:x", text="the plan")
    event = RoomEvent(RoomEventKind.MESSAGE, "!r", "$2", text="what of it?", quoted=quoted)
    assert said(event) == told
