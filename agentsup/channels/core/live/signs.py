"""Signs that a message is being worked on: "typing" in the chat, and the seen reaction.

They are optional: sent with low priority, dropped when calls must wait, and no answer waits for
them. How a sign is set and removed, and what is stored of it, is defined by each platform.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final, Generic, TypeVar

from agentsup.channels.core.errors import (
    OutcomeUnknown,
    PlatformError,
    RequestRefused,
    TokenRefused,
)
from agentsup.channels.core.receiving.messages import BotDependencies
from agentsup.kit.clock import Clock
from agentsup.kit.log import get_logger
from agentsup.kit.tasks import OwnerClosed, TaskOwner
from agentsup.mailbox.messages import state_of
from agentsup.model.errors import Overloaded, StoreUnavailable
from agentsup.model.message import OPEN
from agentsup.store import Reader

_log = get_logger(__name__)

SEEN: Final = "👀"
REACTIONS_MAX: Final = 1_000
_FIRST_S = 0.2
"""A message that is answered within this time needs no sign."""
_CLEAR_PAUSE_S = 5.0

Target = TypeVar("Target")
SenderT = TypeVar("SenderT")
"""The platform's sender."""


@dataclass(slots=True)
class _TypingSign:
    ticker: asyncio.Task[None]
    reasons: int = 0
    is_shown: bool = False


class Typing(ABC, Generic[SenderT]):
    """Shows "typing" in a chat while anything runs there."""

    renew_s: ClassVar[float]
    """The sign is set again after this time."""
    is_brief: ClassVar[bool] = True
    """Whether the sign soon disappears by itself and need not be ended."""

    def __init__(self, sender: SenderT, clock: Clock, owner: TaskOwner) -> None:
        self._sender = sender
        self._clock = clock
        self._owner = owner
        self._busy: dict[str, _TypingSign] = {}

    @abstractmethod
    async def _set(self, chat: str, *, is_on: bool) -> None:
        """Set or end the sign. Raises a ``PlatformError``."""

    def _pause_s(self, chat: str) -> float:
        """Return for how many seconds the platform allows no sign there, or 0."""
        return 0.0

    def _chat_of(self, conversation: str) -> str:
        """Return the chat in which the platform shows the sign of a conversation."""
        return conversation

    @contextmanager
    def during(self, conversation: str) -> Iterator[None]:
        """Show the sign until the block ends; blocks of one chat share one sign."""
        chat = self._chat_of(conversation)
        sign = self._busy.get(chat)
        if sign is None:
            ticker = self._owner.spawn(self._tick(chat), name=f"typing:{chat}")
            sign = self._busy[chat] = _TypingSign(ticker)
        sign.reasons += 1
        try:
            yield
        finally:
            sign.reasons -= 1
            if not sign.reasons:
                del self._busy[chat]
                sign.ticker.cancel()
                if sign.is_shown and not self.is_brief:
                    with suppress(OwnerClosed):
                        self._owner.spawn(self._end(chat), name=f"typing-end:{chat}")

    async def _tick(self, chat: str) -> None:
        await self._clock.sleep(_FIRST_S)
        while True:
            pause_s = self._pause_s(chat)
            if not pause_s and (sign := self._busy.get(chat)) is not None:
                sign.is_shown = True
                try:
                    await self._set(chat, is_on=True)
                except (RequestRefused, TokenRefused):
                    return
                except PlatformError as error:
                    _log.debug(f"typing was not shown: {error}")
            await self._clock.sleep(max(self.renew_s, pause_s))

    async def _end(self, chat: str) -> None:
        if chat in self._busy:
            return
        try:
            await self._set(chat, is_on=False)
        except PlatformError as error:
            _log.debug(f"typing fades by itself: {error}")


@dataclass(slots=True)
class SeenMessage(Generic[Target]):
    """A person's message that has our reaction, or will soon have it."""

    target: Target
    """The message, as the platform names it."""
    unlisten: Callable[[], None] = lambda: None
    reaction_id: str = ""
    """The platform's id of the reaction, where it has one and it is known."""
    is_shown: bool = False
    """Whether the reaction is there, or may be."""
    is_closed: bool = False

    def has_ended(self) -> bool:
        """Whether its work has ended, or it is not watched any more."""
        return self.is_closed


class Reactions(ABC, Generic[Target, SenderT]):
    """Seen reactions on people's messages, from their acceptance until their work has ended."""

    clear_attempts: ClassVar[int]

    def __init__(self, sender: SenderT, deps: BotDependencies, owner: TaskOwner) -> None:
        self._sender = sender
        self._clock = deps.clock
        self._database = deps.database
        self._agent_id = deps.agent_id
        self._owner = owner
        self._seen: dict[str, SeenMessage[Target]] = {}

    @abstractmethod
    async def restore(self) -> None:
        """Watch the messages on which an earlier life may have set reactions.

        Raises ``StoreUnavailable`` or ``Overloaded``.
        """

    @abstractmethod
    async def _set(self, seen: SeenMessage[Target]) -> None:
        """Set the reaction. Raises a ``PlatformError``."""

    @abstractmethod
    async def _unset(self, seen: SeenMessage[Target]) -> None:
        """Remove the reaction. Raises a ``PlatformError``."""

    async def _record(self, message_id: str, seen: SeenMessage[Target]) -> bool:
        """Store that the reaction is about to be set; False if it must not be set."""
        return True

    async def _forget(self, message_id: str) -> None:
        """Remove what was stored of the reaction."""

    def _pause_s(self, seen: SeenMessage[Target]) -> float:
        """Return for how many seconds the platform allows no change of a reaction, or 0."""
        return 0.0

    def accepted(self, message_id: str, target: Target) -> None:
        """Set the reaction on the message, unless its work ends at once.

        Never blocks, raises nothing.
        """
        if message_id not in self._seen and len(self._seen) < REACTIONS_MAX:
            seen = SeenMessage(target)
            self._watch(message_id, seen)
            self._spawn(self._show(message_id, seen), f"reaction:{message_id}")

    def close(self) -> None:
        """Stop watching all messages; their reactions stay."""
        for message_id in tuple(self._seen):
            self._drop(message_id)

    def _watch(self, message_id: str, seen: SeenMessage[Target]) -> None:
        self._seen[message_id] = seen
        seen.unlisten = self._database.listen(
            f"done:{message_id}", partial(self._ended, message_id)
        )

    def _ended(self, message_id: str) -> None:
        seen = self._drop(message_id)
        if seen is not None and seen.is_shown:
            self._spawn(self._clear(message_id, seen), f"reaction-end:{message_id}")

    def _drop(self, message_id: str) -> SeenMessage[Target] | None:
        seen = self._seen.pop(message_id, None)
        if seen is not None:
            seen.is_closed = True
            seen.unlisten()
        return seen

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        with suppress(OwnerClosed):
            self._owner.spawn(work, name=name)

    async def _show(self, message_id: str, seen: SeenMessage[Target]) -> None:
        await self._clock.sleep(_FIRST_S)
        if (
            seen.has_ended()
            or not await self._is_open(message_id, otherwise=False)
            or not await self._record(message_id, seen)
        ):
            self._drop(message_id)
            return
        try:
            await self._set(seen)
        except OutcomeUnknown as error:
            _log.debug(f"whether the reaction is shown is not known: {error}")
        except PlatformError as error:
            _log.debug(f"no reaction was shown: {error}")
            self._drop(message_id)
            await self._forget(message_id)
            return
        seen.is_shown = True
        if seen.has_ended():
            await self._clear(message_id, seen)  # it ended while the reaction was being sent

    async def _is_open(self, message_id: str, *, otherwise: bool) -> bool:
        try:
            return await self._database.read(_is_open, message_id, name="reaction")
        except (StoreUnavailable, Overloaded):
            return otherwise

    async def _clear(self, message_id: str, seen: SeenMessage[Target]) -> None:
        """Remove the reaction, and what is stored of it once that is done or refused."""
        for attempt in range(self.clear_attempts):
            try:
                await self._unset(seen)
            except RequestRefused:
                break  # the chat or the message is gone, or the reaction can't be found any more
            except TokenRefused:
                return
            except PlatformError as error:
                _log.debug(f"a reaction is not taken back yet: {error}")
            else:
                break
            pause_s = _CLEAR_PAUSE_S * (attempt + 1)
            await self._clock.sleep(max(self._pause_s(seen), pause_s))
        else:
            return  # the next life tries again, if the reaction is stored
        await self._forget(message_id)


def _is_open(reader: Reader, message_id: str) -> bool:
    return state_of(reader, message_id) in OPEN
