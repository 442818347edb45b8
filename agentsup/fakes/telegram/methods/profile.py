"""Methods about the bot itself: getMe, commands, names and descriptions, menu button, webhook."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from agentsup.fakes.telegram.checks import (
    checked_commands,
    checked_length,
    language_code,
    scope_key,
)
from agentsup.fakes.telegram.refusals import refused
from agentsup.fakes.telegram.requests import Call
from agentsup.fakes.telegram.rules import LIMITS
from agentsup.fakes.telegram.world import Json, World

_MENU_BUTTONS: Final = frozenset({"default", "commands", "web_app"})


def get_me(world: World, bot: Json, call: Call) -> Json:
    """getMe."""
    return world.bot_user(bot) | {
        "can_join_groups": True,
        "can_read_all_group_messages": bot["can_read_all_group_messages"],
        "supports_inline_queries": False,
        "can_connect_to_business": False,
        "has_main_web_app": False,
        "has_topics_enabled": bot["has_topics_enabled"],
        "can_manage_bots": bot.get("can_manage_bots", False),
    }


def get_managed_bot_token(world: World, bot: Json, call: Call) -> str:
    """getManagedBotToken: of a bot that was created through this one, and of no other."""
    child = world.journal.get("bot", call.number("user_id"))
    if child is None:
        raise refused("bot id")
    if not bot.get("can_manage_bots") or child.get("manager_id") != bot["id"]:
        raise refused("no access to bot")
    token: str = child["token"]
    return token


def delete_webhook(world: World, bot: Json, call: Call) -> bool:
    """deleteWebhook: there never is one; only the pending updates may be dropped."""
    if call.args.get("drop_pending_updates"):
        world.confirm(bot, 1 << 31)
    return True


def get_webhook_info(world: World, bot: Json, call: Call) -> Json:
    """getWebhookInfo."""
    info: Json = {
        "url": "",
        "has_custom_certificate": False,
        "pending_update_count": len(world.pending(bot)),
    }
    if bot["allowed_updates"]:
        info["allowed_updates"] = bot["allowed_updates"]
    return info


def _command_key(call: Call) -> str:
    return scope_key(call.args.get("scope"), language_code(call.args.get("language_code")))


def set_my_commands(world: World, bot: Json, call: Call) -> bool:
    """setMyCommands."""
    key = _command_key(call)
    bot["commands"][key] = checked_commands(call.args.get("commands") or [])
    world.put("bot", bot["id"], bot)
    return True


def get_my_commands(world: World, bot: Json, call: Call) -> list[Json]:
    """getMyCommands."""
    commands: list[Json] = bot["commands"].get(_command_key(call), [])
    return commands


def delete_my_commands(world: World, bot: Json, call: Call) -> bool:
    """deleteMyCommands."""
    bot["commands"].pop(_command_key(call), None)
    world.put("bot", bot["id"], bot)
    return True


def _text_setter(field: str) -> Callable[[World, Json, Call], bool]:
    def set_text(world: World, bot: Json, call: Call) -> bool:
        language = language_code(call.args.get("language_code"))
        value = checked_length(call.text(field), LIMITS[field], field.replace("_", " "))
        texts = bot["texts"].setdefault(field, {})
        if value:
            texts[language] = value
        else:
            texts.pop(language, None)
        world.put("bot", bot["id"], bot)
        return True

    return set_text


def _text_getter(field: str) -> Callable[[World, Json, Call], Json]:
    def get_text(world: World, bot: Json, call: Call) -> Json:
        language = language_code(call.args.get("language_code"))
        texts = bot["texts"].get(field, {})
        default = bot["first_name"] if field == "name" else ""
        return {field: texts.get(language, texts.get("", default))}

    return get_text


def set_chat_menu_button(world: World, bot: Json, call: Call) -> bool:
    """setChatMenuButton."""
    button = call.args.get("menu_button") or {"type": "default"}
    if not isinstance(button, dict) or button.get("type") not in _MENU_BUTTONS:
        raise refused("menu button", why="MenuButton has unsupported type")
    chat_id = call.args.get("chat_id")
    if chat_id:
        world.chat_for(bot, chat_id)
    bot["menu_buttons"][str(chat_id or "")] = button
    world.put("bot", bot["id"], bot)
    return True


def get_chat_menu_button(world: World, bot: Json, call: Call) -> Json:
    """getChatMenuButton."""
    buttons = bot["menu_buttons"]
    default: Json = buttons.get("", {"type": "commands"})
    found: Json = buttons.get(str(call.args.get("chat_id") or ""), default)
    return found


HANDLERS: Final[dict[str, Callable[[World, Json, Call], Any]]] = {
    "get_me": get_me,
    "get_managed_bot_token": get_managed_bot_token,
    "delete_webhook": delete_webhook,
    "get_webhook_info": get_webhook_info,
    "set_my_commands": set_my_commands,
    "get_my_commands": get_my_commands,
    "delete_my_commands": delete_my_commands,
    "set_my_name": _text_setter("name"),
    "get_my_name": _text_getter("name"),
    "set_my_description": _text_setter("description"),
    "get_my_description": _text_getter("description"),
    "set_my_short_description": _text_setter("short_description"),
    "get_my_short_description": _text_getter("short_description"),
    "set_chat_menu_button": set_chat_menu_button,
    "get_chat_menu_button": get_chat_menu_button,
}
