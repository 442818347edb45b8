"""Checks of what a bot sends: text and entities, keyboards, replies, reactions, commands.

Pure functions from arguments to checked values; they raise ``Refused`` with the server's words. What
the real server tolerates silently but a careful client avoids is returned as a remark.
"""

from __future__ import annotations

import json
import re
from typing import Any

from agentsup.fakes.telegram.markup import parse, units
from agentsup.fakes.telegram.refusals import bad, refused
from agentsup.fakes.telegram.rules import ENTITY_TYPES, LIMITS, REACTIONS

Json = dict[str, Any]
# Other control characters than the line feed are shown as spaces.
_CONTROL = {code: " " for code in range(32) if code != 10}
BOT_USERNAME = re.compile(r"(?i)(?=.{5,32}$)[a-z][a-z0-9_]*bot")
_SCOPES = {
    "default": (),
    "all_private_chats": (),
    "all_group_chats": (),
    "all_chat_administrators": (),
    "chat": ("chat_id",),
    "chat_administrators": ("chat_id",),
    "chat_member": ("chat_id", "user_id"),
}


def checked_text(
    text: str,
    parse_mode: str,
    entities: Any,
    *,
    limit: str = "text_units",
    allow_empty: bool = False,
) -> tuple[str, list[Json]]:
    """The text as it is shown and its entities, trimmed as the server does.

    ``limit`` is text_units or caption_units.
    """
    if len(text.encode("utf-8", "surrogatepass")) > LIMITS["text_bytes"]:
        raise refused("text too long")
    if parse_mode:
        plain, found = parse(text, parse_mode)
    else:
        plain, found = text, checked_entities(text, entities or [])
    plain, found = _trimmed(plain, found)
    if not plain and not allow_empty:
        raise refused("empty text")
    if units(plain) > LIMITS[limit]:
        raise refused("caption too long" if limit == "caption_units" else "message too long")
    return plain, found


def _trimmed(text: str, entities: list[Json]) -> tuple[str, list[Json]]:
    """Without white space at the end, nor at the begin where no entity covers it."""
    text, entities = _without_returns(text, entities)
    text = text.translate(_CONTROL).rstrip()
    first = entities[0]["offset"] if entities else len(text)
    lead = 0
    while lead < min(first, len(text)) and text[lead] in " \n":
        lead += 1
    text = text[lead:]
    end = units(text)
    trimmed = []
    for entity in entities:
        offset = entity["offset"] - lead
        length = min(entity["length"], end - offset)
        if length > 0:
            trimmed.append({**entity, "offset": offset, "length": length})
    return text, trimmed


def _without_returns(text: str, entities: list[Json]) -> tuple[str, list[Json]]:
    """Carriage returns disappear; what lies behind them moves up."""
    if "\r" not in text:
        return text, entities
    positions = []
    offset = 0
    for character in text:
        if character == "\r":
            positions.append(offset)
        offset += units(character)

    def moved(old: int) -> int:
        return old - sum(1 for position in positions if position < old)

    shifted = []
    for entity in entities:
        begin, end = moved(entity["offset"]), moved(entity["offset"] + entity["length"])
        shifted.append({**entity, "offset": begin, "length": end - begin})
    return text.replace("\r", ""), shifted


def checked_entities(text: str, entities: Any) -> list[Json]:
    """Entities given by the client: known types, inside the text, not splitting a character."""
    if not isinstance(entities, list):
        raise refused("entity", why="expected an Array")
    edges = _edges(text)
    end = units(text)
    checked = []
    for entity in entities:
        if not isinstance(entity, dict):
            raise refused("entity", why="expected an Object")
        for name in ("offset", "length"):
            if not isinstance(entity.get(name), int):
                raise refused("entity", why=f'Can\'t find field "{name}"')
        if entity.get("type") not in ENTITY_TYPES:
            raise refused("entity", why="Unsupported type specified")
        _check_position(entity["offset"], entity["length"], end, edges)
        _check_extra(entity)
        if entity["length"]:
            checked.append(dict(entity))
    return sorted(checked, key=lambda entity: (entity["offset"], -entity["length"]))


def _edges(text: str) -> set[int]:
    """The UTF-16 offsets between characters."""
    edges = {0}
    offset = 0
    for character in text:
        offset += units(character)
        edges.add(offset)
    return edges


def _check_position(offset: int, length: int, end: int, edges: set[int]) -> None:
    if offset < 0:
        raise refused("entity place", why=f"receive an entity with incorrect offset {offset}")
    if length < 0:
        raise refused("entity place", why=f"receive an entity with incorrect length {length}")
    if offset > end or (offset == end and length):
        why = f"entity begins after the end of the text at UTF-16 offset {offset}"
    elif offset + length > end:
        why = (
            f"entity beginning at UTF-16 offset {offset} ends after the end of the text "
            f"at UTF-16 offset {offset + length}"
        )
    elif offset not in edges:
        why = f"entity begins in a middle of a UTF-16 symbol at UTF-16 offset {offset}"
    elif offset + length not in edges:
        why = f"entity beginning at UTF-16 offset {offset} ends in a middle of a UTF-16 symbol"
    else:
        return
    raise refused("entity place", why=why)


def _check_extra(entity: Json) -> None:
    wanted = {"text_link": "url", "text_mention": "user", "custom_emoji": "custom_emoji_id"}
    name = wanted.get(entity["type"])
    if name and not entity.get(name):
        raise refused("entity", why=f'Can\'t find field "{name}"')


def checked_markup(markup: Any) -> tuple[Json | None, Json | None]:
    """The markup of a new message: an inline keyboard, or what is to be done with the person's
    input (a reply keyboard, its removal, a reply asked for). At most one of them."""
    if markup is None or markup == "":
        return None, None
    if isinstance(markup, str):
        try:
            markup = json.loads(markup)
        except ValueError:
            raise refused("reply markup json") from None
    if not isinstance(markup, dict):
        raise refused("reply markup")
    if "inline_keyboard" in markup:
        return _checked_inline(markup["inline_keyboard"]), None
    return None, _checked_input(markup)


def keys_of(asked: Json) -> list[Json]:
    """The keys of a reply keyboard; none of other markups."""
    return [key for row in asked.get("keyboard", []) for key in row]


def checked_keyboard(markup: Any) -> Json | None:
    """The inline keyboard of an edit, or None for none: an edit takes no other markup."""
    inline, asked = checked_markup(markup)
    if asked is not None:
        raise refused("inline only")
    return inline


def _checked_input(markup: Json) -> Json | None:
    if "keyboard" in markup:
        rows = markup["keyboard"]
        if not isinstance(rows, list) or any(not isinstance(row, list) for row in rows):
            raise refused("keyboard rows", field="keyboard")
        shown = [[_checked_key(key) for key in row] for row in rows if row]
        return {**markup, "keyboard": shown} if shown else None
    wanted = markup.get("remove_keyboard") or markup.get("force_reply")
    return dict(markup) if wanted else None


def _checked_key(key: Any) -> Json:
    """A key of a reply keyboard: its text alone will do."""
    key = {"text": key} if isinstance(key, str) else key
    if not isinstance(key, dict):
        raise refused("key", why="KeyboardButton must be an Object")
    if not isinstance(key.get("text"), str):
        raise refused("key", why='Can\'t find field "text"')
    if not key["text"].strip():
        raise refused("key text")
    wanted = key.get("request_managed_bot")
    if wanted is not None:
        number = wanted.get("request_id") if isinstance(wanted, dict) else None
        if not isinstance(number, int) or not -(2**31) <= number < 2**31:
            raise refused("key", why="KeyboardButtonRequestManagedBot needs a request_id")
        if not BOT_USERNAME.fullmatch(wanted.get("suggested_username", "a_bot")):
            raise refused("username")
    return dict(key)


def _checked_inline(rows: Any) -> Json | None:
    if not isinstance(rows, list) or any(not isinstance(row, list) for row in rows):
        raise refused("keyboard rows", field="inline_keyboard")
    checked = [[_checked_button(button) for button in row] for row in rows if row]
    if sum(len(row) for row in checked) > LIMITS["buttons"]:
        raise refused("many buttons")
    return {"inline_keyboard": checked} if checked else None


def _checked_button(button: Any) -> Json:
    if not isinstance(button, dict):
        raise refused("button", why="InlineKeyboardButton must be an Object")
    if not isinstance(button.get("text"), str):
        raise refused("button", why='Can\'t find field "text"')
    if not button["text"].strip():
        raise refused("button text")
    kinds = ("url", "callback_data", "web_app", "login_url", "copy_text", "pay", "callback_game")
    used = [name for name in kinds if button.get(name)]
    used += [name for name in button if name.startswith("switch_inline_query")]
    if not used:
        raise refused("button", why="Text buttons are unallowed in the inline keyboard")
    data = button.get("callback_data")
    if data and not (
        isinstance(data, str) and len(data.encode("utf-8")) <= LIMITS["callback_data_bytes"]
    ):
        raise refused("button data")
    return dict(button)


def checked_reactions(reactions: Any) -> list[Json]:
    """Reactions that a bot may set."""
    if not isinstance(reactions, list):
        raise refused("reaction shape", why="expected an Array")
    for reaction in reactions:
        if not isinstance(reaction, dict):
            raise refused("reaction shape", why="expected an Object")
        if reaction.get("type") != "emoji":
            raise refused("reaction shape", why="invalid reaction type specified")
        if reaction.get("emoji") not in REACTIONS:
            raise refused("reaction")
    if len(reactions) > LIMITS["reactions"]:
        raise refused("many reactions")
    return [{"type": "emoji", "emoji": reaction["emoji"]} for reaction in reactions]


def checked_commands(commands: Any) -> list[Json]:
    """The list of setMyCommands."""
    if not isinstance(commands, list):
        raise refused("command", why="expected an Array of BotCommand")
    if len(commands) > LIMITS["commands"]:
        raise refused("command", why="BOT_COMMANDS_TOO_MUCH")
    checked = []
    for command in commands:
        if not isinstance(command, dict):
            raise refused("command", why="can't parse BotCommand: expected an Object")
        for field in ("command", "description"):
            if not isinstance(command.get(field), str):
                raise refused(
                    "command", why=f"can't parse BotCommand: Can't find field \"{field}\""
                )
        name = command["command"].removeprefix("/")
        description = command["description"].strip()
        if not name:
            raise refused("command", why="command must be non-empty")
        if len(name) > LIMITS["command_length"]:
            raise refused(
                "command", why=f"command length must not exceed {LIMITS['command_length']}"
            )
        if not re.fullmatch(r"[a-z0-9_]+", name):
            raise refused("command", why="BOT_COMMAND_INVALID")
        if not description:
            raise refused("command", why="command description must be non-empty")
        if len(description) > LIMITS["command_description"]:
            most = LIMITS["command_description"]
            raise refused("command", why=f"command description length must not exceed {most}")
        checked.append({"command": name, "description": description})
    return checked


def scope_key(scope: Any, language: str) -> str:
    """One text for a BotCommandScope and a language."""
    if scope in {None, ""} if not isinstance(scope, dict) else False:
        scope = {"type": "default"}
    if not isinstance(scope, dict):
        raise refused("scope", why="BotCommandScope must be an Object")
    kind = scope.get("type")
    if kind not in _SCOPES:
        raise refused("scope", why="Unsupported type specified")
    positions = []
    for name in _SCOPES[kind]:
        if not scope.get(name):
            raise refused("scope", why=f"Empty {name} specified")
        positions.append(str(scope[name]))
    return "|".join([str(kind), *positions, language])


def language_code(value: Any) -> str:
    """A two-letter code or nothing."""
    if value in {None, ""}:
        return ""
    if not re.fullmatch(r"[a-z]{2}", str(value)):
        raise refused("language")
    return str(value)


def checked_length(value: str, most: int, what: str) -> str:
    """``value`` unless it is too long."""
    if units(value) > most:
        raise bad(f"{what} is too long")
    return value
