"""Methods that put something into a chat: messages, files, albums, drafts, chat actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from agentsup.fakes.telegram import files
from agentsup.fakes.telegram.checks import checked_markup, checked_text, keys_of
from agentsup.fakes.telegram.refusals import refused
from agentsup.fakes.telegram.requests import Call
from agentsup.fakes.telegram.rules import CHAT_ACTIONS, LIMITS
from agentsup.fakes.telegram.world import Json, World


def thread_of(world: World, bot: Json, chat: Json, thread_id: int) -> int:
    """The topic a message goes to; 0 for none. Raises ``Refused`` for a topic that is not there."""
    if thread_id <= 0:
        return 0
    is_forum = chat.get("is_forum") or (chat["type"] == "private" and bot["has_topics_enabled"])
    if not is_forum:
        return 0
    topic = chat["topics"].get(str(thread_id))
    if topic is None:
        raise refused("no thread")
    if topic["is_closed"] and not world.is_admin(chat, bot["id"]):
        raise refused("topic closed")
    return thread_id


def _reply(world: World, bot: Json, chat: Json, call: Call) -> Json:
    parameters = call.args.get("reply_parameters")
    if not parameters:
        return {}
    if not isinstance(parameters, dict):
        raise refused("reply object")
    target = chat
    if parameters.get("chat_id"):
        target = world.chat_for(bot, parameters["chat_id"], write=False)
    found = world.message(target, parameters.get("message_id"))
    if found is None:
        if parameters.get("allow_sending_without_reply"):
            return {}
        raise refused("no reply")
    quoted = {k: v for k, v in found["message"].items() if k != "reply_to_message"}
    return {"reply_to_message": quoted}


def _send(world: World, bot: Json, call: Call, content: Json) -> Json:
    chat = world.chat_for(bot, call.args["chat_id"])
    thread_id = thread_of(world, bot, chat, call.number("message_thread_id"))
    content = _reply(world, bot, chat, call) | content
    keyboard, asked = checked_markup(call.args.get("reply_markup"))
    if keyboard is not None:
        content["reply_markup"] = keyboard
    if asked is not None and any("request_managed_bot" in key for key in keys_of(asked)):
        if chat["type"] != "private":
            raise refused("key for bots")
        if not bot.get("can_manage_bots"):
            raise refused("no manager")
    record = world.new_message(chat, world.bot_user(bot), content, thread_id)
    if asked is not None:  # only people's programs see it, never a bot
        record["input"] = asked
        world.put_message(record)
    chat["last_bot"] = bot["id"]
    world.end_drafts(chat)
    world.put("chat", chat["key"], chat)
    result: Json = record["message"]
    return result


def _caption(call: Call) -> Json:
    text = call.text("caption")
    caption, entities = checked_text(
        text,
        call.text("parse_mode"),
        call.args.get("caption_entities"),
        limit="caption_units",
        allow_empty=True,
    )
    content: Json = {}
    if caption:
        content["caption"] = caption
        if entities:
            content["caption_entities"] = entities
    return content


def send_message(world: World, bot: Json, call: Call) -> Json:
    """sendMessage."""
    world.chat_for(bot, call.args["chat_id"])
    text, entities = checked_text(
        call.text("text"), call.text("parse_mode"), call.args.get("entities")
    )
    content: Json = {"text": text}
    if entities:
        content["entities"] = entities[: LIMITS["entities"]]
    return _send(world, bot, call, content)


def _media_handler(kind: str) -> Callable[[World, Json, Call], Json]:
    def send(world: World, bot: Json, call: Call) -> Json:
        world.chat_for(bot, call.args["chat_id"])
        caption = _caption(call)
        record = files.resolve(world, bot, call, kind, call.args[kind])
        content = files.as_content(record, bot["id"], call.number("duration"))
        return _send(world, bot, call, content | caption)

    return send


def send_media_group(world: World, bot: Json, call: Call) -> list[Json]:
    """sendMediaGroup: 2 to 10 photos, or 2 to 10 documents."""
    world.chat_for(bot, call.args["chat_id"])
    media = call.args["media"]
    if not isinstance(media, list):
        raise refused("album", why="expected an Array of InputMedia")
    if not LIMITS["album_min"] <= len(media) <= LIMITS["album_max"]:
        few = len(media) < LIMITS["album_min"]
        why = "not enough" if few else "too many"
        raise refused("album", why=f"{why} messages to send as an album")
    contents: list[Json] = []
    kinds = set()
    for item in media:
        if not isinstance(item, dict):
            raise refused("media", why="expected an Object")
        kind = item.get("type")
        if kind not in {"photo", "document"}:
            raise refused("media", why="type must be specified")
        kinds.add(kind)
        part = Call(call.method, {}, call.files, {**item})
        found = files.resolve(world, bot, part, kind, item.get("media", ""))
        contents.append(files.as_content(found, bot["id"], 0) | _caption(part))
    if len(kinds) > 1:
        raise refused("album", why="Can't use the media of the specified type in the album")
    group_id = str(world.number("media_group", 13_000_000_000_000_001))
    return [_send(world, bot, call, {"media_group_id": group_id} | one) for one in contents]


def send_message_draft(world: World, bot: Json, call: Call) -> bool:
    """sendMessageDraft: shown for half a minute or until a message comes."""
    chat = world.chat_for(bot, call.args["chat_id"])
    if chat["type"] != "private":
        raise refused("draft peer")
    draft_id = call.number("draft_id")
    if draft_id == 0:
        raise refused("draft id")
    text, entities = checked_text(
        call.text("text"), call.text("parse_mode"), call.args.get("entities"), allow_empty=True
    )
    thread_id = thread_of(world, bot, chat, call.number("message_thread_id"))
    key = f"{chat['key']}/{thread_id}/{draft_id}"
    now_ms = world.now_ms()
    draft = world.journal.get("draft", key) or {
        "key": key,
        "chat": chat["key"],
        "draft_id": draft_id,
        "message_thread_id": thread_id,
        "first_ms": now_ms,
        "count": 0,
    }
    draft |= {"text": text, "entities": entities, "at_ms": now_ms, "is_shown": True}
    draft |= {"bot": bot["id"], "can_stop": bool(call.args.get("can_stop"))}
    world.add_draft_text(draft, text)
    world.put_draft(draft)
    return True


def send_chat_action(world: World, bot: Json, call: Call) -> bool:
    """sendChatAction."""
    action = call.text("action")
    if action.lower() not in CHAT_ACTIONS:
        raise refused("action")
    chat = world.chat_for(bot, call.args["chat_id"])
    thread_id = thread_of(world, bot, chat, call.number("message_thread_id"))
    count = (world.journal.get("action", chat["key"]) or {"count": 0})["count"] + 1
    shown = {
        "chat": chat["key"],
        "action": action,
        "message_thread_id": thread_id,
        "at_ms": world.now_ms(),
        "count": count,
    }
    world.put("action", chat["key"], shown)
    return True


HANDLERS: Final[dict[str, Callable[[World, Json, Call], Any]]] = {
    "send_message": send_message,
    "send_document": _media_handler("document"),
    "send_photo": _media_handler("photo"),
    "send_voice": _media_handler("voice"),
    "send_media_group": send_media_group,
    "send_message_draft": send_message_draft,
    "send_chat_action": send_chat_action,
}
