"""Who is in a room: asked of the homeserver when it matters, and kept until somebody comes or goes.

That nobody but one of its people is in a room decides whether the agent answers there, so it is
never guessed: while the homeserver can't be asked, the message waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from agentsup.channels.matrix.access import Room
from agentsup.channels.matrix.errors import (
    FateUnknown,
    MatrixError,
    NotSent,
    RateLimited,
    TokenRefused,
)
from agentsup.channels.matrix.event import Quoted
from agentsup.kit.backoff import delay_s
from agentsup.kit.clock import Clock

__all__ = ["Asked", "Rooms"]

_REMEMBERED = 2000
_QUOTE_TRIES = 3


class Asked(Protocol):
    """What is needed of a client."""

    @property
    def user_id(self) -> str: ...

    async def members(self, room_id: str) -> dict[str, Any]: ...

    async def event(self, room_id: str, event_id: str) -> dict[str, Any]: ...


class Rooms:
    """The rooms of one bot in one life."""

    def __init__(self, client: Asked, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._known: dict[str, Room] = {}
        self._turns: dict[str, int] = {}
        """How often a room has changed, so that an older answer does not count."""

    def forget(self, room_id: str) -> None:
        """Somebody came, went, or took another name."""
        self._known.pop(room_id, None)
        self._turns[room_id] = self._turns.get(room_id, 0) + 1

    async def get(self, room_id: str) -> Room | None:
        """The room, or None if we are not in it. Waits for as long as nobody can say."""
        known = self._known.get(room_id)
        if known is not None:
            return known
        failures = 0
        while True:
            turn = self._turns.get(room_id, 0)
            try:
                members = await self._client.members(room_id)
            except (NotSent, FateUnknown, RateLimited, TokenRefused) as error:
                failures += 1  # a refused token ends this life, and the next one asks again
                await self._clock.sleep(_wait_s(error, failures))
                continue
            except MatrixError:
                return None
            room = Room(room_id, {user_id: _name(each) for user_id, each in members.items()})
            if self._turns.get(room_id, 0) != turn:
                continue  # somebody came or went meanwhile
            while len(self._known) >= _REMEMBERED:
                self._known.pop(next(iter(self._known)))
            self._known[room_id] = room
            return room

    async def quoted(self, room: Room, event_id: str) -> Quoted | None:
        """The message that was replied to; None if it can't be had."""
        for attempt in range(1, _QUOTE_TRIES + 1):
            try:
                event = await self._client.event(room.room_id, event_id)
            except (NotSent, FateUnknown, RateLimited) as error:
                await self._clock.sleep(min(_wait_s(error, attempt), 5.0))
                continue
            except MatrixError:
                return None
            content, sender = event.get("content"), event.get("sender")
            body = content.get("body") if isinstance(content, Mapping) else None
            sender = sender if isinstance(sender, str) else ""
            return Quoted(
                event_id,
                is_ours=sender == self._client.user_id,
                who=room.members.get(sender, "") or sender,
                text=body if isinstance(body, str) else "",
            )
        return None


def _wait_s(error: MatrixError, failures: int) -> float:
    if isinstance(error, RateLimited):
        return error.retry_after_s
    return delay_s(failures - 1, base_s=1.0, cap_s=30.0, unit=0.5)


def _name(member: object) -> str:
    name = member.get("display_name") if isinstance(member, Mapping) else None
    return name if isinstance(name, str) else ""
