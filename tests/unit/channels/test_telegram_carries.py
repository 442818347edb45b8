"""Whatever a Telegram update can carry is read, or told to be unreadable, by the Bot API's types."""

from __future__ import annotations

import datetime as dt
import inspect
import random
import types
import typing
from collections.abc import Iterator
from typing import Any

import pytest
import telegram
from telegram.constants import MessageEntityType

from agentsup.catalogue import words
from agentsup.channels.core.receiving import rows
from agentsup.channels.telegram import content, messages
from agentsup.channels.telegram.content import BotUser
from agentsup.channels.telegram.event import UpdateEvent, UpdateKind, read
from agentsup.channels.telegram.messages import unreadable_text

ME = BotUser(777, "bob_bot")
ANN = {"id": 11, "is_bot": False, "first_name": "Ann"}


def message(**fields: Any) -> dict[str, Any]:
    frame = {"message_id": 5, "date": 1_700_000_000, "chat": {"id": 11, "type": "private"}}
    return {"update_id": 1, "message": {**frame, "from": ANN, **fields}}


def event_of(**fields: Any) -> UpdateEvent:
    return read(message(**fields), ME)


def said(**fields: Any) -> str:
    return messages.said([event_of(**fields)], ME.username)


# -- every type of the Bot API that python-telegram-bot knows ----------------------------------------


def sample(kind: Any, depth: int = 0) -> Any:
    """A value of that type, with all that it must have."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return sample(next(each for each in args if each is not type(None)), depth)
    if origin is not None and args:  # a sequence
        return [sample(args[0], depth)]
    if isinstance(kind, (str, typing.ForwardRef)):
        name = kind if isinstance(kind, str) else kind.__forward_arg__
        return sample(getattr(telegram, name.partition(" ")[0], str), depth)
    if isinstance(kind, type) and issubclass(kind, telegram.TelegramObject):
        return fields_of(kind, depth + 1)
    if kind in (bool, float, int):
        return kind(1)
    if kind in (dt.datetime, dt.timedelta):
        return 1_700_000_000
    return "some words"


def fields_of(kind: type, depth: int) -> dict[str, Any]:
    wanted = {}
    for name, each in parameters(kind):
        if each.default is inspect.Parameter.empty and depth < 6:
            wanted["from" if name == "from_user" else name] = sample(each.annotation, depth)
    return wanted


def parameters(kind: type) -> Iterator[tuple[str, inspect.Parameter]]:
    for name, each in inspect.signature(kind.__init__).parameters.items():  # type: ignore[misc]
        if name not in ("self", "api_kwargs"):
            yield name, each


MESSAGE_FIELDS = {
    "from" if name == "from_user" else name: each.annotation
    for name, each in parameters(telegram.Message)
}
CONTENT = sorted(MESSAGE_FIELDS.keys() - content.FRAME - content.SERVICE)
ELSEWHERE = sorted(
    {name for name, _ in parameters(telegram.ExternalReplyInfo)}
    - {"origin", "chat", "message_id", "link_preview_options", "has_media_spoiler"}
)


def of_field(name: str) -> dict[str, Any]:
    return {name: sample(MESSAGE_FIELDS[name])}


@pytest.mark.parametrize("name", CONTENT)
def test_content_of_every_kind_is_read_or_told(name: str) -> None:
    event = event_of(**of_field(name))
    if name == "venue":  # comes with the location of the same place
        assert not event.has_content
        return
    assert event.has_content != bool(event.unreadable)
    assert not event.unreadable or unreadable_text(event.unreadable, words())


@pytest.mark.parametrize("name", sorted(MESSAGE_FIELDS.keys() & content.SERVICE))
def test_a_note_of_the_platform_says_nothing(name: str) -> None:
    event = event_of(**of_field(name))
    assert not event.has_content
    assert not event.unreadable


@pytest.mark.parametrize("name", sorted(MESSAGE_FIELDS.keys() & content.FRAME))
def test_what_is_around_a_text_takes_nothing_from_it(name: str) -> None:
    own = {"chat", "from", "date", "message_id", "text", "entities"}
    fields = {} if name in own else of_field(name)
    event = event_of(**{**fields, "text": "the words"})
    assert "the words" in event.text
    assert not event.unreadable


def test_a_kind_that_nobody_knows_yet_is_told() -> None:
    event = event_of(hologram={"file_id": "x"})
    assert event.unreadable == "hologram"
    assert "hologram" in unreadable_text(event.unreadable, words())
    assert not event_of(text="words", hologram={"file_id": "x"}).unreadable
    assert "hologram" in said(text="this", reply_to_message={"message_id": 2, "hologram": {}})


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_reply_across_chats_names_what_it_is_about(name: str) -> None:
    kind = dict(parameters(telegram.ExternalReplyInfo))[name].annotation
    origin = {"type": "user", "date": 1, "sender_user": {"id": 5, "first_name": "Eve"}}
    external = {"origin": origin, name: sample(kind)}
    text = said(text="is this right?", external_reply=external)
    assert text.startswith("[in reply to Eve: ")
    assert text.endswith("]\nis this right?")
    event = event_of(text="is this right?", external_reply=external)
    assert event.quoted is not None
    assert event.quoted.text or event.quoted.files
    assert not event.quoted.message_id


@pytest.mark.parametrize("name", [name for name, _ in parameters(telegram.Update)])
def test_an_update_of_every_kind_is_read_and_kept_as_it_is(name: str) -> None:
    if name == "update_id":
        return
    update: dict[str, Any] = {"update_id": 1, "news": {"unknown": True}}
    update[name] = sample(dict(parameters(telegram.Update))[name].annotation)
    if name == "edited_message":
        update[name]["edit_date"] = 1
    event = read(update, ME)
    known = ("message", "edited_message", "callback_query", "message_reaction", "my_chat_member")
    posts = ("channel_post", "edited_channel_post", "managed_bot")
    assert (event.kind is UpdateKind.OTHER) == (name not in known + posts)
    assert rows.load(rows.written(update)) == update


# -- entities ----------------------------------------------------------------------------------------

SAID_BY_ENTITIES: dict[str, tuple[dict[str, Any], str]] = {
    "text_link": ({"url": "https://example.org/a?x=1"}, "](https://example.org/a?x=1)"),
    "text_mention": ({"user": {"id": 5, "first_name": "Eve"}}, "](tg://user?id=5)"),
    "pre": ({"language": "python"}, "```python\n"),
    "date_time": ({"unix_time": 1_700_000_000}, "2023-11-14 22:13 UTC"),
    "blockquote": ({}, "> "),
    "expandable_blockquote": ({}, "> "),
    "strikethrough": ({}, "~~"),
}
PLACES = ("text", "caption", "quote", "reply", "edit", "elsewhere")


def placed(place: str, text: str, entities: list[dict[str, Any]]) -> str:
    """What the agent reads of a text with entities in that place."""
    both = {"text": text, "entities": entities}
    match place:
        case "text":
            return said(**both)
        case "caption":
            return said(caption=text, caption_entities=entities, photo=sample(list[Any]))
        case "quote":
            return said(text="x", quote=both, reply_to_message={"message_id": 2, "text": "whole"})
        case "reply":
            return said(text="x", reply_to_message={"message_id": 2, **both})
        case "elsewhere":
            return said(text="x", quote=both, external_reply={"origin": {"type": "hidden_user"}})
    body = {**message(**both)["message"], "edit_date": 1_700_000_001}
    return messages.said([read({"update_id": 2, "edited_message": body}, ME)], ME.username)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", [str(each.value) for each in MessageEntityType])
def test_what_an_entity_says_reaches_the_agent(kind: str, place: str) -> None:
    more, expected = SAID_BY_ENTITIES.get(kind, ({}, ""))
    text = "😀 read these words please"
    entity = {"type": kind, "offset": 8, "length": 11, **more}
    read_by_agent = placed(place, text, [entity])
    if place in ("quote", "reply", "elsewhere"):  # a quote stands in one line in brackets
        expected = " ".join(expected.replace("[", "(").replace("]", ")").split())
    assert expected in read_by_agent
    for word in text.split():
        assert word in read_by_agent


def test_the_same_entities_leave_a_plain_text_alone() -> None:
    assert said(text="see https://a.example/", entities=[entity("url", 4, 18)]) == (
        "see https://a.example/"
    )
    shown = entity("text_link", 4, 9, url="https://a.example/")
    assert said(text="see a.example", entities=[shown]) == "see a.example"
    own = entity("text_mention", 0, 3, user={"id": 777})
    assert said(text="Bob, hi", entities=[own]) == "Bob, hi"


def entity(kind: str, offset: int, length: int, **more: Any) -> dict[str, Any]:
    return {"type": kind, "offset": offset, "length": length, **more}


def test_entities_that_are_wrong_cost_no_text() -> None:
    wrong: list[Any] = [
        5,
        {},
        entity("text_link", -1, 3, url="https://x.example"),
        entity("text_link", 2, 10_000, url="https://x.example"),
        entity("text_link", 900, 3, url="https://x.example"),
        {"type": "pre", "offset": "1", "length": 2},
        entity("text_mention", 0, 2, user=7),
        entity("date_time", 0, 2, unix_time=1 << 60),
    ]
    assert said(text="the words", entities=wrong) == "th[e words](https://x.example)"


@pytest.mark.parametrize("seed", range(30))
def test_entities_in_each_other_keep_all_words_in_order(seed: int) -> None:
    chance = random.Random(seed)
    text = "".join(chance.choice("ab 😀\nö") for _ in range(40))
    length = len(text.encode("utf-16-le")) // 2
    entities = []
    for _ in range(6):
        kind = chance.choice([*SAID_BY_ENTITIES])
        offset = chance.randrange(length)
        more = SAID_BY_ENTITIES[kind][0]
        entities.append(entity(kind, offset, chance.randrange(1, length), **more))
    found = iter(said(text=f"x{text}x", entities=entities))
    assert all(character in found for character in f"x{text}x".replace("😀", ""))


# -- rich messages -------------------------------------------------------------------------------------

LEAF = "words that matter"
LISTED = {"label": "1.", "blocks": [{"type": "paragraph", "text": LEAF}]}
PLAIN = (
    *("bold", "italic", "underline", "strikethrough", "spoiler", "marked", "code"),
    *("subscript", "superscript", "a_kind_of_tomorrow"),
)
LINKS: dict[str, dict[str, Any]] = {
    "date_time": {"unix_time": 1, "date_time_format": ""},
    "text_mention": {"user": {"id": 5}},
    "url": {"url": "https://x.example"},
    "email_address": {"email_address": "a@b.example"},
    "phone_number": {"phone_number": "+1"},
    "bank_card_number": {"bank_card_number": "4"},
    "mention": {"username": "eve"},
    "hashtag": {"hashtag": "#x"},
    "cashtag": {"cashtag": "$X"},
    "bot_command": {"bot_command": "/x"},
    "anchor_link": {"anchor_name": "x"},
    "reference": {"name": "x"},
    "reference_link": {"reference_name": "x"},
}
RICH_TEXTS: list[Any] = [
    LEAF,
    [LEAF],
    *(
        {"type": kind, "text": ["words ", {"type": "italic", "text": "that matter"}], **more}
        for kind, more in LINKS.items()
    ),
    *({"type": kind, "text": ["words ", {"text": "that matter"}]} for kind in PLAIN),
    {"type": "custom_emoji", "custom_emoji_id": "1", "alternative_text": LEAF},
    {"type": "mathematical_expression", "expression": LEAF},
]
FILE = {"file_id": "F", "file_unique_id": "U", "width": 1, "height": 1, "duration": 1}
CAPTION = {"text": LEAF, "credit": "Eve"}
RICH_BLOCKS: list[dict[str, Any]] = [
    {"type": "paragraph", "text": LEAF},
    {"type": "heading", "text": LEAF, "size": 2},
    {"type": "pre", "text": LEAF, "language": "python"},
    {"type": "footer", "text": LEAF},
    {"type": "mathematical_expression", "expression": LEAF},
    {"type": "list", "items": [LISTED]},
    {"type": "list", "items": [{**LISTED, "label": "•", "has_checkbox": True}]},
    {"type": "blockquote", "blocks": [{"type": "paragraph", "text": LEAF}], "credit": "Eve"},
    {"type": "pullquote", "text": LEAF, "credit": "Eve"},
    {"type": "table", "cells": [[{"text": LEAF, "is_header": True}, {}], [{"text": "x"}]]},
    {"type": "table", "cells": [], "caption": LEAF},
    {"type": "details", "summary": LEAF, "blocks": []},
    {"type": "details", "summary": "x", "blocks": [{"type": "paragraph", "text": LEAF}]},
    {"type": "collage", "blocks": [], "caption": CAPTION},
    {"type": "slideshow", "blocks": [{"type": "paragraph", "text": LEAF}]},
    {"type": "map", "location": {"latitude": 1, "longitude": 2}, "caption": CAPTION},
    {"type": "photo", "photo": [FILE], "caption": CAPTION},
    {"type": "thinking", "text": LEAF},
    {"type": "a_kind_of_tomorrow", "text": LEAF},
    {"type": "a_kind_of_tomorrow", "blocks": [{"type": "paragraph", "text": LEAF}]},
    *(
        {"type": kind, kind: FILE, "caption": CAPTION}
        for kind in ("animation", "audio", "video", "voice_note", "document")
    ),
]


def rich(*blocks: Any) -> UpdateEvent:
    return event_of(rich_message={"blocks": list(blocks)})


@pytest.mark.parametrize("block", RICH_BLOCKS, ids=lambda block: block["type"])
def test_a_block_of_every_kind_is_read(block: dict[str, Any]) -> None:
    event = rich(block)
    assert LEAF in event.text
    has_file = block["type"] in ("photo", "animation", "audio", "video", "voice_note", "document")
    assert [each.file_id for each in event.attachments] == ["F"] * has_file
    assert not event.unreadable


@pytest.mark.parametrize("text", RICH_TEXTS, ids=str)
def test_a_rich_text_of_every_kind_is_read(text: Any) -> None:
    plain = rich({"type": "paragraph", "text": ["so ", text, "!"]}).text
    assert LEAF in plain.replace("`", "").replace("~~", "")
    assert LEAF in said(
        text="x",
        reply_to_message={
            "message_id": 2,
            "rich_message": {"blocks": [{"type": "paragraph", "text": text}]},
        },
    ).replace("`", "").replace("~~", "")


def test_a_rich_message_is_markdown() -> None:
    cells = [[{"text": "a"}, {"text": "b|c"}], [{"text": "1", "colspan": 2}]]
    items = [
        {"label": "1.", "blocks": [{"type": "paragraph", "text": "one"}]},
        {
            "label": "2.",
            "blocks": [
                {"type": "paragraph", "text": "two"},
                {
                    "type": "list",
                    "items": [{"label": "•", "blocks": [{"type": "paragraph", "text": "in"}]}],
                },
            ],
        },
    ]
    event = rich(
        {"type": "heading", "text": "Plan", "size": 2},
        {"type": "paragraph", "text": "\u200b"},
        {"type": "list", "items": items},
        {"type": "table", "cells": cells},
    )
    assert event.text == (
        "## Plan\n\n1. one\n2. two\n  - in\n\n| a | b\\|c |\n| --- | --- |\n| 1 |  |"
    )


@pytest.mark.parametrize("kind", ["paragraph", "heading", "list", "blockquote"])
def test_a_stop_is_seen_in_every_block(kind: str) -> None:
    text = {"type": "bot_command", "text": "/stop", "bot_command": "/stop"}
    inner = {"type": "paragraph", "text": text}
    block: dict[str, Any] = {"type": kind, "text": text, "size": 1}
    if kind == "list":
        block = {"type": kind, "items": [{"label": "1.", "blocks": [inner]}]}
    if kind == "blockquote":
        block = {"type": kind, "blocks": [inner]}
    assert rich(block).is_stop


def test_a_rich_command_names_its_bot() -> None:
    assert rich({"type": "paragraph", "text": "/ping@bob_bot x"}).addressed
    assert rich({"type": "paragraph", "text": "/ping@other_bot x"}).misaddressed


def test_a_mention_in_blocks_addresses_the_bot() -> None:
    named = {"type": "mention", "text": "@Bob_Bot", "username": "bob_bot"}
    assert rich({"type": "paragraph", "text": [named, " hi"]}).addressed
    by_name = {"type": "text_mention", "text": "Bob", "user": {"id": 777}}
    assert rich({"type": "list", "items": [{"text": ["hi ", by_name]}]}).addressed
    assert not rich({"type": "paragraph", "text": "@bob_bottle, a@bob_bot"}).addressed


def test_blocks_that_nobody_knows_are_named_to_the_agent_and_told_to_the_person() -> None:
    event = rich({"type": "paragraph", "text": "see"}, {"type": "hologram", "x": 1})
    assert event.unreadable == "hologram"
    assert event.text.startswith("see\n\n[a part of the kind “hologram”")
    assert not rich({"type": "hologram", "x": 1}).has_content
    broken: list[dict[str, Any]] = [{}, {"blocks": []}, {"blocks": "x"}, {"blocks": [{}]}]
    for each in [*broken, {"blocks": [5]}]:
        assert event_of(rich_message=each).unreadable


def test_deep_blocks_end_somewhere() -> None:
    block: dict[str, Any] = {"type": "paragraph", "text": "in"}
    for _ in range(300):
        block = {"type": "blockquote", "blocks": [block]}
    assert rich(block).unreadable
    text: Any = "in"
    for _ in range(300):
        text = {"type": "bold", "text": text}
    assert rich({"type": "paragraph", "text": text}).unreadable


# -- replies -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["document", "audio", "voice", "video", "photo", "sticker"])
def test_a_file_that_is_replied_to_is_named_and_fetched(kind: str) -> None:
    reply = {"message_id": 2, "from": {"id": 12, "first_name": "Eve"}, **of_field(kind)}
    event = event_of(text="summarise this", reply_to_message=reply)
    (file,) = event.quoted_attachments
    assert not event.attachments
    assert messages.said([event], "") == f"[in reply to Eve: (with {file.name})]\nsummarise this"
    own = {**reply, "from": {"id": 777}, "caption": "the chart"}
    assert said(text="and?", reply_to_message=own) == (
        f"[about your own words: the chart (with {file.name})]\nand?"
    )


def test_a_reply_to_what_the_bot_cant_see_says_so() -> None:
    assert said(text="why?", external_reply={"origin": {"type": "hidden_user"}}).startswith(
        "[in reply to somebody: (a message of another chat"
    )
    assert "a story" in said(text="why?", reply_to_story={"chat": {"title": "News"}, "id": 1})


# -- topics ------------------------------------------------------------------------------------------


def test_a_first_message_in_a_private_topic_opens_it() -> None:
    assert event_of(text="hi", message_thread_id=9).topic_id == 9
    made = {"message_id": 9, "forum_topic_created": {"name": "T"}}
    assert event_of(text="hi", message_thread_id=9, reply_to_message=made).topic_id == 9
    reply = {"message_id": 9, "text": "before"}
    assert event_of(text="hi", message_thread_id=9, reply_to_message=reply).topic_id is None
