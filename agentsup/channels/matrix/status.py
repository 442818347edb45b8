"""Signs that a message is being worked on: "typing" in the room, eyes on the person's message.

All of it is a courtesy: given up under pressure, and never waited for by an answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from agentsup.channels.matrix import eyes
from agentsup.channels.matrix.errors import FateUnknown, MatrixError, Refused, TokenRefused
from agentsup.channels.matrix.eyes import Eyes
from agentsup.channels.matrix.place import Place
from agentsup.channels.matrix.placeholders import short
from agentsup.channels.matrix.upkeep import Outbound
from agentsup.kit.clock import Clock
from agentsup.kit.tasks import OwnerClosed, TaskOwner
from agentsup.model.errors import Overloaded, StoreUnavailable
from agentsup.model.message import State
from agentsup.store.database import Database, Reader, Tx

__all__ = ["REACTION", "TYPING_S", "Reactions", "Typing", "annotation"]

_log = logging.getLogger(__name__)

REACTION: Final = "m.reaction"
TYPING_S: Final = 20.0
_TYPING_MS = 30_000
"""How long the homeserver shows it without another word."""
_FIRST_S = 0.2
"""What is answered within this time needs no sign."""
_TIMEOUT_S = 5.0
_SEEN = "👀"
_REACTIONS_MAX = 1_000
_CLEAR_ATTEMPTS = 5
_CLEAR_PAUSE_S = 5.0
_OPEN = frozenset({State.QUEUED, State.LEASED, State.PARKED})


def annotation(event_id: str, key: str) -> dict[str, Any]:
    """The content of a reaction."""
    return {"m.relates_to": {"rel_type": "m.annotation", "event_id": event_id, "key": key}}


@dataclass(slots=True)
class _Sign:
    ticker: asyncio.Task[None]
    reasons: int = 0
    is_shown: bool = False


class Typing:
    """Shows "typing" in a room while anything runs there."""

    def __init__(self, sender: Outbound, clock: Clock, owner: TaskOwner) -> None:
        self._sender = sender
        self._clock = clock
        self._owner = owner
        self._busy: dict[str, _Sign] = {}

    @contextmanager
    def during(self, place: Place) -> Iterator[None]:
        """Show it from now until the block ends; blocks of one room share one sign."""
        room_id = place.room_id
        sign = self._busy.get(room_id)
        if sign is None:
            ticker = self._owner.spawn(self._tick(room_id), name=f"typing:{room_id}")
            sign = self._busy[room_id] = _Sign(ticker)
        sign.reasons += 1
        try:
            yield
        finally:
            sign.reasons -= 1
            if not sign.reasons:
                del self._busy[room_id]
                sign.ticker.cancel()
                if sign.is_shown:
                    with suppress(OwnerClosed):
                        self._owner.spawn(self._end(room_id), name=f"typing-end:{room_id}")

    async def _tick(self, room_id: str) -> None:
        await self._clock.sleep(_FIRST_S)
        while True:
            pause_s = self._sender.pause_s(room_id)
            if not pause_s and (sign := self._busy.get(room_id)) is not None:
                sign.is_shown = True
                try:
                    await self._sender.typing(room_id, True, _TYPING_MS)
                except (Refused, TokenRefused):
                    return
                except MatrixError as error:
                    _log.debug("typing was not shown: %s", error)
            await self._clock.sleep(max(TYPING_S, pause_s))

    async def _end(self, room_id: str) -> None:
        """Here nothing goes on any more; without it the sign would stay for up to half a minute."""
        if room_id in self._busy:
            return
        try:
            await self._sender.typing(room_id, False, _TYPING_MS)
        except MatrixError as error:
            _log.debug("typing fades by itself: %s", error)


@dataclass(slots=True)
class _Seen:
    """A person's message that carries our reaction, or soon will."""

    eyes: Eyes
    unlisten: Callable[[], None] = lambda: None
    reaction_id: str = ""
    is_begun: bool = False
    """On record: it stands there, or may."""
    is_closed: bool = False

    def has_ended(self) -> bool:
        """Whether its work is over, or nobody looks at it any more."""
        return self.is_closed


class Reactions:
    """Eyes on a person's message from its acceptance until its work has ended."""

    def __init__(
        self, sender: Outbound, clock: Clock, database: Database, agent_id: str, owner: TaskOwner
    ) -> None:
        self._sender = sender
        self._clock = clock
        self._database = database
        self._agent_id = agent_id
        self._owner = owner
        self._seen: dict[str, _Seen] = {}

    def accepted(self, message_id: str, place: Place, event_id: str) -> None:
        """Mark the person's event as seen, unless its work ends at once. Returns immediately,
        raises nothing."""
        if message_id not in self._seen and len(self._seen) < _REACTIONS_MAX:
            seen = _Seen(Eyes(message_id, place.room_id, event_id))
            self._watch(message_id, seen)
            self._spawn(self._show(message_id, seen), f"reaction:{message_id}")

    async def restore(self) -> None:
        """Take up the eyes that an earlier life left; those whose work has ended are taken back.

        Raises ``StoreUnavailable`` or ``Overloaded``.
        """
        left = await self._database.read(
            partial(eyes.all_of, agent_id=self._agent_id, limit=_REACTIONS_MAX), name="eyes.left"
        )
        for each, is_open in left:
            if each.message_id in self._seen:
                continue
            seen = _Seen(each, is_begun=True)
            if is_open:
                self._watch(each.message_id, seen)
                # It may have ended between the look and the listening.
                self._spawn(self._recheck(each.message_id), f"reaction:{each.message_id}")
            else:
                self._spawn(self._clear(seen), f"reaction-end:{each.message_id}")

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
        if seen is not None and seen.is_begun:
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

    async def _recheck(self, message_id: str) -> None:
        if not await self._is_open(message_id, otherwise=True):
            self._ended(message_id)

    async def _show(self, message_id: str, seen: _Seen) -> None:
        await self._clock.sleep(_FIRST_S)
        if seen.has_ended() or not await self._is_open(message_id, otherwise=False):
            self._drop(message_id)
            return
        at = self._clock.now_ms()
        if not await self._write(
            partial(eyes.put_tx, agent_id=self._agent_id, eyes=seen.eyes, at=at)
        ):
            self._drop(message_id)
            return
        try:
            seen.reaction_id = await self._set(seen)
        except FateUnknown as error:
            _log.debug("whether the reaction is shown is not known: %s", error)
        except MatrixError as error:
            _log.debug("no reaction was shown: %s", error)
            self._drop(message_id)
            await self._forget(seen)
            return
        seen.is_begun = True
        if seen.has_ended():
            await self._clear(seen)  # it ended while the eyes were on their way

    async def _set(self, seen: _Seen) -> str:
        return await self._sender.send(
            seen.eyes.room_id,
            REACTION,
            annotation(seen.eyes.event_id, _SEEN),
            txn_id=seen.eyes.txn_id,
            droppable=True,
            timeout_s=_TIMEOUT_S,
        )

    async def _is_open(self, message_id: str, *, otherwise: bool) -> bool:
        try:
            return await self._database.read(partial(_is_open, message_id), name="reaction")
        except (StoreUnavailable, Overloaded):
            return otherwise

    async def _clear(self, seen: _Seen) -> None:
        """Take the eyes back, and off the record once that is settled."""
        for attempt in range(_CLEAR_ATTEMPTS):
            try:
                if not seen.reaction_id:
                    seen.reaction_id = await self._set(seen)
                await self._sender.redact(
                    seen.eyes.room_id,
                    seen.reaction_id,
                    txn_id=f"ag-x-{short(seen.reaction_id)}",
                    droppable=True,
                )
            except Refused:
                break  # the room or the event is gone, or it is too late to learn which it was
            except TokenRefused:
                return
            except MatrixError as error:
                _log.debug("a reaction is not taken back yet: %s", error)
            else:
                break
            pause_s = self._sender.pause_s(seen.eyes.room_id)
            await self._clock.sleep(max(pause_s, _CLEAR_PAUSE_S * (attempt + 1)))
        else:
            return  # the next life tries again
        await self._forget(seen)

    async def _forget(self, seen: _Seen) -> None:
        message_id = seen.eyes.message_id
        await self._write(partial(eyes.forget_tx, agent_id=self._agent_id, message_id=message_id))

    async def _write(self, change: Callable[[Tx], None]) -> bool:
        try:
            await self._database.write(change, name="eyes.record")
        except (StoreUnavailable, Overloaded) as error:
            _log.warning("the record of a reaction is not right: %s", error)
            return False
        return True


def _is_open(message_id: str, reader: Reader) -> bool:
    state = reader.scalar("SELECT state FROM messages WHERE message_id = ?", (message_id,))
    return state in _OPEN
