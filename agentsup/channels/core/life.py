"""One life of one agent's bot: connect, receive, show what runs, report, and close."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from agentsup.channels.core.buttons.presses import Presses
from agentsup.channels.core.errors import PlatformError, TokenRefused
from agentsup.channels.core.files.inbox_files import sweep_inbox
from agentsup.channels.core.live.streams import StreamSet
from agentsup.channels.core.live.waiting_notes import WaitingNotes
from agentsup.channels.core.receiving import rows as stored
from agentsup.channels.core.receiving.incoming import ReceivedItems
from agentsup.channels.core.receiving.messages import BotDependencies, BotServices
from agentsup.channels.core.receiving.rows import RowOwner
from agentsup.channels.core.receiving.source import RetryDecision, Source
from agentsup.channels.core.report import ChannelReport, ChannelState
from agentsup.channels.core.sending.deliver import LONG_PAUSE_S
from agentsup.kit.log import get_logger
from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox.delivery import outbox
from agentsup.model.channel import RetryReason

_log = get_logger(__name__)
_LIFE = "bot:life"
_PAUSES_MAX = 100
_END_S = 8.0
"""Longest wait for a cancelled life; more than the lanes' drain. After it the task is abandoned."""


class Connection(Protocol):
    """The clients of one life."""

    async def close(self) -> None:
        """Send and receive nothing more."""
        ...


@dataclass(frozen=True, slots=True)
class LifeParts:
    """The parts that work during one life, once the bot is connected."""

    streams: StreamSet[Any]
    menus: Presses[Any]
    waiting: WaitingNotes
    incoming: ReceivedItems[Any]
    source: Source
    close: Callable[[], Awaitable[None]] | None = None
    """Closes further parts of the platform."""


ConnectionT = TypeVar("ConnectionT", bound=Connection)
AccountT = TypeVar("AccountT")


class Bot(ABC, Generic[ConnectionT, AccountT]):
    """The bot of one agent. ``run`` is the body of a supervised child.

    ``AccountT`` is how the platform describes the bot's account.
    """

    def __init__(self, deps: BotDependencies) -> None:
        self._deps = deps
        self._report = ChannelReport(deps.agent_id, ChannelState.CONNECTING, deps.channel.name)
        self._pauses: dict[str, int] = {}
        """By conversation, until when nothing is sent there (wall ms)."""

    # -- what a platform does ----------------------------------------------------------------------

    @abstractmethod
    def _open(self) -> ConnectionT:
        """Make the clients of a life; nothing is sent yet."""

    @abstractmethod
    async def _identify(self, connection: ConnectionT) -> AccountT:
        """Sign in and ask the platform who the bot is. Raises a ``PlatformError``."""

    @abstractmethod
    def _row_owner(self, connection: ConnectionT, me: AccountT) -> RowOwner:
        """Return the owner of what the bot receives."""

    @abstractmethod
    def _attach(self, connection: ConnectionT, me: AccountT, owner: TaskOwner) -> LifeParts:
        """Make the parts of a life, and let the outbox deliver through it.

        ``owner`` holds further tasks of the life.
        """

    @abstractmethod
    def _after_failure(self, error: PlatformError, failures: int, unit: float) -> RetryDecision:
        """Decide what to do after the ``failures``-th failed attempt to connect (from 1)."""

    @abstractmethod
    def _advice(self, error: TokenRefused) -> str:
        """Return what to do about a refused token or account."""

    def _refusal(self, error: TokenRefused) -> TokenRefused:
        """Return the error with which the bot ends."""
        return error

    def _may_renew(self, connection: ConnectionT, error: TokenRefused, age_s: float) -> bool:
        """Whether another life is of use, after one of ``age_s`` seconds ended with ``error``."""
        return False

    def _notes(self) -> tuple[str, ...]:
        """Return what people should know of how the bot is set up on the platform."""
        return ()

    # -- a life ------------------------------------------------------------------------------------

    async def run(self, ready: Callable[[], None], draining: asyncio.Event) -> None:
        """Receive and show until ``draining`` is set. ``ready`` is called at once.

        The bot is ready before it is connected, because without a network an agent must wait and
        not fail. Raises ``TokenRefused`` if the platform refuses the token or the account for good.
        After all other errors of the platform the bot waits and tries again.
        """
        ready()
        while await self._live_once(draining):
            pass
        self._report_state(ChannelState.STOPPED)

    async def _live_once(self, draining: asyncio.Event) -> bool:
        """Run one life. Returns True if its session ended and another life must follow."""
        deps, connection = self._deps, self._open()
        begun_at = deps.clock.monotonic()
        owner = TaskOwner(f"{self._deps.channel.name} {deps.agent_name}", on_error=_escaped)
        self._report_state(ChannelState.CONNECTING)
        try:
            await _until(draining, self._live(connection, owner, draining), owner)
        except TokenRefused as error:
            if self._may_renew(connection, error, deps.clock.monotonic() - begun_at):
                return True
            self._report_state(ChannelState.REFUSED, self._advice(error))
            raise self._refusal(error) from error
        finally:
            self._deps.channel.detach(deps.agent_id)
            await owner.close(1.0)
            await connection.close()
        return False

    async def _live(
        self, connection: ConnectionT, owner: TaskOwner, draining: asyncio.Event
    ) -> None:
        deps, channel = self._deps, self._deps.channel.name
        me = await self._sign_in(connection)
        # No other life of this bot is fetching files now.
        await sweep_inbox(deps.workspace, owner=f"{channel}-{deps.agent_id}", files=deps.files)
        quarantined = await deps.database.read(
            stored.quarantined, self._row_owner(connection, me), name=f"{channel}.quarantined"
        )
        self._report = replace(self._report, quarantined=quarantined)
        parts = self._attach(connection, me, owner)
        await self._watch_pauses(owner)
        await deps.database.write(
            partial(
                outbox.make_due_tx,
                channel=channel,
                agent_id=deps.agent_id,
                reason=RetryReason.ABSENT_BOT,
            ),
            name=f"{channel}.attached",
        )
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(parts.streams.run(draining), name=f"streams:{deps.agent_name}")
                group.create_task(parts.menus.run(draining), name=f"menus:{deps.agent_name}")
                group.create_task(parts.waiting.run(draining), name=f"waiting:{deps.agent_name}")
                group.create_task(parts.incoming.feed.try_again(), name=f"again:{deps.agent_name}")
                await parts.incoming.feed.take_leftovers()
                await parts.source.run(parts.incoming.feed.take)
        except ExceptionGroup as errors:
            first, *others = errors.exceptions
            for other in others:
                _log.error("another part of a bot failed beside", exc_info=other)
            raise first from None
        finally:
            await parts.waiting.close()
            await parts.incoming.close(self._deps.limits.drain_s)
            if parts.close is not None:
                await parts.close()

    async def _sign_in(self, connection: ConnectionT) -> AccountT:
        """Identify the bot; repeated until it succeeds."""
        deps, failures = self._deps, 0
        while True:
            try:
                return await self._identify(connection)
            except TokenRefused:
                raise
            except PlatformError as error:
                failures += 1
                decision = self._after_failure(error, failures, deps.entropy.uniform(0.0, 1.0))
                self._report_state(ChannelState.RETRYING, decision.detail)
                await deps.clock.sleep(decision.wait_s)

    # -- for the parts of a platform ---------------------------------------------------------------

    def _receive_fields(self, owner: RowOwner) -> dict[str, Any]:
        """Return what receiving needs on every platform, by the fields of ``ReceiveDependencies``."""
        shared = {each.name: getattr(self._deps, each.name) for each in fields(BotServices)}
        own = {"owner": owner, "limits": self._deps.limits, "set_aside": self._quarantine_changed}
        return shared | own

    def _quarantine_changed(self, count: int) -> None:
        """Report the number of received updates in quarantine."""
        self._report = replace(self._report, quarantined=count)
        self._deps.report(self._report)

    async def _watch_pauses(self, owner: TaskOwner) -> None:
        """Show long pauses that the platform asks for, also those of earlier lives."""
        deps = self._deps

        def watch(conversation: str, seconds: float) -> None:
            self._pauses[conversation] = deps.clock.now_ms() + round(seconds * 1000)
            if len(self._pauses) > _PAUSES_MAX:
                del self._pauses[next(iter(self._pauses))]
            self._show_pauses()
            owner.spawn(self._end_pause(seconds), name=f"pause:{deps.agent_name}")

        deps.channel.watch_pauses(deps.agent_id, watch)
        left = await deps.database.read(
            partial(
                outbox.paused,
                channel=deps.channel.name,
                agent_id=deps.agent_id,
                own_ms=deps.mailbox.context.steady.now_ms(),
                over_ms=round(LONG_PAUSE_S * 1000),
            ),
            name=f"{deps.channel.name}.paused",
        )
        for conversation, left_ms in left[:_PAUSES_MAX]:
            watch(conversation, left_ms / 1000)

    async def _end_pause(self, seconds: float) -> None:
        await self._deps.clock.sleep(seconds)
        self._show_pauses()

    def _show_pauses(self) -> None:
        now = self._deps.clock.now_ms()
        self._pauses = {name: until for name, until in self._pauses.items() if until > now}
        title = self._deps.channel.name.capitalize()
        texts = [
            f"{title} asks for a pause until "
            f"{datetime.fromtimestamp(until / 1000, UTC):%Y-%m-%d %H:%M} UTC in the chat {chat}"
            for chat, until in self._pauses.items()
        ]
        more = f" and in {len(texts) - 1} more" if len(texts) > 1 else ""
        self._report = replace(self._report, paused="".join(texts[:1]) + more)
        self._deps.report(self._report)

    def _report_state(
        self, state: ChannelState, detail: str = "", polled_at: int | None = None
    ) -> None:
        """Report the state; ``polled_at`` is when a poll was answered, in wall ms."""
        self._report = replace(
            self._report,
            state=state,
            detail=detail,
            notes=self._notes(),
            last_poll_at=polled_at or self._report.last_poll_at,
        )
        self._deps.report(self._report)


def _escaped(task: asyncio.Task[Any], error: BaseException) -> None:
    """Log a task of a bot that ended with an error; for ``TaskOwner``."""
    if task.get_name() != _LIFE:  # ``_until`` raises the error of the life
        _log.error("a task of a bot ended with an error", task=task.get_name(), exc_info=error)


async def _until(
    draining: asyncio.Event, life: Coroutine[Any, Any, None], owner: TaskOwner
) -> None:
    """Run ``life`` until it ends or ``draining`` is set; then cancel it and wait for its end.

    Raises what ``life`` raises.
    """
    working = owner.spawn(life, name=_LIFE)
    waiting = owner.spawn(draining.wait(), name="drain:bot")
    try:
        await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        if not working.done():
            working.cancel()
            await asyncio.wait({working}, timeout=_END_S)
    if working.done() and not working.cancelled() and (error := working.exception()) is not None:
        raise error
