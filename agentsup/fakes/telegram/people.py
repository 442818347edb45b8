"""Actions of people, through the control plane: talk, press, react, join, block, migrate.

Each action is a function ``(world, body, upload)``; who hears of it is decided as Telegram does
(privacy mode, administrators, allowed_updates). ``ACTIONS`` is the table of the control routes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from agentsup.fakes.telegram import files
from agentsup.fakes.telegram.checks import checked_entities
from agentsup.fakes.telegram.markup import units
from agentsup.fakes.telegram.methods.chats import add_topic, member
from agentsup.fakes.telegram.refusals import bad, refused
from agentsup.fakes.telegram.requests import Upload
from agentsup.fakes.telegram.rules import REACTIONS
from agentsup.fakes.telegram.world import Json, World

_FOUND: Final = (
    ("bot_command", re.compile(r"(?<![\w/@])/[A-Za-z0-9_]{1,64}(?:@[A-Za-z0-9_]{3,32})?")),
    ("mention", re.compile(r"(?<![\w@])@[A-Za-z0-9_]{3,32}\b")),
    ("url", re.compile(r"https?://[^\s<>]+")),
    ("email", re.compile(r"\b[\w.+-]+@[\w-]+\.[\w.-]+\b")),
)


def chat_of(world: World, body: Json) -> Json:
    """The chat an action is about: ``chat`` (a key), or ``user`` with ``bot`` for a private one."""
    if body.get("chat") is not None:
        return world.chat(str(body["chat"]))
    user_id, bot_id = body.get("user"), body.get("bot")
    if user_id is None or bot_id is None:
        raise bad("name a chat, or a user and a bot")
    world.user(int(bot_id))
    return world.private_chat(int(user_id), int(bot_id))


def _person(world: World, chat: Json, body: Json) -> Json:
    user_id = body.get("user", chat.get("user_id"))
    if user_id is None:
        raise bad("name the user")
    person = world.user(int(user_id))
    status = chat.get("members", {}).get(str(person["id"]), "left")
    if chat["type"] != "private" and status in {"left", "kicked"}:
        raise bad(f"user {person['id']} is not in chat {chat['key']}")
    return person


def found_entities(text: str) -> list[Json]:
    """Commands, mentions, links and addresses that Telegram marks by itself."""
    taken: list[tuple[int, int]] = []
    entities = []
    for kind, pattern in _FOUND:
        for match in pattern.finditer(text):
            begin, end = match.span()
            if any(begin < other_end and end > other for other, other_end in taken):
                continue
            taken.append((begin, end))
            entities.append(
                {
                    "type": kind,
                    "offset": units(text[:begin]),
                    "length": units(text[begin:end]),
                }
            )
    return sorted(entities, key=lambda entity: entity["offset"])


def _hears(world: World, bot: Json, chat: Json, record: Json) -> bool:
    """Whether a bot gets a person's message in a chat: privacy mode."""
    if chat["type"] == "private" or bot["can_read_all_group_messages"]:
        return True
    if world.is_admin(chat, bot["id"]):
        return True
    message = record["message"]
    if message.get("reply_to_message", {}).get("from", {}).get("id") == bot["id"]:
        return True
    text = message.get("text", message.get("caption", ""))
    if f"@{bot['username']}".lower() in text.lower():
        return True
    command = re.match(r"/\w+(@\w+)?", text)
    return bool(command and command[1] is None and chat.get("last_bot") == bot["id"])


def _deliver(world: World, chat: Json, record: Json, kind: str = "message") -> None:
    for bot in world.bots_in(chat):
        if _hears(world, bot, chat, record):
            world.add_update(bot, kind, _for_bot(world, bot, record["message"]))


def _for_bot(world: World, bot: Json, message: Json) -> Json:
    """The message with file ids that this bot may use."""
    shown = dict(message)
    if "reply_to_message" in shown:
        shown["reply_to_message"] = _for_bot(world, bot, shown["reply_to_message"])
    for kind in ("photo", "document", "voice"):
        if kind in shown:
            entry = shown[kind][0] if kind == "photo" else shown[kind]
            record = world.journal.get("file", entry["file_unique_id"])
            assert record is not None
            shown |= files.as_content(record, bot["id"], entry.get("duration", 0))
    return shown


def _reply_to(world: World, chat: Json, body: Json, thread_id: int) -> Json:
    """A reply, or in a topic the service message that opened it, as Telegram puts there."""
    wanted = body.get("reply_to") or thread_id
    if not wanted:
        return {}
    found = world.message(chat, wanted)
    if found is None:
        raise refused("no reply")
    quoted = {k: v for k, v in found["message"].items() if k != "reply_to_message"}
    return {"reply_to_message": quoted}


def _send(world: World, body: Json, content: Json) -> Json:
    chat = chat_of(world, body)
    person = _person(world, chat, body)
    if chat["type"] == "private" and chat["is_blocked"]:
        block(world, {"chat": chat["key"], "blocked": False}, None)
    thread_id = int(body.get("thread") or 0)
    if thread_id and str(thread_id) not in chat["topics"]:
        raise refused("no thread")
    content = _reply_to(world, chat, body, thread_id) | content
    record = world.new_message(chat, person, content, thread_id)
    _deliver(world, chat, record)
    return {"chat": chat["key"], "message_id": record["message_id"]}


def say(world: World, body: Json, upload: Upload | None) -> Json:
    """A person writes ``text`` (with ``entities``, ``reply_to``, ``thread`` if given)."""
    text = str(body.get("text", ""))
    if not text.strip():
        raise refused("empty message")
    if body.get("entities"):
        entities = checked_entities(text, body["entities"])
    else:
        entities = found_entities(text)
    return _send(world, body, {"text": text} | ({"entities": entities} if entities else {}))


def send_file(world: World, body: Json, upload: Upload | None) -> Json:
    """A person sends a file as ``kind`` document, photo or voice, with a ``caption`` if given."""
    if upload is None:
        raise bad("add the file as a multipart part called file")
    kind = str(body.get("kind", "document"))
    if kind not in {"document", "photo", "voice"}:
        raise bad(f"a file is sent as document, photo or voice, not as {kind!r}")
    record = files.store(world, kind, upload)
    content = files.as_content(record, 0, int(body.get("duration", 1)))
    caption = str(body.get("caption", ""))
    if caption:
        content["caption"] = caption
        entities = found_entities(caption)
        content |= {"caption_entities": entities} if entities else {}
    if body.get("media_group_id"):
        content["media_group_id"] = str(body["media_group_id"])
    return _send(world, body, content)


def edit(world: World, body: Json, upload: Upload | None) -> Json:
    """A person edits an own message to ``text``."""
    chat = chat_of(world, body)
    record = world.message(chat, body.get("message_id"))
    if record is None or record["is_bot"]:
        raise refused("no edit")
    message = record["message"]
    part = "text" if "text" in message else "caption"
    world.add_history(record, {part: message.get(part, "")})
    text = str(body.get("text", ""))
    message[part] = text
    name = "entities" if part == "text" else "caption_entities"
    message.pop(name, None)
    entities = found_entities(text)
    if entities:
        message[name] = entities
    message["edit_date"] = world.now_s()
    world.put_message(record)
    _deliver(world, chat, record, "edited_message")
    return {"chat": chat["key"], "message_id": record["message_id"]}


def press(world: World, body: Json, upload: Upload | None) -> Json:
    """A person presses a button by its ``text`` or ``data``; with ``force`` also one that is gone."""
    chat = chat_of(world, body)
    person = _person(world, chat, body)
    record = world.message(chat, body.get("message_id"))
    if record is None:
        raise bad(f"chat {chat['key']} has no message {body.get('message_id')}")
    rows = record["message"].get("reply_markup", {}).get("inline_keyboard", [])
    buttons = [button for row in rows for button in row if "callback_data" in button]
    wanted = [
        button
        for button in buttons
        if body.get("data") in {None, button["callback_data"]}
        and body.get("text") in {None, button["text"]}
    ]
    data = wanted[0]["callback_data"] if wanted else None
    if data is None and body.get("force"):
        data = str(body["data"])
    if data is None:
        shown = [(button["text"], button["callback_data"]) for button in buttons]
        raise bad(f"message {record['message_id']} has no such button; it has {shown}")
    query_id = str(4_000_000_000_000_000 + world.number("query"))
    query = {
        "id": query_id,
        "bot_id": record["by"],
        "user_id": person["id"],
        "chat": chat["key"],
        "message_id": record["message_id"],
        "data": data,
        "at_ms": world.now_ms(),
        "answer": None,
    }
    world.put("query", query_id, query)
    bot = world.journal.get("bot", record["by"])
    assert bot is not None
    document = {
        "id": query_id,
        "from": person,
        "message": record["message"],
        "chat_instance": str(-7_000_000_000_000_000_000 - chat["id"]),
        "data": data,
    }
    world.add_update(bot, "callback_query", document)
    return {"callback_query_id": query_id}


def react(world: World, body: Json, upload: Upload | None) -> Json:
    """A person sets the reactions ``emoji`` (a list or one; empty removes them)."""
    chat = chat_of(world, body)
    person = _person(world, chat, body)
    record = world.message(chat, body.get("message_id"))
    if record is None:
        raise refused("no react")
    given = body.get("emoji") or []
    emoji = [given] if isinstance(given, str) else list(given)
    if any(one not in REACTIONS for one in emoji):
        raise refused("reaction")
    old = record["reactions"].get(str(person["id"]), [])
    new = [{"type": "emoji", "emoji": one} for one in emoji]
    record["reactions"][str(person["id"])] = new
    world.put_message(record)
    update = {
        "chat": world.shown_chat(chat),
        "message_id": record["message_id"],
        "user": person,
        "date": world.now_s(),
        "old_reaction": old,
        "new_reaction": new,
    }
    for bot in world.bots_in(chat):
        if chat["type"] == "private" or world.is_admin(chat, bot["id"]):
            world.add_update(bot, "message_reaction", update)
    return {}


def _tell_member(world: World, chat: Json, by: Json, who: Json, old: Json, new: Json) -> None:
    """chat_member to the administrators, my_chat_member to the bot it is about."""
    update = {
        "chat": world.shown_chat(chat),
        "from": by,
        "date": world.now_s(),
        "old_chat_member": old,
        "new_chat_member": new,
    }
    bot = world.journal.get("bot", who["id"])
    if bot is not None:
        world.add_update(bot, "my_chat_member", update)
    for other in world.bots_in(chat):
        if other["id"] != who["id"] and world.is_admin(chat, other["id"]):
            world.add_update(other, "chat_member", update)


def set_member(world: World, body: Json, upload: Upload | None) -> Json:
    """Give ``who`` (a person or bot) a ``status`` in a group: member, administrator, left, kicked."""
    chat = world.chat(str(body.get("chat")))
    if chat["type"] == "private":
        raise bad("a private chat has no members")
    who = world.user(int(body["who"]))
    by = world.user(int(body.get("by") or who["id"]))
    status = str(body.get("status", "member"))
    if status not in {"creator", "administrator", "member", "left", "kicked"}:
        raise bad(f"unknown status {status!r}")
    was_in = chat["members"].get(str(who["id"]), "left") not in {"left", "kicked"}
    old = member(chat, who)
    bots = list(world.bots_in(chat))
    chat["members"][str(who["id"])] = status
    world.put("chat", chat["key"], chat)
    is_in = status not in {"left", "kicked"}
    _tell_member(world, chat, by, who, old, member(chat, who))
    if was_in != is_in:
        content = {"new_chat_members": [who]} if is_in else {"left_chat_member": who}
        record = world.new_message(chat, by, content)
        everyone = bots if was_in else list(world.bots_in(chat))
        for bot in everyone:
            world.add_update(bot, "message", record["message"])
    return {"chat": chat["key"], "status": status}


def block(world: World, body: Json, upload: Upload | None) -> Json:
    """A person blocks a bot, or with ``blocked`` false unblocks it."""
    chat = chat_of(world, body)
    is_blocked = bool(body.get("blocked", True))
    person = world.user(chat["user_id"])
    bot = world.user(chat["bot_id"])
    states: list[Json] = [
        {"status": "member", "user": bot},
        {"status": "kicked", "user": bot, "until_date": 0},
    ]
    old, new = states if is_blocked else states[::-1]
    if chat["is_blocked"] != is_blocked:
        chat["is_blocked"] = is_blocked
        world.put("chat", chat["key"], chat)
        _tell_member(world, chat, person, bot, old, new)
    return {"chat": chat["key"], "blocked": is_blocked}


def migrate(world: World, body: Json, upload: Upload | None) -> Json:
    """A group becomes a supergroup: new id, the old one is refused with migrate_to_chat_id."""
    chat = world.chat(str(body.get("chat")))
    if chat["type"] != "group" or chat["migrated_to"] is not None:
        raise bad(f"chat {chat['key']} is no group that can migrate")
    by = world.user(int(body.get("user") or next(iter(chat["members"]))))
    new = world.add_group("supergroup", chat["title"], dict(chat["members"]))
    notice = world.new_message(chat, by, {"migrate_to_chat_id": new["id"]})
    chat["migrated_to"] = new["id"]
    world.put("chat", chat["key"], chat)
    arrived = world.new_message(new, by, {"migrate_from_chat_id": chat["id"]})
    for bot in world.bots_in(new):
        world.add_update(bot, "message", notice["message"])
        world.add_update(bot, "message", arrived["message"])
    return {"chat": new["key"], "migrated_from": chat["key"]}


def topic(world: World, body: Json, upload: Upload | None) -> Json:
    """A person opens a topic called ``name`` in a forum (or a private chat with topics)."""
    chat = chat_of(world, body)
    made = add_topic(world, chat, _person(world, chat, body), str(body.get("name", "Topic")))
    record = world.message(chat, made["message_thread_id"])
    assert record is not None
    for bot in world.bots_in(chat):
        world.add_update(bot, "message", record["message"])
    return made


def delete(world: World, body: Json, upload: Upload | None) -> Json:
    """A person deletes a message; bots are not told."""
    chat = chat_of(world, body)
    record = world.message(chat, body.get("message_id"))
    if record is None:
        raise refused("no delete")
    record["deleted_ms"] = world.now_ms()
    world.put_message(record)
    return {}


def stop_draft(world: World, body: Json, upload: Upload | None) -> Json:
    """A person presses the stop button of a draft; with ``draft_id`` also of one that is gone."""
    chat = chat_of(world, body)
    drafts = [each for each in world.journal.all("draft") if each["chat"] == chat["key"]]
    shown = [each for each in drafts if each["is_shown"] and each["can_stop"]]
    wanted = [each for each in drafts if each["draft_id"] == body.get("draft_id")] or shown
    if not wanted:
        raise bad(f"chat {chat['key']} shows no draft that can be stopped")
    draft = wanted[-1]
    thread = draft["message_thread_id"]
    bot = world.journal.get("bot", draft["bot"])
    assert bot is not None
    stopped = {"chat": world.shown_chat(chat), "draft_id": draft["draft_id"]}
    update = stopped | ({"message_thread_id": thread} if thread else {})
    world.add_update(bot, "stopped_message_generation", update)
    return {"draft_id": draft["draft_id"]}


ACTIONS: Final[dict[str, Callable[[World, Json, Upload | None], Any]]] = {
    "say": say,
    "send_file": send_file,
    "edit": edit,
    "press": press,
    "stop_draft": stop_draft,
    "react": react,
    "member": set_member,
    "block": block,
    "migrate": migrate,
    "topic": topic,
    "delete": delete,
}
