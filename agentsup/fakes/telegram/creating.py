"""People create bots through a manager bot, and replace the tokens of bots that they own."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from agentsup.fakes.telegram.checks import BOT_USERNAME, keys_of
from agentsup.fakes.telegram.refusals import bad, refused
from agentsup.fakes.telegram.requests import Upload
from agentsup.fakes.telegram.rules import LIMITS
from agentsup.fakes.telegram.world import Json, World


def create_bot(world: World, body: Json, upload: Upload | None) -> Json:
    """A person taps *Create* in the dialog of a link (``link``), or of the key on their keyboard in
    ``chat``; ``username`` and ``name`` are what they typed over the suggestions.

    ``updates``: which ones the manager gets, in order, as the platform promises none of that;
    ``message`` is left out for a link.
    """
    link = body.get("link")
    if link:
        manager, username, name = _of_link(world, str(link))
        chat, user = None, world.user(int(body["user"]))
    else:
        chat = world.chat(str(body["chat"]))
        manager, user = world.journal.get("bot", chat["bot_id"]), world.user(chat["user_id"])
        wanted = _shown_key(world, chat, body)["request_managed_bot"]
        username, name = wanted.get("suggested_username", ""), wanted.get("suggested_name", "")
    if manager is None or not manager.get("can_manage_bots"):
        raise refused("no manager")
    made = _made(
        world, manager, user, str(body.get("username") or username), str(body.get("name") or name)
    )
    shown = world.bot_user(made)
    for kind in body.get("updates") or ("message", "managed_bot"):
        if kind == "managed_bot":
            world.add_update(manager, "managed_bot", {"user": user, "bot": shown})
        elif chat is not None:
            record = world.new_message(chat, user, {"managed_bot_created": {"bot": shown}})
            world.add_update(manager, "message", record["message"])
    return {"id": made["id"], "username": made["username"]}


def _of_link(world: World, link: str) -> tuple[Json | None, str, str]:
    address = urlsplit(link)
    found = re.fullmatch(r"/newbot/(\w+)/(\w+)", address.path)
    if address.netloc != "t.me" or found is None:
        raise bad(f"{link!r} creates no bot")
    known = (each for each in world.journal.all("bot") if each["username"] == found[1])
    return next(known, None), found[2], "".join(parse_qs(address.query).get("name", []))


def _shown_key(world: World, chat: Json, body: Json) -> Json:
    """The key called ``key`` (the only one, if not given) on the person's keyboard."""
    inputs = [each["input"] for each in world.messages(chat) if "input" in each]
    keys = keys_of(inputs[-1]) if inputs else []
    wanted = [
        key
        for key in keys
        if "request_managed_bot" in key and body.get("key") in {None, key["text"]}
    ]
    if not wanted:
        raise bad(f"chat {chat['key']} shows no such key")
    return wanted[0]


def _made(world: World, manager: Json, user: Json, username: str, name: str) -> Json:
    bots = list(world.journal.all("bot"))
    if not BOT_USERNAME.fullmatch(username) or not 1 <= len(name) <= LIMITS["name"]:
        raise refused("username")
    if username.lower() in {each["username"].lower() for each in bots}:
        raise refused("username taken")
    if sum(each.get("owner_id") == user["id"] for each in bots) >= LIMITS["created_bots"]:
        raise refused("bot limit")
    number = world.number("bot", 700_001)
    return world.add_bot(
        _token(world, number),
        username=username,
        first_name=name,
        manager_id=manager["id"],
        owner_id=user["id"],
    )


def _token(world: World, bot_id: int) -> str:
    return f"{bot_id}:AAF{'m' * 20}{world.number('token'):012d}"


def replace_token(world: World, body: Json, upload: Upload | None) -> Json:
    """The owner has BotFather replace the token of ``bot``; its manager is told, unless ``quiet``."""
    bot = world.journal.get("bot", str(body["bot"]))
    if bot is None:
        raise bad(f"there is no bot {body['bot']!r}")
    bot["token"] = _token(world, bot["id"])
    world.put("bot", bot["id"], bot)
    world.ring(bot["id"])
    manager = world.journal.get("bot", bot.get("manager_id", 0))
    if manager is not None and not body.get("quiet"):
        update = {"user": world.user(bot["owner_id"]), "bot": world.bot_user(bot)}
        world.add_update(manager, "managed_bot", update)
    return {"token": bot["token"]}


CREATING: Final[dict[str, Callable[[World, Json, Upload | None], Any]]] = {
    "create_bot": create_bot,
    "replace_token": replace_token,
}
