"""The bot's profile: its menu of commands in each language, and what it says about itself.

Set only when it has changed: what was set last is in the store, so that fifty bots that start
together ask nothing of the platform.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Sequence
from typing import Any

from agentsup.catalogue import ENGLISH, Catalogue
from agentsup.channels.telegram.errors import TelegramError, TokenRefused
from agentsup.channels.telegram.sender import Caller
from agentsup.channels.telegram.updates import CHANNEL
from agentsup.kit.clock import Clock
from agentsup.model.control import CommandInfo, Commands
from agentsup.store.database import Database, Tx

__all__ = ["Call", "calls_of", "publish_profile"]

_log = logging.getLogger(__name__)
_MAX_COMMANDS = 100
_MAX_HELP_CHARS = 256
_MAX_DESCRIPTION = 512
_MAX_SHORT = 120
_NAME = re.compile(r"[a-z0-9_]{1,32}")
_HIDDEN = frozenset({"again", "cancel"})
"""Typed by nobody without an id; buttons stand for them."""

Call = tuple[str, dict[str, Any]]
"""A method of the Bot API and its fields."""


def calls_of(
    commands: Commands, catalogue: Catalogue, agent_id: str, description: str
) -> tuple[Call, ...]:
    """What has to be said to the platform. Pure.

    English is the default of every language that has no list of its own. An empty description
    leaves what the owner of the bot may have set by hand.
    """
    calls: list[Call] = [
        ("setMyCommands", {"commands": _listed(commands.offered(agent_id, ENGLISH))})
    ]
    for language in catalogue.languages:
        if language != ENGLISH and len(language) == 2:
            listed = _listed(commands.offered(agent_id, language))
            calls.append(("setMyCommands", {"commands": listed, "language_code": language}))
    text = " ".join(description.split())
    if text:
        calls.append(("setMyDescription", {"description": _cut(text, _MAX_DESCRIPTION)}))
        calls.append(("setMyShortDescription", {"short_description": _cut(text, _MAX_SHORT)}))
    return tuple(calls)


async def publish_profile(
    client: Caller,
    *,
    database: Database,
    clock: Clock,
    commands: Commands,
    catalogue: Catalogue,
    agent_id: str,
    bot_id: str,
    server: str,
    description: str = "",
) -> bool:
    """Set commands and descriptions if they differ from what was set last; True if so.

    ``server`` is the base URL: another server knows nothing yet. Trouble of the platform is logged
    and left to the next start. Raises ``TokenRefused`` and what the store raises.
    """
    calls = calls_of(commands, catalogue, agent_id, description)
    text = json.dumps([server, calls], ensure_ascii=False, sort_keys=True)
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
    known = await database.read(
        lambda reader: reader.scalar(
            "SELECT digest FROM profiles WHERE channel = ? AND bot_id = ?", (CHANNEL, bot_id)
        ),
        name="telegram.profile",
    )
    if known == digest:
        return False
    try:
        for method, fields in calls:
            await client.call(method, **fields)
    except TokenRefused:
        raise
    except TelegramError as error:
        _log.warning("the menu of bot %s was not set: %s", bot_id, error)
        return False
    at = clock.now_ms()

    def keep(tx: Tx) -> None:
        tx.execute(
            "INSERT INTO profiles (channel, bot_id, digest, published_at) VALUES (?, ?, ?, ?)"
            " ON CONFLICT DO UPDATE SET digest = excluded.digest,"
            " published_at = excluded.published_at",
            (CHANNEL, bot_id, digest, at),
        )

    await database.write(keep, name="telegram.profile")
    return True


def _listed(infos: Sequence[CommandInfo]) -> list[dict[str, str]]:
    return [
        {"command": info.name, "description": _cut(info.help, _MAX_HELP_CHARS)}
        for info in infos
        if _NAME.fullmatch(info.name) and info.name not in _HIDDEN
    ][:_MAX_COMMANDS]


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
