"""What keeps words out of rooms that are encrypted: we could only send them in clear, where people
believe that nobody else reads.

A room may be made so after we joined it, so that is looked at before each message, what the syncs
have put on record and, once in each life and after each coming and going, the room's own state.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, Protocol

from agentsup.catalogue import words
from agentsup.channels.matrix import kept
from agentsup.channels.matrix.errors import Encrypted, FateUnknown, NotSent
from agentsup.channels.matrix.kept import CHANNEL, Owner
from agentsup.kit.clock import Clock
from agentsup.mailbox import outbox
from agentsup.model.errors import AgentsupError, Overloaded, StoreUnavailable
from agentsup.store.database import Database, Tx

__all__ = ["IN_CLEAR", "Clear", "Stated", "tell_tx"]

_log = logging.getLogger(__name__)

IN_CLEAR: Final = "in_clear"
"""In a part's body: it says no more than that the room is encrypted, and may go there."""
_STATE = "m.room.encryption"
_REMEMBERED = 2000


class Stated(Protocol):
    """What is needed of a client."""

    async def state(
        self, room_id: str, event_type: str, state_key: str = ""
    ) -> dict[str, Any] | None: ...


class Clear:
    """The rooms of one bot in one life."""

    def __init__(
        self,
        *,
        client: Stated,
        database: Database,
        clock: Clock,
        owner: Owner,
        agent_name: str,
        tell: Callable[[str], Awaitable[None]],
    ) -> None:
        """``tell`` speaks to the operator."""
        self._client = client
        self._database = database
        self._clock = clock
        self._owner = owner
        self._agent_name = agent_name
        self._tell = tell
        self._asked: dict[str, None] = {}
        """Rooms that were in clear by their own state; what changes that comes with a sync."""
        self._turns: dict[str, int] = {}
        self._told: set[str] = set()

    def forget(self, room_id: str) -> None:
        """Somebody, we perhaps, came or went: ask the homeserver again."""
        self._asked.pop(room_id, None)
        self._turns[room_id] = self._turns.get(room_id, 0) + 1

    async def check(self, room_id: str) -> None:
        """Return if a message may go to that room.

        Raises ``Encrypted`` if not, after a word to the operator and one in the room, once each;
        ``NotSent`` or another ``MatrixError`` while nobody can say: nothing was sent then.
        """
        if not await self._is_encrypted(room_id):
            return
        await self._say(room_id)
        raise Encrypted(room_id)

    async def _is_encrypted(self, room_id: str) -> bool:
        seen = partial(kept.is_encrypted, owner=self._owner, room_id=room_id)
        try:
            if await self._database.read(seen, name="matrix.clear"):
                return True
        except (StoreUnavailable, Overloaded) as error:
            raise NotSent(f"whether the room is encrypted is not known: {error.message}") from None
        if room_id in self._asked:
            return False
        turn = self._turns.get(room_id, 0)
        try:
            found = await self._client.state(room_id, _STATE)
        except FateUnknown as error:
            raise NotSent(f"whether the room is encrypted is not known: {error.message}") from None
        if found is None and self._turns.get(room_id, 0) == turn:
            while len(self._asked) >= _REMEMBERED:
                del self._asked[next(iter(self._asked))]
            self._asked[room_id] = None
        return found is not None

    async def _say(self, room_id: str) -> None:
        if room_id in self._told:
            return
        self._told.add(room_id)
        tell = partial(
            tell_tx, owner=self._owner, room_id=room_id, at=self._clock.now_ms(), language=""
        )
        try:
            await self._database.write(tell, name="matrix.encrypted")
            await self._tell(
                f"The Matrix room {room_id} has been encrypted, which {self._agent_name} can't "
                "read or write; what was meant for it is not sent. Talk to "
                f"{self._owner.user_id} in a room without encryption."
            )
        except asyncio.CancelledError:
            self._told.discard(room_id)  # whoever asked has waited long enough; the next one tells
            raise
        except (StoreUnavailable, Overloaded) as error:
            self._told.discard(room_id)
            _log.warning("nobody could be told that %s is encrypted: %s", room_id, error)
        except AgentsupError as error:
            _log.warning("nobody could be told that %s is encrypted: %s", room_id, error)


def tell_tx(tx: Tx, *, owner: Owner, room_id: str, at: int, language: str) -> None:
    """Put it on record that the room is encrypted, and say so there, once for good."""
    if not kept.may_tell_tx(tx, owner, room_id, at):
        return
    body: dict[str, Any] = {
        "text": words(language)("matrix.encrypted", me=owner.user_id),
        "plain": True,
        IN_CLEAR: True,
    }
    outbox.add_tx(
        tx,
        agent_id=owner.agent_id,
        channel=CHANNEL,
        conversation=room_id,
        kind="notice",
        body=body,
        at=at,
    )
