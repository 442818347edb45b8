"""The bot of one agent on Telegram, with its profile: its menu of commands, and its description.

The profile is set only when it has changed. The store has a digest of the last one, so fifty bots
that start together make no calls for it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from agentsup.catalogue import ENGLISH, Catalogue
from agentsup.channels.core.errors import PlatformError, TokenRefused
from agentsup.channels.core.life import Bot, LifeParts
from agentsup.channels.core.live.waiting_notes import WaitingNotes
from agentsup.channels.core.receiving import messages
from agentsup.channels.core.receiving.messages import BotServices
from agentsup.channels.core.receiving.rows import RowOwner
from agentsup.channels.telegram import received
from agentsup.channels.telegram.access import People
from agentsup.channels.telegram.client import SharedHttp, TelegramClient
from agentsup.channels.telegram.content import BotUser
from agentsup.channels.telegram.deliver import BotHandle, TelegramChannel
from agentsup.channels.telegram.incoming import Incoming
from agentsup.channels.telegram.live_answer import Streams
from agentsup.channels.telegram.menus import Menus
from agentsup.channels.telegram.messages import ReceiveDependencies, ReceiveLimits
from agentsup.channels.telegram.poll import Poller, decide_retry
from agentsup.channels.telegram.received import CHANNEL
from agentsup.channels.telegram.sender import Sender
from agentsup.kit.log import get_logger
from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox.delivery import outbox
from agentsup.model.control import CommandInfo, Commands
from agentsup.model.errors import AgentsupError
from agentsup.model.secret import Secret
from agentsup.store import EventLog, Tx

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
_log = get_logger(__name__)


def calls_of(
    commands: Commands, catalogue: Catalogue, agent_id: str, description: str, name: str = ""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramDeps(messages.BotDependencies):
    """The dependencies of a bot; made by the daemon for each life."""

    token: Secret
    """Resolved (no reference)."""
    events: EventLog
    channel: TelegramChannel
    http: SharedHttp
    people: People
    catalogue: Catalogue
    limits: ReceiveLimits = field(default_factory=ReceiveLimits)


@dataclass(frozen=True, slots=True)
class TelegramConnection:
    """The clients of one life."""

    client: TelegramClient
    sender: Sender

    async def close(self) -> None:
        """Send and receive nothing more."""
        await self.sender.close()
        await self.client.close()


class TelegramBot(Bot[TelegramConnection, BotUser]):
    """The bot of one agent on Telegram."""

    _deps: TelegramDeps
    _me: BotUser | None = None
    _after_failure = staticmethod(decide_retry)

    def _open(self) -> TelegramConnection:
        deps = self._deps
        base_url = deps.spec().telegram_base_url or ""
        client = TelegramClient(deps.token, base_url, http=deps.http)
        return TelegramConnection(client, Sender(client, deps.clock))

    async def _identify(self, connection: TelegramConnection) -> BotUser:
        answer = await connection.client.call("getMe")
        try:
            hears_groups = answer.get("can_read_all_group_messages")
            self._me = BotUser(int(answer["id"]), str(answer.get("username", "")), hears_groups)
        except (KeyError, TypeError, ValueError):
            raise PlatformError("no bot") from None
        return self._me

    def _notes(self) -> tuple[str, ...]:
        spec = self._deps.spec()
        is_for_all = bool(spec.allowed_group_ids) and not spec.group_mention_only
        if not is_for_all or self._me is None or self._me.hears_groups is not False:
            return ()
        name = spec.name
        note = (
            f"privacy mode keeps messages that are not for {name} away from it in groups where it "
            "is no administrator; ask @BotFather for /setprivacy, Disable, add the bot to the "
            f"group again, then /agent_restart {name}"
        )
        return (note,)

    def _row_owner(self, connection: TelegramConnection, me: BotUser) -> RowOwner:
        return received.row_owner(connection.client.bot_id)

    def _advice(self, error: TokenRefused) -> str:
        return (
            f"Telegram does not know the token of {self._deps.agent_name} ({error.message}); get a "
            "new one from @BotFather and put it into telegram_token"
        )

    def _attach(self, connection: TelegramConnection, me: BotUser, owner: TaskOwner) -> LifeParts:
        deps, client, sender = self._deps, connection.client, connection.sender
        streams = Streams(deps, sender)
        menus = Menus(deps, sender, client)
        handle = BotHandle(client, sender, deps.settings, streams.takeover, self._store_target)
        deps.channel.attach(deps.agent_id, handle)
        waiting = WaitingNotes(
            deps, received.CHANNEL, menus.display.end_note, deps.limits.waiting_note_s
        )
        receiving = ReceiveDependencies(
            **self._receive_fields(self._row_owner(connection, me)),
            me=me,
            client=client,
            people=deps.people,
            menus=menus,
            accepted=streams.accepted,
        )
        poller = Poller(client, receiving, self._report_state)
        incoming = Incoming(receiving, watch=waiting.watch, caught_up=lambda: poller.caught_up)
        owner.spawn(self._publish(client), name=f"telegram-profile:{deps.agent_name}")
        return LifeParts(streams, menus, waiting, incoming, poller)

    # -- pieces ------------------------------------------------------------------------------------

    async def _publish(self, client: TelegramClient) -> None:
        deps = self._deps
        spec = deps.spec()
        try:
            calls = calls_of(
                deps.commands, deps.catalogue, deps.agent_id, spec.description, spec.nickname or ""
            )
            await publish_profile(deps, client, calls, server=spec.telegram_base_url or "")
        except AgentsupError as error:
            # The poll loop gets the same error and handles it.
            _log.warning("the profile was not set", agent=deps.agent_name, why=str(error))

    async def _store_target(self, outbox_id: int, platform_id: int | None) -> None:
        await self._deps.database.write(
            outbox.deliver_into_message_tx, outbox_id, platform_id, name="telegram.in_place"
        )
