"""Signs that a message is being worked on: "typing" in the chat, eyes on the person's message.

All of it is a courtesy: sent with the lowest priority, given up under pressure, and never waited
for by an answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from agentsup.channels.telegram.errors import ChatGone, Refused, TelegramError, TokenRefused
from agentsup.channels.telegram.place import Place
from agentsup.channels.telegram.sender import SendPriority
from agentsup.kit.clock import Clock
from agentsup.kit.tasks import OwnerClosed, TaskOwner
from agentsup.model.errors import Overloaded, StoreUnavailable
from agentsup.model.message import State
from agentsup.store.database import Database, Reader

__all__ = ["TYPING_S", "Outgoing", "Reactions", "Typing"]

_log = logging.getLogger(__name__)

TYPING_S = 4.5
"""The platform shows "typing" for 5 seconds."""
_FIRST_TYPING_S = 0.2
"""What is answered at once needs no sign."""
_SEEN = "👀"
_REACTIONS_MAX = 1_000
_CLEAR_ATTEMPTS = 4
_CLEAR_PAUSE_S = 5.0
_OPEN = frozenset({State.QUEUED, State.LEASED, State.PARKED})


class Outgoing(Protocol):
    """What is used here of the bot's ``Sender``."""

    async def send(
        self,
        chat_id: int,
        method: str,
        *,
        priority: SendPriority,
        droppable: bool = False,
        replaces: str | None = None,
        timeout_s: float = 20.0,
        **fields: Any,
    ) -> Any: ...

    def withdraw(self, key: str) -> bool: ...

    def pause_s(self, chat_id: int) -> float: ...


@dataclass(slots=True)
class _Sign:
    ticker: asyncio.Task[None]
    reasons: int = 0


class Typing:
    """Shows "typing" in a place while anything runs there."""

    def __init__(self, sender: Outgoing, clock: Clock, owner: TaskOwner) -> None:
        self._sender = sender
        self._clock = clock
        self._owner = owner
        self._busy: dict[Place, _Sign] = {}

    @contextmanager
    def during(self, place: Place) -> Iterator[None]:
        """Show it from now until the block ends; blocks of one place share one sign."""
        sign = self._busy.get(place)
        if sign is None:
            name = f"typing:{place.conversation}"
            sign = self._busy[place] = _Sign(self._owner.spawn(self._tick(place), name=name))
        sign.reasons += 1
        try:
            yield
        finally:
            sign.reasons -= 1
            if not sign.reasons:
                del self._busy[place]
                sign.ticker.cancel()

    async def _tick(self, place: Place) -> None:
        await self._clock.sleep(_FIRST_TYPING_S)
        fields = {"message_thread_id": place.topic_id} if place.topic_id else {}
        while True:
            pause_s = self._sender.pause_s(place.chat_id)
            if not pause_s:
                try:
                    await self._sender.send(
                        place.chat_id,
                        "sendChatAction",
                        priority=SendPriority.TYPING,
                        droppable=True,
                        replaces=f"typing:{place.conversation}",
                        action="typing",
                        **fields,
                    )
                except (ChatGone, Refused, TokenRefused):
                    return
                except TelegramError as error:
                    _log.debug("typing was not shown: %s", error)
            await self._clock.sleep(max(TYPING_S, pause_s))


@dataclass(slots=True)
class _Seen:
    """A person's message that carries our reaction, or soon will."""

    place: Place
    platform_id: int
    unlisten: Callable[[], None] = lambda: None
    closed: bool = False


class Reactions:
    """Eyes on a person's message from its acceptance until its work has ended."""

    def __init__(
        self, sender: Outgoing, clock: Clock, database: Database, owner: TaskOwner
    ) -> None:
        self._sender = sender
        self._clock = clock
        self._database = database
        self._owner = owner
        self._seen: dict[str, _Seen] = {}

    def accepted(self, message_id: str, place: Place, platform_id: int) -> None:
        """Mark the person's message ``platform_id`` as seen. Returns at once, raises nothing."""
        if message_id in self._seen or len(self._seen) >= _REACTIONS_MAX:
            return
        seen = _Seen(place, platform_id)
        work = self._serve(message_id, seen)
        try:
            self._owner.spawn(work, name=f"reaction:{message_id}")
        except OwnerClosed:
            return
        self._seen[message_id] = seen
        seen.unlisten = self._database.listen(
            f"done:{message_id}", partial(self._close, message_id)
        )

    def _close(self, message_id: str) -> None:
        seen = self._seen.pop(message_id, None)
        if seen is None:
            return
        seen.closed = True
        seen.unlisten()
        try:
            self._owner.spawn(self._clear(seen), name=f"reaction-end:{message_id}")
        except OwnerClosed:
            return

    async def _serve(self, message_id: str, seen: _Seen) -> None:
        try:
            await self._react(seen, _SEEN, droppable=True)
        except TelegramError as error:
            _log.debug("no reaction was shown: %s", error)
            self._drop(message_id)
            return
        try:
            is_open = await self._database.read(partial(_is_open, message_id), name="reaction")
        except (StoreUnavailable, Overloaded):
            return
        if not is_open or seen.closed:
            self._drop(message_id)  # it ended while the eyes were on their way
            await self._clear(seen)

    def _drop(self, message_id: str) -> None:
        seen = self._seen.pop(message_id, None)
        if seen is not None:
            seen.unlisten()

    async def _clear(self, seen: _Seen) -> None:
        for attempt in range(_CLEAR_ATTEMPTS):
            try:
                await self._react(seen, "", droppable=False)
            except (ChatGone, Refused, TokenRefused):
                return
            except TelegramError:
                await self._clock.sleep(_CLEAR_PAUSE_S * (attempt + 1))
            else:
                return

    async def _react(self, seen: _Seen, emoji: str, *, droppable: bool) -> None:
        await self._sender.send(
            seen.place.chat_id,
            "setMessageReaction",
            priority=SendPriority.TYPING,
            droppable=droppable,
            message_id=seen.platform_id,
            reaction=[{"type": "emoji", "emoji": emoji}] if emoji else [],
        )

    def close(self) -> None:
        """Listen no more."""
        for message_id in tuple(self._seen):
            self._drop(message_id)


def _is_open(message_id: str, reader: Reader) -> bool:
    state = reader.scalar("SELECT state FROM messages WHERE message_id = ?", (message_id,))
    return state in _OPEN
