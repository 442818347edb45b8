"""One life of one agent's Telegram bot: connect, receive, show what runs, and take leave."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from agentsup.catalogue import Catalogue
from agentsup.channels.inbox import Inbox
from agentsup.channels.lifetime import escaped, until
from agentsup.channels.received import swept
from agentsup.channels.report import ChannelReport, ChannelState
from agentsup.channels.telegram import updates
from agentsup.channels.telegram.access import People
from agentsup.channels.telegram.client import SharedHttp, TelegramClient
from agentsup.channels.telegram.deliver import (
    NOT_ATTACHED,
    BotHandle,
    TelegramChannel,
    TelegramSettings,
)
from agentsup.channels.telegram.desk import SayDeps
from agentsup.channels.telegram.errors import TelegramError, TokenRefused
from agentsup.channels.telegram.event import Me
from agentsup.channels.telegram.incoming import Incoming
from agentsup.channels.telegram.menus import Menus
from agentsup.channels.telegram.poll import Poller, judge
from agentsup.channels.telegram.profile import publish_profile
from agentsup.channels.telegram.sender import Sender
from agentsup.channels.telegram.stream import Streams
from agentsup.channels.telegram.waiting import Waiting
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.kit.pool import BoundedPool
from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox import outbox
from agentsup.mailbox.mailbox import Mailbox
from agentsup.model.agent import AgentSpec, Secret
from agentsup.model.control import Commands
from agentsup.model.errors import AgentsupError
from agentsup.observe.live import LiveHub
from agentsup.observe.logging import get_logger
from agentsup.store.database import Database
from agentsup.store.events import EventLog

__all__ = ["ChannelReport", "ChannelState", "ReceiveLimits", "TelegramBot", "TelegramDeps"]

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ReceiveLimits:
    """The bounds of receiving. Durations in seconds."""

    max_age_s: float = 24 * 3600.0
    """Messages older than this are named, not answered."""
    max_file_bytes: int = 20 * 1024 * 1024
    """What the Bot API gives out; a local server gives more."""
    poll_s: float = 50.0
    deaf_after_s: float = 180.0
    """Without an answered poll for this long, others are told."""
    chats_at_once: int = 16
    backlog: int = 2000
    """Stored updates held in memory; beyond it the next poll waits."""
    album_s: float = 1.0
    """How long the rest of an album is waited for."""
    waiting_note_s: float = 3.0
    """A message that waits longer than this behind others is told so."""
    drain_s: float = 3.0


@dataclass(frozen=True, slots=True)
class TelegramDeps:
    """What a bot works with; made by the daemon for each life."""

    agent_id: str
    agent_name: str
    workspace: Path
    files: BoundedPool = field(default_factory=lambda: BoundedPool("files"), kw_only=True)
    """Where work on the workspace is done."""
    token: Secret
    """Resolved, so no reference."""
    spec: Callable[[], AgentSpec]
    database: Database
    mailbox: Mailbox
    inbox: Inbox
    commands: Commands
    events: EventLog
    live: LiveHub
    clock: Clock
    entropy: Entropy
    channel: TelegramChannel
    http: SharedHttp
    people: People
    report: Callable[[ChannelReport], None]
    """Told of every change of state and of each answered poll."""
    tell: Callable[[str], Awaitable[None]]
    """Says something to the operator where this bot is not needed for it."""
    settings: Callable[[], TelegramSettings]
    """What deliveries follow; asked for each."""
    catalogue: Catalogue
    limits: ReceiveLimits = field(default_factory=ReceiveLimits)


class TelegramBot:
    """The bot of one agent. ``run`` is the body of a supervised child."""

    def __init__(self, deps: TelegramDeps) -> None:
        self._deps = deps
        self._report = ChannelReport(deps.agent_id, ChannelState.CONNECTING)

    async def run(self, ready: Callable[[], None], draining: asyncio.Event) -> None:
        """Receive and show until ``draining`` is set. ``ready`` is called at once.

        The bot is ready when it tries: without a network an agent must not fail, but wait. Raises
        ``TokenRefused`` when the platform does not know the token: a new life with the same token
        has no use. Everything else the platform does is waited out in here.
        """
        deps = self._deps
        base_url = deps.spec().telegram_base_url or ""
        client = TelegramClient(deps.token, base_url, http=deps.http)
        sender = Sender(client, deps.clock)
        owner = TaskOwner(f"telegram {deps.agent_name}", on_error=escaped)
        self._show(ChannelState.CONNECTING)
        try:
            await until(draining, self._life(client, sender, owner, ready, draining), owner)
        except TokenRefused as error:
            self._show(ChannelState.REFUSED, _refused(deps.agent_name, error))
            raise
        else:
            self._show(ChannelState.STOPPED)
        finally:
            deps.channel.detach(deps.agent_id)
            await owner.close(1.0)
            await sender.close()
            await client.close()

    async def _life(
        self,
        client: TelegramClient,
        sender: Sender,
        owner: TaskOwner,
        ready: Callable[[], None],
        draining: asyncio.Event,
    ) -> None:
        deps = self._deps
        ready()
        me = await self._meet(client)
        # No other life of this bot fetches any now.
        await swept(deps.workspace, owner=f"telegram-{deps.agent_id}", files=deps.files)
        set_aside = await deps.database.read(
            lambda reader: updates.quarantined(reader, client.bot_id), name="telegram.quarantined"
        )
        self._report = replace(self._report, bot_name=me.username, quarantined=set_aside)
        streams = Streams(deps, sender)
        menus = Menus(
            agent_id=deps.agent_id,
            database=deps.database,
            mailbox=deps.mailbox,
            commands=deps.commands,
            clock=deps.clock,
            entropy=deps.entropy,
            sender=sender,
            client=client,
            spec=deps.spec,
        )
        await self._attach(client, sender, streams)
        waiting = Waiting(
            agent_id=deps.agent_id,
            database=deps.database,
            sender=sender,
            clock=deps.clock,
            entropy=deps.entropy,
            after_s=deps.limits.waiting_note_s,
        )
        say = self._say_deps(me, client, menus, streams)
        poller = self._poller(client)
        incoming = Incoming(
            say,
            spec=deps.spec,
            people=deps.people,
            menus=menus,
            waiting=waiting,
            max_age_s=deps.limits.max_age_s,
            chats_at_once=deps.limits.chats_at_once,
            backlog=deps.limits.backlog,
            tell=deps.tell,
            caught_up=lambda: poller.caught_up,
            set_aside=self._set_aside,
        )
        owner.spawn(self._publish(client), name=f"telegram-profile:{deps.agent_name}")
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(streams.run(draining), name=f"streams:{deps.agent_name}")
                group.create_task(menus.run(draining), name=f"menus:{deps.agent_name}")
                group.create_task(waiting.run(draining), name=f"waiting:{deps.agent_name}")
                group.create_task(incoming.run(), name=f"again:{deps.agent_name}")
                await incoming.take_leftovers()
                await poller.run(incoming.take)
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            await waiting.close()
            await incoming.close(deps.limits.drain_s)

    # -- pieces ------------------------------------------------------------------------------------

    async def _meet(self, client: TelegramClient) -> Me:
        """Ask who we are, as long as it takes."""
        deps, failures = self._deps, 0
        while True:
            try:
                answer = await client.call("getMe")
                return Me(int(answer["id"]), str(answer.get("username", "")))
            except TokenRefused:
                raise
            except (TelegramError, KeyError, TypeError, ValueError) as error:
                failures += 1
                wrong = error if isinstance(error, TelegramError) else TelegramError("no bot")
                trial = judge(wrong, failures, deps.entropy.uniform(0.0, 1.0))
                self._show(ChannelState.RETRYING, trial.detail)
                await deps.clock.sleep(trial.wait_s)

    async def _attach(self, client: TelegramClient, sender: Sender, streams: Streams) -> None:
        """Open the way out, and let go at once what waited for it."""
        deps = self._deps
        deps.channel.attach(
            deps.agent_id,
            BotHandle(client, sender, deps.settings, streams.takeover, self._moved, self._in_place),
        )
        await deps.database.write(
            partial(
                outbox.wake_tx,
                channel=updates.CHANNEL,
                agent_id=deps.agent_id,
                detail=NOT_ATTACHED,
            ),
            name="telegram.attached",
        )

    def _say_deps(self, me: Me, client: TelegramClient, menus: Menus, streams: Streams) -> SayDeps:
        deps = self._deps
        return SayDeps(
            agent_id=deps.agent_id,
            agent_name=deps.agent_name,
            bot_id=client.bot_id,
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
            album_s=deps.limits.album_s,
            max_file_bytes=deps.limits.max_file_bytes,
        )

    def _poller(self, client: TelegramClient) -> Poller:
        deps = self._deps
        return Poller(
            client=client,
            database=deps.database,
            clock=deps.clock,
            entropy=deps.entropy,
            poll_s=deps.limits.poll_s,
            deaf_after_s=deps.limits.deaf_after_s,
            show=self._show,
            tell=deps.tell,
            agent_name=deps.agent_name,
        )

    async def _publish(self, client: TelegramClient) -> None:
        deps = self._deps
        spec = deps.spec()
        try:
            await publish_profile(
                client,
                database=deps.database,
                clock=deps.clock,
                commands=deps.commands,
                catalogue=deps.catalogue,
                agent_id=deps.agent_id,
                bot_id=client.bot_id,
                server=spec.telegram_base_url or "",
                description=spec.description,
            )
        except AgentsupError as error:
            # The poll loop meets the same trouble and decides about it.
            _log.warning("the profile was not set", agent=deps.agent_name, why=str(error))

    async def _in_place(self, outbox_id: int, platform_id: int | None) -> None:
        await self._deps.database.write(
            partial(outbox.in_place_tx, outbox_id=outbox_id, platform_id=platform_id),
            name="telegram.in_place",
        )

    def _moved(self, old_id: int, new_id: int) -> None:
        _log.warning(
            "a group has a new id; put it into allowed_group_ids",
            agent=self._deps.agent_name,
            old_id=old_id,
            new_id=new_id,
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
        f"Telegram does not know the token of {agent_name} ({error.message}); get a new one from "
        "@BotFather and put it into telegram_token"
    )
