"""One life of one agent's Matrix bot: sign in, receive, show what runs, and take leave."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from agentsup.channels.http import HttpPool
from agentsup.channels.inbox import Inbox
from agentsup.channels.lifetime import escaped, until
from agentsup.channels.matrix import kept
from agentsup.channels.matrix.access import People
from agentsup.channels.matrix.clear import Clear
from agentsup.channels.matrix.client import MatrixClient
from agentsup.channels.matrix.deliver import (
    NOT_ATTACHED,
    BotHandle,
    MatrixChannel,
    MatrixSettings,
)
from agentsup.channels.matrix.desk import SayDeps
from agentsup.channels.matrix.errors import MatrixError, TokenRefused
from agentsup.channels.matrix.event import Me
from agentsup.channels.matrix.incoming import Incoming
from agentsup.channels.matrix.kept import CHANNEL, Owner
from agentsup.channels.matrix.login import Account, SignedIn, SignIn
from agentsup.channels.matrix.marks import Marks
from agentsup.channels.matrix.menus import Menus
from agentsup.channels.matrix.rooms import Rooms
from agentsup.channels.matrix.sender import Sender
from agentsup.channels.matrix.stream import Streams
from agentsup.channels.matrix.sync import Syncer, judge
from agentsup.channels.received import swept
from agentsup.channels.report import ChannelReport, ChannelState
from agentsup.channels.waiting import Waiting
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.kit.pool import BoundedPool
from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox import outbox
from agentsup.mailbox.mailbox import Mailbox
from agentsup.model.agent import AgentSpec
from agentsup.model.control import Commands
from agentsup.observe.live import LiveHub
from agentsup.observe.logging import get_logger
from agentsup.store.database import Database

__all__ = [
    "Account",
    "HttpPool",
    "MatrixBot",
    "MatrixChannel",
    "MatrixDeps",
    "MatrixSettings",
    "ReceiveLimits",
]

_log = get_logger(__name__)
_FRESH_S = 60.0
"""A session that was made this lately and is refused is no matter of sessions."""


@dataclass(frozen=True, slots=True)
class ReceiveLimits:
    """The bounds of receiving. Durations in seconds."""

    max_age_s: float = 24 * 3600.0
    """Messages older than this are named, not answered."""
    max_file_bytes: int = 50 * 1024 * 1024
    sync_s: float = 30.0
    deaf_after_s: float = 180.0
    """Without an answered sync for this long, others are told."""
    rooms_at_once: int = 16
    backlog: int = 2000
    """Stored events held in memory; beyond it the next sync waits."""
    waiting_note_s: float = 3.0
    """A message that waits longer than this behind others is told so."""
    drain_s: float = 3.0


@dataclass(frozen=True, slots=True)
class MatrixDeps:
    """What a bot works with; made by the daemon for each life."""

    agent_id: str
    agent_name: str
    workspace: Path
    files: BoundedPool = field(default_factory=lambda: BoundedPool("files"), kw_only=True)
    """Where work on the workspace is done."""
    account: Account
    session_file: Path
    """Where the session of a password login is kept."""
    spec: Callable[[], AgentSpec]
    database: Database
    mailbox: Mailbox
    inbox: Inbox
    commands: Commands
    live: LiveHub
    clock: Clock
    entropy: Entropy
    channel: MatrixChannel
    http: HttpPool
    people: People
    report: Callable[[ChannelReport], None]
    """Told of every change of state and of each answered sync."""
    tell: Callable[[str], Awaitable[None]]
    """Says something to the operator where this bot is not needed for it."""
    settings: Callable[[], MatrixSettings]
    """What deliveries follow; asked for each."""
    limits: ReceiveLimits = field(default_factory=ReceiveLimits)


class MatrixBot:
    """The bot of one agent. ``run`` is the body of a supervised child."""

    def __init__(self, deps: MatrixDeps) -> None:
        self._deps = deps
        self._report = ChannelReport(
            deps.agent_id,
            ChannelState.CONNECTING,
            bot_name=deps.account.user_id,
            channel=CHANNEL,
        )

    async def run(self, ready: Callable[[], None], draining: asyncio.Event) -> None:
        """Receive and show until ``draining`` is set. ``ready`` is called at once.

        The bot is ready when it tries: without a network an agent must not fail, but wait. Raises
        ``TokenRefused`` when the homeserver does not accept the account and signing in again does
        not help. Everything else the homeserver does is waited out in here.
        """
        deps = self._deps
        ready()
        while True:
            begun_at = deps.clock.monotonic()
            client = MatrixClient(deps.account.homeserver, http=deps.http)
            clear = Clear(
                client=client,
                database=deps.database,
                clock=deps.clock,
                owner=Owner(deps.agent_id, deps.account.user_id),
                agent_name=deps.agent_name,
                tell=deps.tell,
            )
            sender = Sender(client, deps.clock, clear.check)
            owner = TaskOwner(f"matrix {deps.agent_name}", on_error=escaped)
            signing = SignIn(
                client,
                deps.account,
                deps.session_file,
                clock=deps.clock,
                entropy=deps.entropy,
                name=deps.agent_name,
            )
            self._show(ChannelState.CONNECTING)
            life = self._life(client, sender, clear, signing, owner, draining)
            try:
                await until(draining, life, owner)
            except TokenRefused as error:
                is_old = deps.clock.monotonic() - begun_at > _FRESH_S
                if signing.can_renew and is_old:
                    _log.warning("the Matrix session ended", agent=deps.agent_name, why=str(error))
                    continue
                remedy = _refused(deps.agent_name, error)
                self._show(ChannelState.REFUSED, remedy)
                raise TokenRefused(remedy, soft=error.soft) from error
            else:
                self._show(ChannelState.STOPPED)
                return
            finally:
                deps.channel.detach(deps.agent_id)
                await owner.close(1.0)
                await sender.close()
                await client.close()

    async def _life(
        self,
        client: MatrixClient,
        sender: Sender,
        clear: Clear,
        signing: SignIn,
        owner: TaskOwner,
        draining: asyncio.Event,
    ) -> None:
        deps = self._deps
        signed_in, me = await self._meet(client, signing)
        whose = Owner(deps.agent_id, me.user_id)
        set_aside = await deps.database.read(
            lambda reader: kept.quarantined(reader, whose), name="matrix.quarantined"
        )
        self._report = replace(self._report, quarantined=set_aside)
        await swept(deps.workspace, owner=f"matrix-{deps.agent_id}", files=deps.files)
        streams = Streams(deps, sender)
        menus = Menus(
            agent_id=deps.agent_id,
            database=deps.database,
            mailbox=deps.mailbox,
            commands=deps.commands,
            clock=deps.clock,
            entropy=deps.entropy,
            sender=sender,
            spec=deps.spec,
        )
        await self._attach(client, sender, streams, menus, signed_in)
        rooms = Rooms(client, deps.clock)
        marks = Marks(client, deps.clock, deps.agent_name)
        waiting = Waiting(
            agent_id=deps.agent_id,
            channel=CHANNEL,
            database=deps.database,
            notes=menus,
            clock=deps.clock,
            entropy=deps.entropy,
            after_s=deps.limits.waiting_note_s,
        )
        incoming = self._incoming(client, me, whose, menus, waiting, streams, rooms, marks)

        def changed(room_id: str) -> None:
            rooms.forget(room_id)
            clear.forget(room_id)

        syncer = Syncer(
            client=client,
            database=deps.database,
            clock=deps.clock,
            entropy=deps.entropy,
            owner=whose,
            sync_s=deps.limits.sync_s,
            deaf_after_s=deps.limits.deaf_after_s,
            show=self._show,
            tell=deps.tell,
            changed=changed,
            agent_name=deps.agent_name,
        )
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(streams.run(draining), name=f"streams:{deps.agent_name}")
                group.create_task(menus.run(draining), name=f"menus:{deps.agent_name}")
                group.create_task(waiting.run(draining), name=f"waiting:{deps.agent_name}")
                group.create_task(incoming.run(), name=f"again:{deps.agent_name}")
                incoming.take_leftovers()
                await syncer.run(incoming.take)
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            await waiting.close()
            await incoming.close(deps.limits.drain_s)
            await marks.close()

    # -- pieces ------------------------------------------------------------------------------------

    async def _meet(self, client: MatrixClient, signing: SignIn) -> tuple[SignedIn, Me]:
        """Sign in and learn our name, as long as it takes."""
        deps, failures = self._deps, 0
        while True:
            try:
                signed_in = await signing.session()
                client.use(signed_in.session)
                user_id = signed_in.session.user_id
                return signed_in, Me(user_id, await client.display_name(user_id))
            except TokenRefused:
                raise
            except MatrixError as error:
                failures += 1
                trial = judge(error, failures, deps.entropy.uniform(0.0, 1.0))
                self._show(ChannelState.RETRYING, trial.detail)
                await deps.clock.sleep(trial.wait_s)

    async def _attach(
        self,
        client: MatrixClient,
        sender: Sender,
        streams: Streams,
        menus: Menus,
        signed_in: SignedIn,
    ) -> None:
        """Open the way out, and let go at once what waited for it."""
        deps = self._deps
        deps.channel.attach(
            deps.agent_id,
            BotHandle(
                client,
                sender,
                deps.settings,
                streams.takeover,
                menus.offered,
                signed_in.since_ms,
                deps.tell,
            ),
        )
        await deps.database.write(
            partial(
                outbox.wake_tx,
                channel=CHANNEL,
                agent_id=deps.agent_id,
                detail=NOT_ATTACHED,
            ),
            name="matrix.attached",
        )

    def _incoming(
        self,
        client: MatrixClient,
        me: Me,
        whose: Owner,
        menus: Menus,
        waiting: Waiting,
        streams: Streams,
        rooms: Rooms,
        marks: Marks,
    ) -> Incoming:
        deps = self._deps
        say = SayDeps(
            agent_id=deps.agent_id,
            agent_name=deps.agent_name,
            owner=whose,
            me=me,
            database=deps.database,
            mailbox=deps.mailbox,
            inbox=deps.inbox,
            commands=deps.commands,
            clock=deps.clock,
            entropy=deps.entropy,
            client=client,
            workspace=deps.workspace,
            files=deps.files,
            answers=menus,
            accepted=streams.accepted,
            max_file_bytes=deps.limits.max_file_bytes,
        )
        return Incoming(
            say,
            spec=deps.spec,
            people=deps.people,
            menus=menus,
            waiting=waiting,
            rooms=rooms,
            doors=client,
            marks=marks,
            max_age_s=deps.limits.max_age_s,
            rooms_at_once=deps.limits.rooms_at_once,
            backlog=deps.limits.backlog,
            tell=deps.tell,
            set_aside=self._set_aside,
        )

    def _set_aside(self, count: int) -> None:
        self._report = replace(self._report, quarantined=count)
        self._deps.report(self._report)

    def _show(self, state: ChannelState, detail: str = "", polled_at: int | None = None) -> None:
        self._report = replace(
            self._report,
            state=state,
            detail=detail,
            last_poll_at=polled_at or self._report.last_poll_at,
        )
        self._deps.report(self._report)


def _refused(agent_name: str, error: TokenRefused) -> str:
    return (
        f"the homeserver does not let {agent_name} in ({error.message}); put a valid "
        "matrix.access_token or matrix.password into its entry"
    )
