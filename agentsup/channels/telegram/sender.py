"""The sender of one bot: all calls to chats pass it, by priority and within the rate limits.

Answers wait until they may be sent. Optional calls (typing, drafts, edits of a stream) are dropped
as soon as they would have to wait long, and a part of every limit is reserved for the others, so
that an answer never waits behind them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from math import inf
from typing import Any

from agentsup.channels.core.errors import LowPriorityDropped, NotSent, PlatformError, RateLimited
from agentsup.channels.core.files.upload import UploadFile
from agentsup.channels.core.sending.http import BeforeSending
from agentsup.channels.telegram.client import TelegramClient
from agentsup.channels.telegram.flood import (
    CallKind,
    QueuedSend,
    SendPlan,
    kind_of,
    plan,
)
from agentsup.kit.clock import Clock
from agentsup.kit.tasks import TaskOwner, is_set_within

_WAIT_S = 5.0
"""Longest wait of a send that may not be dropped; the relay, or another caller, tries it again."""
_CLOSE_S = 1.0
_LOW_PRIORITY_MAX = 8
"""Most low-priority calls under way: half of the calls that one bot may have under way, so that those
which the platform does not answer leave enough for answers."""


class SendPriority(IntEnum):
    """The order of sends; the first two kinds are never dropped."""

    FINAL = 0
    BUTTONS = 1
    EDIT = 2
    TYPING = 3
    DRAFT = 4


_PATIENCE_S = {SendPriority.EDIT: 1.0, SendPriority.DRAFT: 0.3}
"""Seconds that a droppable send waits at most."""


@dataclass(frozen=True, slots=True, eq=False)
class _Ticket:
    waiting: QueuedSend
    turn: asyncio.Future[None]
    replaces: str | None


class Sender:
    """Sends for one bot within the platform's limits."""

    def __init__(self, client: TelegramClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._flood = client.flood
        self._tickets: dict[int, _Ticket] = {}
        self._wake = asyncio.Event()
        self._owner = TaskOwner("telegram sender")
        self._pump: asyncio.Task[None] | None = None
        self._low_priority = 0
        self._is_closed = False

    async def send(
        self,
        chat_id: int,
        method: str,
        *,
        priority: SendPriority,
        droppable: bool = False,
        replaces: str | None = None,
        timeout_s: float = 20.0,
        files: Mapping[str, UploadFile] | None = None,
        before: BeforeSending | None = None,
        **fields: Any,
    ) -> Any:
        """Wait until this send may begin, call ``method`` with ``chat_id`` and return its result.

        ``before`` is awaited after all waits, immediately before the request is sent.

        A droppable send that cannot begin soon raises ``LowPriorityDropped``; so does one that
        waits when a newer one with the same ``replaces`` arrives. Another send raises ``RateLimited``
        if it would have to wait too long (a message: if the platform has asked for a pause).
        ``NotSent``: the sender is closed. In all these cases, and after a cancellation during the
        wait, nothing was sent. Else raises what ``TelegramClient.call`` raises.
        """
        kind = kind_of(method)
        with self._counted(priority, droppable=droppable):
            ticket = await self._turn(chat_id, kind, priority, replaces, droppable=droppable)
            try:
                return await self._client.call(
                    method,
                    timeout_s=timeout_s,
                    files=files,
                    before=before,
                    chat_id=chat_id,
                    **fields,
                )
            except RateLimited as error:
                self._flood.refused(chat_id, kind, error.retry_after_s, self._clock.monotonic())
                raise
            finally:
                self._flood.end(ticket, chat_id, kind, self._clock.monotonic())
                self._wake.set()

    @contextmanager
    def _counted(self, priority: SendPriority, *, droppable: bool) -> Iterator[None]:
        """Bound how many calls of low priority wait or are under way."""
        if droppable and self._low_priority >= _LOW_PRIORITY_MAX:
            raise LowPriorityDropped("too much is under way")
        is_low = priority > SendPriority.BUTTONS
        self._low_priority += is_low
        try:
            yield
        finally:
            self._low_priority -= is_low

    async def _turn(
        self,
        chat_id: int,
        kind: CallKind,
        priority: SendPriority,
        replaces: str | None,
        *,
        droppable: bool,
    ) -> int:
        """Wait until this send may begin; from then on it is counted."""
        if self._is_closed:
            raise NotSent("this bot's sender is closed")
        if replaces is not None:
            self.withdraw(replaces)
        now = self._clock.monotonic()
        patience_s = _PATIENCE_S.get(priority, 0.0) if droppable else _WAIT_S
        if kind is CallKind.MESSAGE and self._flood.pause_s(chat_id, now, kind) > 0:
            # Do not wait here: the outbox row stores the time, also for a restart, and the slot in
            # the relay is free for others meanwhile.
            patience_s = 0.0
        waiting = QueuedSend(
            ticket=self._flood.new_ticket(),
            chat_id=chat_id,
            kind=kind,
            priority=int(priority),
            give_up_at=now + patience_s,
            is_droppable=droppable,
        )
        turn = asyncio.get_running_loop().create_future()
        self._tickets[waiting.ticket] = _Ticket(waiting, turn, replaces)
        self._decide()
        self._wake.set()  # the next decision may be due earlier now
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                # It was let go at the same instant and is counted, but nothing was sent.
                self._flood.end(waiting.ticket, chat_id, kind, self._clock.monotonic())
                self._wake.set()
            raise
        finally:
            self._tickets.pop(waiting.ticket, None)
        return waiting.ticket

    def withdraw(self, key: str) -> bool:
        """Drop a waiting send with ``replaces == key``; False if none waits."""
        found = [one for one in self._tickets.values() if one.replaces == key]
        for ticket in found:
            self._refuse(ticket, LowPriorityDropped("a newer one took its place"))
        return bool(found)

    def pause_s(self, chat_id: int, kind: CallKind = CallKind.LIGHT) -> float:
        """Return for how many seconds Telegram has paused such calls to this chat, or 0.

        The pause of light calls is the longest, that of messages the shortest.
        """
        return self._flood.pause_s(chat_id, self._clock.monotonic(), kind)

    async def close(self) -> None:
        """End the sender; waiting sends raise ``NotSent``."""
        self._is_closed = True
        for ticket in [*self._tickets.values()]:
            self._refuse(ticket, NotSent("this bot's sender is closed"))
        await self._owner.close(_CLOSE_S)

    def _decide(self) -> float:
        """Begin and give up sends that are due; return when to decide again, in loop seconds."""
        waiting = (one.waiting for one in self._tickets.values() if not one.turn.done())
        made: SendPlan = plan(waiting, self._flood, self._clock.monotonic())
        for one in made.go:
            ticket = self._tickets.pop(one.ticket)
            ticket.turn.set_result(None)
        for one, wait_s in made.give_up:
            self._refuse(
                self._tickets[one.ticket],
                LowPriorityDropped("no room for it now")
                if one.is_droppable
                else RateLimited(wait_s, "our limits ask for a pause"),
            )
        if self._tickets and self._pump is None:
            self._pump = self._owner.spawn(self._pumping(), name="telegram:sender")
        return made.look_at

    def _refuse(self, ticket: _Ticket, error: PlatformError) -> None:
        self._tickets.pop(ticket.waiting.ticket, None)
        if not ticket.turn.done():
            ticket.turn.set_exception(error)

    async def _pumping(self) -> None:
        """Decide again whenever a send ends or time allows more; runs while sends wait."""
        try:
            while self._tickets:
                self._wake.clear()
                wait_s = self._decide() - self._clock.monotonic()
                if not self._tickets:
                    break
                await is_set_within(self._wake, None if wait_s == inf else max(0.0, wait_s))
        finally:
            self._pump = None
