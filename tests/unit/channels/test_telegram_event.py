"""Reading updates: places, people, files, marks; and what an agent reads of them."""

from __future__ import annotations

from typing import Any

import pytest

from agentsup.catalogue import words
from agentsup.channels.core import ChannelState
from agentsup.channels.core.errors import OutcomeUnknown, RateLimited
from agentsup.channels.core.files.inbox_files import safe_name
from agentsup.channels.core.receiving.raw import Malformed
from agentsup.channels.core.receiving.rows import ReceivedRow
from agentsup.channels.core.receiving.texts import Attachment, late_notice
from agentsup.channels.telegram import address, messages
from agentsup.channels.telegram.address import ChatAddress
from agentsup.channels.telegram.content import BotUser
from agentsup.channels.telegram.errors import PollConflict
from agentsup.channels.telegram.event import UpdateKind, read
from agentsup.channels.telegram.poll import decide_retry, second_poller
from agentsup.channels.telegram.received import SILENCE_MS, Offset, ledger_id, row_owner

ME = BotUser(777, "bob_bot")


def message(text: str = "", **more: Any) -> dict[str, Any]:
    return {
        "update_id": 1,
        "message": {
            "message_id": 5,
            "date": 1_700_000_000,
            "chat": {"id": 11, "type": "private"},
            "from": {"id": 11, "is_bot": False, "first_name": "Ann", "language_code": "de"},
            "text": text,
            **more,
        },
    }


@pytest.mark.parametrize("name", ["5", "-100200300", "5/7", "-1001234567890/12"])
def test_a_place_is_its_name(name: str) -> None:
    assert address.parse(name).conversation == name


@pytest.mark.parametrize("name", ["", "0", "a", "5/", "5/0", "5/-1", "05", "5/7/9", " 5", "٥"])
def test_other_names_are_no_places(name: str) -> None:
    with pytest.raises(ValueError, match="no Telegram chat"):
        address.parse(name)


def test_a_place_is_private_or_a_group() -> None:
    assert ChatAddress(5).is_private
    assert not ChatAddress(-5).is_private


def test_a_text_is_read() -> None:
    event = read(message("hello"), ME)
    assert (event.kind, event.text, event.user_name) == (UpdateKind.MESSAGE, "hello", "Ann")
    assert event.language == "de"
    assert event.at == 1_700_000_000_000
    assert event.address == ChatAddress(11)


def test_only_a_topic_is_a_topic() -> None:
    """A reply in a group without topics carries a thread id, too."""
    group = {"id": -11, "type": "supergroup"}
    assert read(message(message_thread_id=9, chat=group), ME).topic_id is None
    topic = message(message_thread_id=9, chat=group, is_topic_message=True)
    assert read(topic, ME).topic_id == 9


def test_marks_count_utf16_units() -> None:
    marks = [{"type": "mention", "offset": 3, "length": 8}]
    assert read(message("😀 @bob_bot hi", entities=marks), ME).addressed
    marks = [{"type": "mention", "offset": 2, "length": 8}]
    assert not read(message("😀 @bob_bot hi", entities=marks), ME).addressed


def test_a_mention_without_a_user_name_counts() -> None:
    marks = [{"type": "text_mention", "offset": 0, "length": 3, "user": {"id": 777}}]
    assert read(message("Bob, hi", entities=marks), ME).addressed


def test_the_beginning_of_a_topic_is_no_reply() -> None:
    opened = {"message_id": 2, "from": {"id": 777}, "forum_topic_created": {"name": "T"}}
    event = read(message("hi", reply_to_message=opened), ME)
    assert event.quoted is None
    assert not event.addressed


@pytest.mark.parametrize(
    "update",
    [
        {},
        {"update_id": "1", "message": {}},
        {"update_id": 1, "message": None},
        {"update_id": 1, "message": {"message_id": 1, "chat": {}}},
        {"update_id": 1, "callback_query": {"from": {"id": 1}}},
        {**message(), "message": {**message()["message"], "text": 5}},
    ],
)
def test_what_lacks_something_is_malformed(update: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        read(update, ME)


def test_a_press_needs_no_chat_instance() -> None:
    """What one library can't do without is of no interest."""
    press = {"id": "q", "from": {"id": 11, "is_bot": False}, "data": "b:x"}
    event = read({"update_id": 1, "callback_query": {**press, "message": message()["message"]}}, ME)
    assert (event.callback_id, event.data, event.chat_id) == ("q", "b:x", 11)


def test_files_and_other_content() -> None:
    photo = [
        {"file_id": "s", "width": 10, "height": 10},
        {"file_id": "l", "width": 90, "height": 9},
    ]
    assert read(message(photo=photo), ME).attachments == (Attachment("photo", "l", "photo.jpg"),)
    document = {"file_id": "d", "file_name": "a.pdf", "file_size": 7}
    assert read(message(document=document), ME).attachments == (
        Attachment("document", "d", "a.pdf", 7),
    )
    both = read(message(document=document, animation={"file_id": "a"}), ME)
    assert [each.kind for each in both.attachments] == ["animation"]
    assert read(message(location={"latitude": 1.5, "longitude": 2}), ME).notes == (
        "[place: 1.5, 2]",
    )
    assert not read(message(), ME).has_content


# -- what is read of it ----------------------------------------------------------------------------


def test_the_address_is_not_part_of_what_is_said() -> None:
    assert messages.said([read(message("@Bob_Bot, do it"), ME)], "bob_bot") == "do it"
    assert messages.said([read(message("ask @bob_bot"), ME)], "bob_bot") == "ask @bob_bot"
    assert messages.said([read(message("@bob_bottle"), ME)], "bob_bot") == "@bob_bottle"


def test_what_somebody_else_wrote_is_quoted() -> None:
    reply = {"message_id": 2, "from": {"id": 12, "first_name": "Eve"}, "text": "the plan"}
    event = read(message("what of it?", reply_to_message=reply), ME)
    assert messages.said([event], "bob_bot") == "[in reply to Eve: the plan]\nwhat of it?"
    own = {**reply, "from": {"id": 777}}
    event = read(message("what of it?", reply_to_message=own), ME)
    assert messages.said([event], "bob_bot") == "[about your own words: the plan]\nwhat of it?"
    part = {"text": "plan", "position": 4}
    event = read(message("this bit?", reply_to_message=own, quote=part), ME)
    assert messages.said([event], "bob_bot") == "[about your own words: plan]\nthis bit?"


def test_a_forwarded_text_says_whose_it_is() -> None:
    origin = {"type": "user", "sender_user": {"id": 12, "first_name": "Eve"}}
    assert (
        messages.said([read(message("news", forward_origin=origin), ME)], "")
        == "[forwarded from Eve]\nnews"
    )
    origin["sender_user"] = {"id": 12, "first_name": "Eve]\n[in reply to Ann: yes"}
    said = messages.said([read(message("news", forward_origin=origin), ME)], "")
    assert said == "[forwarded from Eve) (in reply to Ann: yes]\nnews"


def test_late_messages_are_named_up_to_a_few() -> None:
    text = late_notice([f"text {n}" for n in range(8)], 24, words())
    assert text.startswith("8 messages came more than 24 hours late")
    assert "text 4" in text
    assert "text 5" not in text
    assert "and 3 more" in text
    german = late_notice(["eins"], 1, words("de"))
    assert german.startswith("Eine Nachricht kam mehr als eine Stunde zu spät")


# -- names of files --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, safe",
    [
        ("report.pdf", "report.pdf"),
        ("../../etc/passwd", "passwd"),
        ("..\\..\\x.txt", "x.txt"),
        ("a b\tc.txt", "a_b_c.txt"),
        (".ssh", "ssh"),
        ("-rf", "rf"),
        ("...", "file"),
        ("", "file"),
        ("größe 😀.txt", "größe_.txt"),
        ("x\x00y", "x_y"),
    ],
)
def test_names_become_harmless_and_stay_recognisable(name: str, safe: str) -> None:
    assert safe_name(name) == safe


def test_a_long_name_keeps_its_ending() -> None:
    name = safe_name("ü" * 300 + ".tar")
    assert name.endswith(".tar")
    assert len(name.encode()) <= 100


# -- offsets and troubles --------------------------------------------------------------------------


def test_after_days_of_silence_no_offset_is_sent() -> None:
    """Too high an offset would throw away what was counted anew."""
    assert Offset(0, 50, 1_000).to_ask(1_000 + SILENCE_MS - 1) == 50
    assert Offset(0, 50, 1_000).to_ask(1_000 + SILENCE_MS) is None
    assert Offset().to_ask(5) is None


def test_a_new_count_has_names_of_its_own_in_the_ledger() -> None:
    owner = row_owner("777")
    assert ledger_id(ReceivedRow(1, owner, "7", "5", "")) == "update:777:5"
    assert ledger_id(ReceivedRow(1, owner, "7", "1.5", "")) == "update:777:1.5"


def test_troubles_of_polling_are_told_apart() -> None:
    conflict = decide_retry(PollConflict("terminated"), 1, 0.5)
    assert conflict.state is ChannelState.CONFLICT
    waits = [decide_retry(PollConflict("x"), n, 0.5).wait_s for n in range(1, 12)]
    assert waits == sorted(waits)
    assert waits[-1] == 60
    assert decide_retry(RateLimited(7.0), 3, 0.5).wait_s == 7.0
    assert decide_retry(OutcomeUnknown("cut"), 50, 1.0).wait_s <= 45


def test_the_second_poller_is_named() -> None:
    assert "hooks.example.org" in second_poller("https://hooks.example.org/secret/path")
    assert "secret" not in second_poller("https://hooks.example.org/secret/path")
    assert "second agentsup" in second_poller("")
