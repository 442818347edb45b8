"""One bot's way out: everything written to chats passes here, paced and by priority.

What people asked for waits its turn; what only decorates (typing, drafts, edits of a stream) is
dropped as soon as there is any pressure, and a part of every limit is closed to it, so that an
answer never waits behind it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from math import inf
from typing import Any, Protocol

from agentsup.channels.http import BeforeSending
from agentsup.channels.telegram.errors import Dropped, FloodWait, NotSent, TelegramError
from agentsup.channels.telegram.flood import Flood, Kind, Plan, Waiting, kind_of, plan
from agentsup.channels.upload import UploadFile
from agentsup.kit.clock import Clock
from agentsup.kit.tasks import TaskOwner

__all__ = ["Caller", "SendPriority", "Sender"]

_WAIT_S = 5.0
"""Longest wait for our own pace of what is not droppable: it lies in the outbox and can come
back."""
_CLOSE_S = 1.0


class SendPriority(IntEnum):
    """Who goes first; the first two are never dropped."""

    FINAL = 0
    BUTTONS = 1
    EDIT = 2
    TYPING = 3
    DRAFT = 4


_PATIENCE_S = {SendPriority.EDIT: 1.0, SendPriority.DRAFT: 0.3}
"""How long a droppable send waits for its turn."""


class Caller(Protocol):
    """What a sender needs of a client."""

    @property
    def flood(self) -> Flood:
        """What this bot has sent lately, in all its lives."""
        ...

    async def call(
        self,
        method: str,
        *,
        timeout_s: float = 20.0,
        files: Mapping[str, UploadFile] | None = None,
        before: BeforeSending | None = None,
        **fields: Any,
    ) -> Any: ...


@dataclass(frozen=True, slots=True, eq=False)
class _Ticket:
    waiting: Waiting
    turn: asyncio.Future[None]
    replaces: str | None


class Sender:
    """Sends for one bot within the platform's limits."""

    def __init__(self, client: Caller, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._flood = client.flood
        self._tickets: dict[int, _Ticket] = {}
        self._wake = asyncio.Event()
        self._owner = TaskOwner("telegram sender")
        self._pump: asyncio.Task[None] | None = None
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
        """Wait for the turn of this send, call ``method`` with ``chat_id`` and return its result.

        ``before`` is awaited after all waits, when the request is about to leave.

        A droppable send that can't go soon raises ``Dropped``; so does one that waits while a
        newer one with the same ``replaces`` arrives. Another raises ``FloodWait`` when its turn is
        further away than it may wait (a message: when the platform has asked for a pause),
        ``NotSent`` when the sender is closed. All of that means
        that nothing was sent, as does a cancellation while it waits. Else raises what
        ``TelegramClient.call`` raises.
        """
        kind = kind_of(method)
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
        except FloodWait as error:
            self._flood.refused(chat_id, kind, error.retry_after_s, self._clock.monotonic())
            raise
        finally:
            self._flood.end(ticket, chat_id, kind, self._clock.monotonic())
            self._wake.set()

    async def _turn(
        self,
        chat_id: int,
        kind: Kind,
        priority: SendPriority,
        replaces: str | None,
        *,
        droppable: bool,
    ) -> int:
        """Wait until this send may begin; it is counted from then on."""
        if self._is_closed:
            raise NotSent("this bot's sender is closed")
        if replaces is not None:
            self.withdraw(replaces)
        now = self._clock.monotonic()
        patience_s = _PATIENCE_S.get(priority, 0.0) if droppable else _WAIT_S
        if kind is Kind.MESSAGE and self._flood.pause_s(chat_id, now, kind) > 0:
            # Not waited out here: its row in the outbox keeps the time too, over a restart as well,
            # and its place in the relay is free for others.
            patience_s = 0.0
        waiting = Waiting(
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
        self._wake.set()  # what was planned before may be earlier now
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                # Its turn had come in the same instant; nothing was sent all the same.
                self._flood.end(waiting.ticket, chat_id, kind, self._clock.monotonic())
                self._wake.set()
            raise
        finally:
            self._tickets.pop(waiting.ticket, None)
        return waiting.ticket

    def withdraw(self, key: str) -> bool:
        """Take back a waiting send with ``replaces == key``; False if none waits."""
        found = [one for one in self._tickets.values() if one.replaces == key]
        for ticket in found:
            self._refuse(ticket, Dropped("a newer one took its place"))
        return bool(found)

    def pause_s(self, chat_id: int, kind: Kind = Kind.LIGHT) -> float:
        """Seconds for which Telegram has asked us (or the bot) to send no such calls to this chat;
        or 0. A pause of light calls is the longest, one of messages the shortest."""
        return self._flood.pause_s(chat_id, self._clock.monotonic(), kind)

    async def close(self) -> None:
        """End what waits; it raises ``NotSent``."""
        self._is_closed = True
        for ticket in [*self._tickets.values()]:
            self._refuse(ticket, NotSent("this bot's sender is closed"))
        await self._owner.close(_CLOSE_S)

    def _decide(self) -> float:
        """Let go and give up what is due; returns when to look again."""
        waiting = (one.waiting for one in self._tickets.values() if not one.turn.done())
        made: Plan = plan(waiting, self._flood, self._clock.monotonic())
        for one in made.go:
            ticket = self._tickets.pop(one.ticket)
            ticket.turn.set_result(None)
        for one, wait_s in made.give_up:
            self._refuse(
                self._tickets[one.ticket],
                Dropped("no room for it now")
                if one.is_droppable
                else FloodWait(wait_s, "our limits ask for a pause"),
            )
        if self._tickets and self._pump is None:
            self._pump = self._owner.spawn(self._pumping(), name="telegram:sender")
        return made.look_at

    def _refuse(self, ticket: _Ticket, error: TelegramError) -> None:
        self._tickets.pop(ticket.waiting.ticket, None)
        if not ticket.turn.done():
            ticket.turn.set_exception(error)

    async def _pumping(self) -> None:
        """Decide again whenever something ends or time allows more; lives while anything waits."""
        try:
            while self._tickets:
                self._wake.clear()
                wait_s = self._decide() - self._clock.monotonic()
                if not self._tickets:
                    break
                try:
                    async with asyncio.timeout(None if wait_s == inf else max(0.0, wait_s)):
                        await self._wake.wait()
                except TimeoutError:
                    continue
        finally:
            self._pump = None
