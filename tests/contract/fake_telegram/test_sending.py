"""Sending and editing by the rules: lengths in UTF-16 units, entities, markup, keyboards."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.fake_telegram.conftest import FakeTelegramFixture

ASTRAL = "\U0001f680"


async def test_length_is_counted_in_utf16_units(place: FakeTelegramFixture) -> None:
    assert (await place.send(ASTRAL * 2048))["ok"]
    code, why = await place.refusal("sendMessage", chat_id=place.ann, text=ASTRAL * 2048 + "x")
    assert (code, why) == (400, "Bad Request: message is too long")
    assert (await place.send("x" * 4096))["ok"]


async def test_length_counts_after_the_markup_is_read(place: FakeTelegramFixture) -> None:
    answer = await place.send(f"<b>{'x' * 4096}</b>", parse_mode="HTML")
    assert answer["result"]["entities"] == [{"type": "bold", "offset": 0, "length": 4096}]


@pytest.mark.parametrize(
    "text, why",
    [("", "message text is empty"), (" \n ", "text must be non-empty")],
)
async def test_empty_text(place: FakeTelegramFixture, text: str, why: str) -> None:
    assert await place.refusal("sendMessage", chat_id=place.ann, text=text) == (
        400,
        f"Bad Request: {why}",
    )


@pytest.mark.parametrize(
    "entity, why",
    [
        ({"type": "bold", "offset": 0, "length": 4}, "ends after the end of the text"),
        ({"type": "bold", "offset": 9, "length": 1}, "begins after the end of the text"),
        ({"type": "bold", "offset": 2, "length": 1}, "begins in a middle of a UTF-16 symbol"),
        ({"type": "bold", "offset": 0, "length": 2}, "ends in a middle of a UTF-16 symbol"),
        ({"type": "bold", "offset": -1, "length": 2}, "incorrect offset -1"),
        ({"type": "loud", "offset": 0, "length": 1}, "can't parse MessageEntity"),
        ({"type": "text_link", "offset": 0, "length": 1}, "can't parse MessageEntity"),
    ],
)
async def test_entities_lie_inside_the_text(
    place: FakeTelegramFixture, entity: dict[str, Any], why: str
) -> None:
    code, told = await place.refusal(
        "sendMessage", chat_id=place.ann, text=f"a{ASTRAL}", entities=[entity]
    )
    assert code == 400
    assert why in told


@pytest.mark.parametrize(
    "mode, text, shown, kinds",
    [
        ("HTML", "<b>a</b> &lt;&amp; <i>b<u>c</u></i>", "a <& bc", ["bold", "italic", "underline"]),
        ("HTML", '<pre><code class="language-py">x</code></pre>', "x", ["pre"]),
        ("HTML", '<a href="https://x.org/?a=1&amp;b">l</a>', "l", ["text_link"]),
        ("HTML", '<span class="tg-spoiler">s</span>', "s", ["spoiler"]),
        ("HTML", "<blockquote expandable>q</blockquote>", "q", ["expandable_blockquote"]),
        ("MarkdownV2", "*b* _i_ __u__ ~s~ ||p||", "b i u s p",
         ["bold", "italic", "underline", "strikethrough", "spoiler"]),
        ("MarkdownV2", "a\\.b `c.d` [l](https://x.org/\\))", "a.b c.d l", ["code", "text_link"]),
        ("MarkdownV2", "```py\nx = 1!\n```", "x = 1!", ["pre"]),
        ("MarkdownV2", ">one\n>two\nthree", "one\ntwo\nthree", ["blockquote"]),
        ("MarkdownV2", ">one\n>two||", "one\ntwo", ["expandable_blockquote"]),
        ("MarkdownV2", "*a _b_ c*", "a b c", ["bold", "italic"]),
    ],
)  # fmt: skip
async def test_markup_becomes_text_and_entities(
    place: FakeTelegramFixture, mode: str, text: str, shown: str, kinds: list[str]
) -> None:
    answer = await place.send(text, parse_mode=mode)
    assert answer["ok"], answer
    assert answer["result"]["text"] == shown
    assert [entity["type"] for entity in answer["result"]["entities"]] == kinds


@pytest.mark.parametrize(
    "mode, text, why",
    [
        ("HTML", "<b>a", "Can't find end tag corresponding to start tag \"b\""),
        ("HTML", "<b>a</i>", 'Unmatched end tag at byte offset 4, expected "</b>", found "</i>"'),
        ("HTML", "<h1>a</h1>", 'Unsupported start tag "h1" at byte offset 0'),
        ("HTML", "ä <br/>", 'Unsupported start tag "br/" at byte offset 3'),
        ("HTML", "a < b", 'Unsupported start tag "" at byte offset 2'),
        ("HTML", "a</b>", "Unexpected end tag at byte offset 1"),
        ("HTML", "<span>a</span>", 'Tag "span" must have class "tg-spoiler" at byte offset 0'),
        ("MarkdownV2", "a.b", "Character '.' is reserved and must be escaped with the preceding '\\'"),
        ("MarkdownV2", "1 - 2", "Character '-' is reserved and must be escaped with the preceding '\\'"),
        ("MarkdownV2", "a *b", "Can't find end of Bold entity at byte offset 2"),
        ("MarkdownV2", "`b", "Can't find end of Code entity at byte offset 0"),
        ("MarkdownV2", "[a](http://x", "Can't find end of a URL at byte offset 4"),
        ("MarkdownV2", "*_a*_", "Can't find end of Italic entity"),
    ],
)  # fmt: skip
async def test_wrong_markup_is_refused(
    place: FakeTelegramFixture, mode: str, text: str, why: str
) -> None:
    code, told = await place.refusal("sendMessage", chat_id=place.ann, text=text, parse_mode=mode)
    assert code == 400
    # An unclosed italic inside bold makes the star a new bold; any complaint will do there.
    wanted = "Can't find end of" if text == "*_a*_" else why
    assert told.startswith(f"Bad Request: can't parse entities: {wanted}")


async def test_unknown_parse_mode(place: FakeTelegramFixture) -> None:
    assert await place.refusal("sendMessage", chat_id=place.ann, text="x", parse_mode="wiki") == (
        400,
        "Bad Request: unsupported parse_mode",
    )


def _keyboard(*rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"inline_keyboard": list(rows)}


@pytest.mark.parametrize(
    "markup, why",
    [
        (_keyboard([{"text": "a", "callback_data": "ä" * 33}]), "BUTTON_DATA_INVALID"),
        (_keyboard([{"text": "a"}]), "Text buttons are unallowed in the inline keyboard"),
        (_keyboard([{"callback_data": "a"}]), 'Can\'t find field "text"'),
        (_keyboard([{"text": " ", "callback_data": "a"}]), "button text must be non-empty"),
        ({"inline_keyboard": "x"}, "must be an Array of Arrays"),
        (_keyboard([{"text": "a", "callback_data": "a"}] * 101), "reply markup is too long"),
        ("{", "can't parse reply keyboard markup JSON object"),
        ("[]", "object expected as reply markup"),
        ({"keyboard": "x"}, "must be an Array of Arrays"),
        ({"keyboard": [[1]]}, "KeyboardButton must be an Object"),
        ({"keyboard": [[" "]]}, "keyboard button text must be non-empty"),
    ],
)
async def test_keyboards_are_checked(place: FakeTelegramFixture, markup: Any, why: str) -> None:
    code, told = await place.refusal(
        "sendMessage", chat_id=place.ann, text="x", reply_markup=markup
    )
    assert code == 400
    assert why in told


async def test_a_keyboard_at_the_limits_passes(place: FakeTelegramFixture) -> None:
    rows = [[{"text": "a", "callback_data": "ä" * 32}] for _ in range(100)]
    answer = await place.send("x", reply_markup=_keyboard(*rows))
    assert len(answer["result"]["reply_markup"]["inline_keyboard"]) == 100


@pytest.mark.parametrize(
    "markup",
    [
        {"force_reply": True, "input_field_placeholder": "Name"},
        {"keyboard": [["tea", {"text": "coffee"}]], "one_time_keyboard": True},
        {"remove_keyboard": True},
    ],
)
async def test_what_is_asked_of_a_persons_input_is_for_people_alone(
    place: FakeTelegramFixture, markup: dict[str, Any]
) -> None:
    sent = (await place.send("well?", reply_markup=markup))["result"]
    assert "reply_markup" not in sent
    record = (await place.people.messages(place.chat))[-1]
    assert record["input"].keys() == markup.keys()
    target = {"chat_id": place.ann, "message_id": sent["message_id"]}
    for method, fields in (("editMessageText", {"text": "so?"}), ("editMessageReplyMarkup", {})):
        told = await place.refusal(method, **target, **fields, reply_markup=markup)
        assert told == (400, "Bad Request: inline keyboard expected")
    assert (await place.call("editMessageText", **target, text="so?"))["ok"]


async def test_edit_needs_an_own_message_of_the_kind(place: FakeTelegramFixture) -> None:
    theirs = await place.people.say(place.chat, "mine")
    edit = {"chat_id": place.ann, "text": "x"}
    assert await place.refusal("editMessageText", **edit, message_id=theirs) == (
        400,
        "Bad Request: message can't be edited",
    )
    assert await place.refusal("editMessageText", **edit, message_id=99) == (
        400,
        "Bad Request: message to edit not found",
    )
    assert await place.refusal("editMessageText", **edit) == (
        400,
        "Bad Request: message identifier is not specified",
    )
    text = (await place.send("x"))["result"]["message_id"]
    assert await place.refusal(
        "editMessageCaption", chat_id=place.ann, message_id=text, caption="c"
    ) == (400, "Bad Request: there is no caption in the message to edit")


async def test_reactions_of_the_bot(place: FakeTelegramFixture) -> None:
    said = await place.people.say(place.chat, "x")
    target = {"chat_id": place.ann, "message_id": said}
    eyes = [{"type": "emoji", "emoji": "👀"}]
    assert (await place.call("setMessageReaction", **target, reaction=eyes))["ok"]
    (record,) = await place.people.messages(place.chat)
    assert record["reactions"] == {str(place.bot.bot_id): eyes}
    assert (await place.call("setMessageReaction", **target, reaction=[]))["ok"]
    (record,) = await place.people.messages(place.chat)
    assert record["reactions"] == {}
    assert record["reaction_history"] == [["👀"], []]
    odd = [{"type": "emoji", "emoji": "🧨"}]
    assert await place.refusal("setMessageReaction", **target, reaction=odd) == (
        400,
        "Bad Request: REACTION_INVALID",
    )
    two = [*eyes, {"type": "emoji", "emoji": "👍"}]
    assert await place.refusal("setMessageReaction", **target, reaction=two) == (
        400,
        "Bad Request: REACTIONS_TOO_MANY",
    )
    assert await place.refusal(
        "setMessageReaction", chat_id=place.ann, message_id=99, reaction=eyes
    ) == (400, "Bad Request: message to react not found")


async def test_what_a_correct_client_never_sends_is_noted(place: FakeTelegramFixture) -> None:
    assert (await place.send("x", message_tread_id=3))["ok"]
    assert (await place.send("x", disable_notification="maybe"))["ok"]
    many = [{"type": "bold", "offset": n, "length": 1} for n in range(101)]
    assert len((await place.send("x" * 101, entities=many))["result"]["entities"]) == 100
    noted = [one["what"] for one in await place.people.violations()]
    assert "message_tread_id" in noted[0]
    assert "disable_notification" in noted[1]
    assert "100 entities" in noted[2]
    await place.people.act("clear_violations")
    assert await place.people.violations() == []
