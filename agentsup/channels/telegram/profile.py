"""The bot's profile: its menu of commands in each language, and its description.

It is set only when it has changed. The store has a digest of the last one, so fifty bots that start
together make no calls for it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any

from agentsup.catalogue import ENGLISH, Catalogue
from agentsup.channels.core.errors import PlatformError, TokenRefused
from agentsup.channels.core.receiving.messages import BotServices
from agentsup.channels.telegram.client import TelegramClient
from agentsup.channels.telegram.received import CHANNEL
from agentsup.kit.log import get_logger
from agentsup.model.control import CommandInfo, Commands
from agentsup.store import Tx

_log = get_logger(__name__)
_MAX_COMMANDS = 100
_MAX_HELP_CHARS = 256
_MAX_NAME = 64
_MAX_DESCRIPTION = 512
_MAX_SHORT = 120
_NAME = re.compile(r"[a-z0-9_]{1,32}")
_HIDDEN = frozenset({"again", "cancel"})
"""These need an id, so nobody types them; buttons run them."""

Call = tuple[str, dict[str, Any]]
"""A method of the Bot API and its fields."""


def calls_of(
    commands: Commands, catalogue: Catalogue, agent_id: str, description: str, name: str
) -> tuple[Call, ...]:
    """Return the calls that set the profile. Pure.

    English is the default for languages without a list of their own. An empty description or name
    does not overwrite one that the bot's owner may have set by hand.
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
    if name:
        # Telegram allows few changes of it, so it comes last.
        calls.append(("setMyName", {"name": _cut(name, _MAX_NAME)}))
    return tuple(calls)


async def publish_profile(
    deps: BotServices, client: TelegramClient, calls: Sequence[Call], *, server: str
) -> bool:
    """Make the ``calls`` if they differ from those made last; return whether it did.

    ``server`` is the base URL: on another server they must be set again. Other errors of the
    platform are logged, and the next start tries again. Raises ``TokenRefused`` and what the store
    raises.
    """
    bot_id = client.bot_id
    text = json.dumps([server, calls], ensure_ascii=False, sort_keys=True)
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
    known = await deps.database.read(
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
    except PlatformError as error:
        _log.warning(f"the menu of bot {bot_id} was not set: {error}")
        return False
    at = deps.clock.now_ms()

    def keep(tx: Tx) -> None:
        tx.execute(
            "INSERT INTO profiles (channel, bot_id, digest, published_at) VALUES (?, ?, ?, ?)"
            " ON CONFLICT DO UPDATE SET digest = excluded.digest,"
            " published_at = excluded.published_at",
            (CHANNEL, bot_id, digest, at),
        )

    await deps.database.write(keep, name="telegram.profile")
    return True


def _listed(infos: Sequence[CommandInfo]) -> list[dict[str, str]]:
    return [
        {"command": info.name, "description": _cut(info.help, _MAX_HELP_CHARS)}
        for info in infos
        if _NAME.fullmatch(info.name) and info.name not in _HIDDEN
    ][:_MAX_COMMANDS]


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
