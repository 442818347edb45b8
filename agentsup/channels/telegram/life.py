"""The bot of one agent on Telegram."""

from __future__ import annotations

from dataclasses import dataclass, field

from agentsup.catalogue import Catalogue
from agentsup.channels.core.errors import PlatformError, TokenRefused
from agentsup.channels.core.life.bot import Bot, LifeParts
from agentsup.channels.core.live.waiting_notes import WaitingNotes
from agentsup.channels.core.receiving import messages
from agentsup.channels.core.receiving.rows import RowOwner
from agentsup.channels.telegram import received
from agentsup.channels.telegram.access import People
from agentsup.channels.telegram.client import TelegramClient
from agentsup.channels.telegram.content import BotUser
from agentsup.channels.telegram.deliver import BotHandle, TelegramChannel
from agentsup.channels.telegram.http import SharedHttp
from agentsup.channels.telegram.incoming import Incoming
from agentsup.channels.telegram.menus import Menus
from agentsup.channels.telegram.poll import Poller, judge
from agentsup.channels.telegram.profile import calls_of, publish_profile
from agentsup.channels.telegram.receive_context import ReceiveDependencies
from agentsup.channels.telegram.sender import Sender
from agentsup.channels.telegram.stream import Streams
from agentsup.kit.log import get_logger
from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox.delivery import outbox
from agentsup.model.errors import AgentsupError
from agentsup.model.secret import Secret
from agentsup.store import EventLog

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveLimits(messages.ReceiveLimits):
    """The bounds of receiving from Telegram. Durations in seconds."""

    max_file_bytes: int = 20 * 1024 * 1024
    """The download limit of the Bot API; a local server allows more."""
    poll_s: float = 50.0
    album_s: float = 1.0
    """Seconds to wait for the rest of an album, of a long text or of forwarded messages."""
    comment_s: float = 0.25
    """Seconds to wait after a text for the forwarded messages on which it may be a comment."""


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
    _after_failure = staticmethod(judge)

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
        handle = BotHandle(
            client, sender, deps.settings, streams.takeover, self._moved, self._store_target
        )
        deps.channel.attach(deps.agent_id, handle)
        waiting = WaitingNotes(deps, received.CHANNEL, menus.end_note, deps.limits.waiting_note_s)
        receiving = ReceiveDependencies(
            **self._receive_fields(self._row_owner(connection, me)),
            me=me,
            client=client,
            people=deps.people,
            menus=menus,
            accepted=streams.accepted,
            album_s=deps.limits.album_s,
            comment_s=deps.limits.comment_s,
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

    def _moved(self, old_id: int, new_id: int) -> None:
        _log.warning(
            "a group has a new id; put it into allowed_group_ids",
            agent=self._deps.agent_name,
            old_id=old_id,
            new_id=new_id,
        )
