"""Signs that a message is being worked on: "typing" in the chat, eyes on the person's message.

All of it is a courtesy: sent with the lowest priority, given up under pressure, and never waited
for by an answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from agentsup.channels.telegram.errors import (
    ChatGone,
    Dropped,
    FateUnknown,
    Refused,
    TelegramError,
    TokenRefused,
)
from agentsup.channels.telegram.flood import Kind
from agentsup.channels.telegram.place import Place
from agentsup.channels.telegram.sender import SendPriority
from agentsup.kit.clock import Clock
from agentsup.kit.tasks import OwnerClosed, TaskOwner
from agentsup.model.errors import Overloaded, StoreUnavailable
from agentsup.model.message import State
from agentsup.store.database import Database, Reader

__all__ = ["COURTESIES_MAX", "TYPING_S", "Courtesies", "Outgoing", "Reactions", "Typing"]

_log = logging.getLogger(__name__)

TYPING_S = 4.5
"""The platform shows "typing" for 5 seconds."""
_FIRST_S = 0.2
"""What is answered within this time needs no sign."""
COURTESIES_MAX = 8
"""Half of what one bot may have under way."""
_TIMEOUT_S = 5.0
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

    def pause_s(self, chat_id: int, kind: Kind = Kind.LIGHT) -> float: ...


@dataclass(slots=True)
class _Sign:
    ticker: asyncio.Task[None]
    reasons: int = 0


class Courtesies:
    """The sender as courtesies may use it: of the calls that a bot may have under way, those that
    the platform does not answer must leave enough for answers."""

    def __init__(self, sender: Outgoing, *, most: int = COURTESIES_MAX) -> None:
        self._sender = sender
        self._most = most
        self._under_way = 0

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
    ) -> Any:
        """As `Sender.send`; what is droppable gives way when too much is under way."""
        if droppable and self._under_way >= self._most:
            raise Dropped("too much is under way")
        self._under_way += 1
        try:
            return await self._sender.send(
                chat_id,
                method,
                priority=priority,
                droppable=droppable,
                replaces=replaces,
                timeout_s=timeout_s,
                **fields,
            )
        finally:
            self._under_way -= 1

    def withdraw(self, key: str) -> bool:
        """As `Sender.withdraw`."""
        return self._sender.withdraw(key)

    def pause_s(self, chat_id: int, kind: Kind = Kind.LIGHT) -> float:
        """As `Sender.pause_s`."""
        return self._sender.pause_s(chat_id, kind)


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
        await self._clock.sleep(_FIRST_S)
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
                        timeout_s=_TIMEOUT_S,
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
    is_shown: bool = False
    is_closed: bool = False

    def has_ended(self) -> bool:
        """Whether its work is over, or nobody looks at it any more."""
        return self.is_closed


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
        """Mark the person's message ``platform_id`` as seen, unless its work ends at once. Returns
        immediately, raises nothing."""
        if message_id not in self._seen and len(self._seen) < _REACTIONS_MAX:
            seen = _Seen(place, platform_id)
            self._watch(message_id, seen)
            self._spawn(self._show(message_id, seen), f"reaction:{message_id}")

    async def restore(self, agent_id: str) -> None:
        """Take up the eyes that an earlier life left on messages whose work goes on.

        Raises ``StoreUnavailable`` or ``Overloaded``.
        """
        rows = await self._database.read(partial(_left_open, agent_id), name="reactions.left")
        for message_id, chat_id, platform_id in rows[:_REACTIONS_MAX]:
            if message_id not in self._seen:
                self._watch(message_id, _Seen(Place(chat_id), platform_id, is_shown=True))

    def close(self) -> None:
        """Listen no more."""
        for message_id in tuple(self._seen):
            self._drop(message_id)

    def _watch(self, message_id: str, seen: _Seen) -> None:
        self._seen[message_id] = seen
        seen.unlisten = self._database.listen(
            f"done:{message_id}", partial(self._ended, message_id)
        )

    def _ended(self, message_id: str) -> None:
        seen = self._drop(message_id)
        if seen is not None and seen.is_shown:
            self._spawn(self._clear(seen), f"reaction-end:{message_id}")

    def _drop(self, message_id: str) -> _Seen | None:
        seen = self._seen.pop(message_id, None)
        if seen is not None:
            seen.is_closed = True
            seen.unlisten()
        return seen

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        with suppress(OwnerClosed):
            self._owner.spawn(work, name=name)

    async def _show(self, message_id: str, seen: _Seen) -> None:
        await self._clock.sleep(_FIRST_S)
        if seen.has_ended() or not await self._is_open(message_id):
            self._drop(message_id)
            return
        try:
            await self._react(seen, _SEEN, droppable=True)
        except FateUnknown as error:
            _log.debug("whether the reaction is shown is not known: %s", error)
        except TelegramError as error:
            _log.debug("no reaction was shown: %s", error)
            self._drop(message_id)
            return
        seen.is_shown = True
        if seen.has_ended():
            await self._clear(seen)  # it ended while the eyes were on their way

    async def _is_open(self, message_id: str) -> bool:
        try:
            return await self._database.read(partial(_is_open, message_id), name="reaction")
        except (StoreUnavailable, Overloaded):
            return False

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
            timeout_s=_TIMEOUT_S,
            message_id=seen.platform_id,
            reaction=[{"type": "emoji", "emoji": emoji}] if emoji else [],
        )


def _is_open(message_id: str, reader: Reader) -> bool:
    state = reader.scalar("SELECT state FROM messages WHERE message_id = ?", (message_id,))
    return state in _OPEN


def _left_open(agent_id: str, reader: Reader) -> list[tuple[str, int, int]]:
    rows = reader.all(
        "SELECT u.message_id, u.chat_id, u.platform_id FROM updates u"
        " JOIN messages m ON m.message_id = u.message_id"
        " WHERE u.channel = 'telegram' AND u.message_id <> '' AND u.platform_id IS NOT NULL"
        " AND m.agent_id = ? AND m.state IN ('queued', 'leased', 'parked')",
        (agent_id,),
    )
    return [tuple(row) for row in rows]
