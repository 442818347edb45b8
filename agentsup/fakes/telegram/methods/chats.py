"""Methods about chats: what they are, who is in them, topics of a forum, leaving."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from agentsup.fakes.telegram.markup import units
from agentsup.fakes.telegram.refusals import bad, refused
from agentsup.fakes.telegram.requests import Call
from agentsup.fakes.telegram.rules import LIMITS
from agentsup.fakes.telegram.world import Json, World

_RIGHTS: Final = (
    "can_manage_chat",
    "can_delete_messages",
    "can_manage_video_chats",
    "can_restrict_members",
    "can_promote_members",
    "can_change_info",
    "can_invite_users",
    "can_post_stories",
    "can_edit_stories",
    "can_delete_stories",
    "can_pin_messages",
    "can_manage_topics",
)
_COLOURS: Final = (7322096, 16766590, 13338331, 9367192, 16749490, 16478047)


def get_chat(world: World, bot: Json, call: Call) -> Json:
    """getChat."""
    chat = world.chat_for(bot, call.args["chat_id"], write=False)
    full = world.shown_chat(chat) | {
        "accent_color_id": 0,
        "max_reaction_count": 11,
        "accepted_gift_types": {
            "unlimited_gifts": False,
            "limited_gifts": False,
            "unique_gifts": False,
            "premium_subscription": False,
            "gifts_from_channels": False,
        },
    }
    if chat["type"] != "private":
        full["permissions"] = {"can_send_messages": True}
    return full


def get_chat_member(world: World, bot: Json, call: Call) -> Json:
    """getChatMember."""
    chat = world.chat_for(bot, call.args["chat_id"], write=False)
    user_id = call.number("user_id")
    user = world.user(user_id)
    if chat["type"] == "private":
        if user_id not in {chat["user_id"], chat["bot_id"]}:
            raise refused("no member")
        return {"status": "member", "user": user}
    return member(chat, user)


def member(chat: Json, user: Json) -> Json:
    """A ChatMember."""
    status = chat["members"].get(str(user["id"]), "left")
    shown: Json = {"status": status, "user": user}
    if status == "administrator":
        shown |= dict.fromkeys(_RIGHTS, True) | {"can_be_edited": False, "is_anonymous": False}
    elif status == "creator":
        shown["is_anonymous"] = False
    elif status == "kicked":
        shown["until_date"] = 0
    return shown


def leave_chat(world: World, bot: Json, call: Call) -> bool:
    """leaveChat."""
    chat = world.chat_for(bot, call.args["chat_id"])
    if chat["type"] == "private":
        raise refused("private leave")
    chat["members"][str(bot["id"])] = "left"
    world.put("chat", chat["key"], chat)
    return True


def _forum(world: World, bot: Json, call: Call) -> Json:
    """The forum that a method changes; the bot must be allowed to."""
    chat = world.chat_for(bot, call.args["chat_id"])
    if chat["type"] == "private":
        if not bot["has_topics_enabled"]:
            raise refused("not a forum")
    elif not chat["is_forum"]:
        raise refused("not a forum")
    elif not world.is_admin(chat, bot["id"]):
        raise refused("topic rights")
    return chat


def _checked_name(name: str) -> str:
    if not name.strip():
        raise refused("topic name")
    if units(name) > LIMITS["topic_name"]:
        raise refused("topic name long")
    return name


def add_topic(world: World, chat: Json, by: Json, name: str, colour: int = _COLOURS[0]) -> Json:
    """Open a topic: its id is the number of the service message that tells of it."""
    created = {"name": name, "icon_color": colour}
    record = world.new_message(chat, by, {"forum_topic_created": created})
    thread_id = record["message_id"]
    record["message"] |= {"message_thread_id": thread_id, "is_topic_message": True}
    world.put_message(record)
    chat["topics"][str(thread_id)] = {**created, "is_closed": False}
    world.put("chat", chat["key"], chat)
    return {"message_thread_id": thread_id, **created}


def create_forum_topic(world: World, bot: Json, call: Call) -> Json:
    """createForumTopic."""
    chat = _forum(world, bot, call)
    colour = call.number("icon_color", _COLOURS[0])
    if colour not in _COLOURS:
        raise refused("topic colour")
    return add_topic(world, chat, world.bot_user(bot), _checked_name(call.text("name")), colour)


def _topic(chat: Json, call: Call) -> Json:
    topic = chat["topics"].get(str(call.number("message_thread_id")))
    if topic is None:
        raise bad("TOPIC_ID_INVALID")
    found: Json = topic
    return found


def _tell(world: World, bot: Json, chat: Json, call: Call, content: Json) -> bool:
    world.new_message(chat, world.bot_user(bot), content, call.number("message_thread_id"))
    world.put("chat", chat["key"], chat)
    return True


def edit_forum_topic(world: World, bot: Json, call: Call) -> bool:
    """editForumTopic."""
    chat = _forum(world, bot, call)
    topic = _topic(chat, call)
    name = call.text("name")
    if not name:
        return True
    if _checked_name(name) == topic["name"]:
        raise refused("topic same")
    topic["name"] = name
    return _tell(world, bot, chat, call, {"forum_topic_edited": {"name": name}})


def _switch(is_closed: bool, refusal: str) -> Callable[[World, Json, Call], bool]:
    def switch(world: World, bot: Json, call: Call) -> bool:
        chat = _forum(world, bot, call)
        topic = _topic(chat, call)
        if topic["is_closed"] == is_closed:
            raise refused("topic same")
        topic["is_closed"] = is_closed
        return _tell(world, bot, chat, call, {refusal: {}})

    return switch


def delete_forum_topic(world: World, bot: Json, call: Call) -> bool:
    """deleteForumTopic: the topic with all its messages."""
    chat = _forum(world, bot, call)
    _topic(chat, call)
    thread_id = call.number("message_thread_id")
    for record in world.messages(chat):
        if record["message"].get("message_thread_id") == thread_id:
            record["deleted_ms"] = world.now_ms()
            world.put_message(record)
    del chat["topics"][str(thread_id)]
    world.put("chat", chat["key"], chat)
    return True


HANDLERS: Final[dict[str, Callable[[World, Json, Call], Any]]] = {
    "get_chat": get_chat,
    "get_chat_member": get_chat_member,
    "leave_chat": leave_chat,
    "create_forum_topic": create_forum_topic,
    "edit_forum_topic": edit_forum_topic,
    "close_forum_topic": _switch(True, "forum_topic_closed"),
    "reopen_forum_topic": _switch(False, "forum_topic_reopened"),
    "delete_forum_topic": delete_forum_topic,
}
