"""The bot of one agent on Matrix."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from agentsup.channels.core.errors import TokenRefused
from agentsup.channels.core.life import Bot, LifeParts
from agentsup.channels.core.live.waiting_notes import WaitingNotes
from agentsup.channels.core.receiving import messages
from agentsup.channels.core.receiving.rows import RowOwner
from agentsup.channels.core.sending.http import HttpPool
from agentsup.channels.matrix.access import People
from agentsup.channels.matrix.client import MatrixClient
from agentsup.channels.matrix.context import ReceiveDependencies
from agentsup.channels.matrix.deliver import BotHandle, MatrixChannel
from agentsup.channels.matrix.encryption_guard import EncryptionGuard
from agentsup.channels.matrix.event import BotUser
from agentsup.channels.matrix.incoming import Incoming
from agentsup.channels.matrix.live_answer import Streams
from agentsup.channels.matrix.login import BotAccount, PasswordSignIn, SignedInAccount
from agentsup.channels.matrix.menus import Menus
from agentsup.channels.matrix.received import CHANNEL, row_owner
from agentsup.channels.matrix.rooms import RoomMembers
from agentsup.channels.matrix.sender import Sender
from agentsup.channels.matrix.status import ReadReceipts
from agentsup.channels.matrix.sync import Syncer, decide_retry
from agentsup.kit.log import get_logger
from agentsup.kit.tasks import TaskOwner

_log = get_logger(__name__)
_FRESH_S = 60.0
"""If a session younger than this is refused, a new session would not help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveLimits(messages.ReceiveLimits):
    """The bounds of receiving from a homeserver. Durations in seconds."""

    max_file_bytes: int = 50 * 1024 * 1024
    poll_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixDeps(messages.BotDependencies):
    """The dependencies of a bot; made by the daemon for each life."""

    account: BotAccount
    session_file: Path
    """The file with the session of a password login."""
    channel: MatrixChannel
    http: HttpPool
    people: People
    limits: ReceiveLimits = field(default_factory=ReceiveLimits)


@dataclass(frozen=True, slots=True)
class MatrixConnection:
    """The clients of one life."""

    client: MatrixClient
    sender: Sender
    encryption: EncryptionGuard
    signing: PasswordSignIn

    async def close(self) -> None:
        """Send and receive nothing more."""
        await self.sender.close()
        await self.client.close()


@dataclass(frozen=True, slots=True)
class SignedInBot:
    """The account of a life, and how it is shown in rooms."""

    account: SignedInAccount
    user: BotUser


class MatrixBot(Bot[MatrixConnection, SignedInBot]):
    """The bot of one agent on Matrix."""

    _deps: MatrixDeps
    _after_failure = staticmethod(decide_retry)

    def _open(self) -> MatrixConnection:
        deps = self._deps
        client = MatrixClient(deps.account.homeserver, http=deps.http)
        owner = row_owner(deps.agent_id, deps.account.user_id)
        encryption = EncryptionGuard(deps, client, owner)
        signing = PasswordSignIn(deps, client, deps.account, deps.session_file)
        sender = Sender(client, deps.clock, encryption.check)
        return MatrixConnection(client, sender, encryption, signing)

    async def _identify(self, connection: MatrixConnection) -> SignedInBot:
        account = await connection.signing.session()
        connection.client.use(account.session)
        user_id = account.session.user_id
        return SignedInBot(account, BotUser(user_id, await connection.client.display_name(user_id)))

    def _row_owner(self, connection: MatrixConnection, me: SignedInBot) -> RowOwner:
        return row_owner(self._deps.agent_id, me.user.user_id)

    def _advice(self, error: TokenRefused) -> str:
        return (
            f"the homeserver does not let {self._deps.agent_name} in ({error.message}); put a valid "
            "matrix.access_token or matrix.password into its entry"
        )

    def _refusal(self, error: TokenRefused) -> TokenRefused:
        return TokenRefused(self._advice(error), soft=error.soft)

    def _may_renew(self, connection: MatrixConnection, error: TokenRefused, age_s: float) -> bool:
        if not connection.signing.can_renew or age_s <= _FRESH_S:
            return False
        _log.warning("the Matrix session ended", agent=self._deps.agent_name, why=str(error))
        return True

    def _attach(self, connection: MatrixConnection, me: SignedInBot, owner: TaskOwner) -> LifeParts:
        deps, client, sender = self._deps, connection.client, connection.sender
        streams = Streams(deps, sender)
        menus = Menus(deps, sender)
        handle = BotHandle(
            client,
            sender,
            deps.settings,
            streams.takeover,
            menus.offered,
            me.account.since_ms,
            deps.tell,
        )
        deps.channel.attach(deps.agent_id, handle)
        rooms = RoomMembers(client, deps.clock)
        marks = ReadReceipts(client, deps.clock, deps.agent_name)
        waiting = WaitingNotes(deps, CHANNEL, menus.display.end_note, deps.limits.waiting_note_s)
        receiving = ReceiveDependencies(
            **self._receive_fields(self._row_owner(connection, me)),
            me=me.user,
            client=client,
            people=deps.people,
            menus=menus,
            accepted=streams.accepted,
        )
        incoming = Incoming(receiving, watch=waiting.watch, rooms=rooms, marks=marks)

        def changed(room_id: str) -> None:
            rooms.forget(room_id)
            connection.encryption.forget(room_id)

        syncer = Syncer(client, receiving, self._report_state, changed)
        return LifeParts(streams, menus, waiting, incoming, syncer, marks.close)
