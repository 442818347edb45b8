"""Methods that change what is there: edits, deletions, reactions, answers to a button."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from agentsup.fakes.telegram import files
from agentsup.fakes.telegram.checks import checked_keyboard, checked_reactions, checked_text
from agentsup.fakes.telegram.markup import units
from agentsup.fakes.telegram.refusals import bad, refused
from agentsup.fakes.telegram.requests import Call
from agentsup.fakes.telegram.rules import LIMITS
from agentsup.fakes.telegram.world import Json, World

_CONTENT: Final = ("text", "entities", "caption", "caption_entities", "reply_markup")


def _own(world: World, bot: Json, call: Call) -> tuple[Json, Json]:
    """The message to edit with its chat. Raises ``Refused``."""
    chat = world.chat_for(bot, call.args["chat_id"])
    record = world.message(chat, call.number("message_id"))
    if record is None:
        raise refused("no edit")
    if record["by"] != bot["id"]:
        raise refused("cannot edit")
    return chat, record


def _change(world: World, record: Json, content: Json) -> Json:
    """Replace text, caption and keyboard; keep what they were in the history."""
    message = record["message"]
    before = {name: message[name] for name in _CONTENT if name in message}
    if before == content:
        raise refused("not modified")
    world.add_history(record, before)
    for name in _CONTENT:
        message.pop(name, None)
    message |= content
    message["edit_date"] = world.now_s()
    world.put_message(record)
    result: Json = message
    return result


def _keyboard(call: Call) -> Json:
    keyboard = checked_keyboard(call.args.get("reply_markup"))
    return {} if keyboard is None else {"reply_markup": keyboard}


def edit_message_text(world: World, bot: Json, call: Call) -> Json:
    """editMessageText."""
    _, record = _own(world, bot, call)
    text, entities = checked_text(
        call.text("text"), call.text("parse_mode"), call.args.get("entities")
    )
    if "text" not in record["message"]:
        raise refused("no text")
    content: Json = {"text": text}
    if entities:
        content["entities"] = entities[: LIMITS["entities"]]
    return _change(world, record, content | _keyboard(call))


def edit_message_caption(world: World, bot: Json, call: Call) -> Json:
    """editMessageCaption."""
    _, record = _own(world, bot, call)
    if "text" in record["message"]:
        raise refused("no caption")
    caption, entities = checked_text(
        call.text("caption"),
        call.text("parse_mode"),
        call.args.get("caption_entities"),
        limit="caption_units",
        allow_empty=True,
    )
    content: Json = {"caption": caption} if caption else {}
    if caption and entities:
        content["caption_entities"] = entities
    return _change(world, record, content | _keyboard(call))


def edit_message_reply_markup(world: World, bot: Json, call: Call) -> Json:
    """editMessageReplyMarkup; without a markup the keyboard goes away."""
    _, record = _own(world, bot, call)
    message = record["message"]
    content = {name: message[name] for name in _CONTENT[:-1] if name in message}
    return _change(world, record, content | _keyboard(call))


def _delete(world: World, bot: Json, chat: Json, message_id: Any) -> bool:
    record = world.message(chat, message_id)
    if record is None:
        return False
    if world.now_ms() - record["sent_ms"] > LIMITS["delete_s"] * 1000:
        raise refused("too old to delete")
    foreign = record["by"] != bot["id"]
    if foreign and chat["type"] != "private" and not world.is_admin(chat, bot["id"]):
        raise refused("cannot delete")
    record["deleted_ms"] = world.now_ms()
    world.put_message(record)
    return True


def delete_message(world: World, bot: Json, call: Call) -> bool:
    """deleteMessage."""
    chat = world.chat_for(bot, call.args["chat_id"])
    if not _delete(world, bot, chat, call.number("message_id")):
        raise refused("no delete")
    return True


def delete_messages(world: World, bot: Json, call: Call) -> bool:
    """deleteMessages: those that cannot be found are skipped."""
    chat = world.chat_for(bot, call.args["chat_id"])
    for message_id in call.args["message_ids"]:
        _delete(world, bot, chat, message_id)
    return True


def set_message_reaction(world: World, bot: Json, call: Call) -> bool:
    """setMessageReaction."""
    reactions = checked_reactions(call.args.get("reaction") or [])
    chat = world.chat_for(bot, call.args["chat_id"])
    record = world.message(chat, call.number("message_id"))
    if record is None:
        raise refused("no react")
    if reactions:
        record["reactions"][str(bot["id"])] = reactions
    else:
        record["reactions"].pop(str(bot["id"]), None)
    shown = [*record.get("reaction_history", []), [one["emoji"] for one in reactions]]
    record["reaction_history"] = shown[-50:]
    world.put_message(record)
    return True


def answer_callback_query(world: World, bot: Json, call: Call) -> bool:
    """answerCallbackQuery: within a minute, and once."""
    query = world.journal.get("query", call.text("callback_query_id"))
    if query is None or query["bot_id"] != bot["id"] or query["answer"] is not None:
        raise refused("query")
    if world.now_ms() - query["at_ms"] > LIMITS["callback_query_s"] * 1000:
        raise refused("query")
    if units(call.text("text")) > LIMITS["callback_answer_text"]:
        raise refused("answer too long")
    if call.text("url"):
        raise bad("URL_INVALID")
    query["answer"] = {
        "text": call.text("text"),
        "show_alert": bool(call.args.get("show_alert")),
        "at_ms": world.now_ms(),
    }
    world.put("query", query["id"], query)
    return True


def get_file(world: World, bot: Json, call: Call) -> Json:
    """getFile."""
    return files.link(world, bot, call.text("file_id"))


HANDLERS: Final[dict[str, Callable[[World, Json, Call], Any]]] = {
    "edit_message_text": edit_message_text,
    "edit_message_caption": edit_message_caption,
    "edit_message_reply_markup": edit_message_reply_markup,
    "delete_message": delete_message,
    "delete_messages": delete_messages,
    "set_message_reaction": set_message_reaction,
    "answer_callback_query": answer_callback_query,
    "get_file": get_file,
}
