"""Who is in a room: asked of the homeserver when it matters, and kept until somebody comes or goes.

That nobody but one of its people is in a room decides whether the agent answers there, so it is
never guessed: while the homeserver can't be asked, the message waits. Only a room of which a
homeserver that is there never says it is given up, so that nobody waits behind it for ever.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from agentsup.channels.matrix.access import Room
from agentsup.channels.matrix.errors import (
    MatrixError,
    NotAllowed,
    NotSent,
    RateLimited,
    Refused,
    RoomGone,
    TokenRefused,
)
from agentsup.channels.matrix.event import Quoted
from agentsup.kit.backoff import delay_s
from agentsup.kit.clock import Clock

__all__ = ["Asked", "Rooms"]

Json = Mapping[str, Any]

_REMEMBERED = 2000
_PATIENCE_S = 3600.0


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

    def known(self, room_id: str) -> Room | None:
        """The room, if nobody has to be asked."""
        return self._known.get(room_id)

    async def get(self, room_id: str) -> Room | None:
        """The room, or None if we are not in it.

        Waits while nobody can say. Raises a ``MatrixError`` where the homeserver is there, but has
        not said it for an hour.
        """
        known = self._known.get(room_id)
        if known is not None:
            return known
        while True:
            turn = self._turns.get(room_id, 0)
            members = await self._asked(lambda: self._client.members(room_id))
            if members is None:
                return None
            room = Room(room_id, {user_id: _name(each) for user_id, each in members.items()})
            if self._turns.get(room_id, 0) != turn:
                continue  # somebody came or went meanwhile
            while len(self._known) >= _REMEMBERED:
                self._known.pop(next(iter(self._known)))
            self._known[room_id] = room
            return room

    async def event(
        self, room_id: str, event_id: str, *, patience_s: float | None = None
    ) -> Json | None:
        """An event as the homeserver has it, or None if there is none for us.

        Raises a ``MatrixError`` after ``patience_s`` without an answer; None: waits as ``get``.
        """
        return await self._asked(
            lambda: self._client.event(room_id, event_id), patience_s=patience_s, any_refusal=True
        )

    async def quoted(
        self, room: Room, event_id: str, *, patience_s: float | None = None
    ) -> Quoted | None:
        """The message that was replied to; None if there is none for us. Raises as ``event``."""
        event = await self.event(room.room_id, event_id, patience_s=patience_s)
        if event is None:
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

    async def _asked(
        self,
        ask: Callable[[], Awaitable[Json]],
        *,
        patience_s: float | None = None,
        any_refusal: bool = False,
    ) -> Json | None:
        """The answer, or None for one that says no. What is no answer says nothing about the room:
        it is asked again, for ``patience_s`` or an hour. Without ``patience_s`` that goes on for
        ever while the homeserver can't be reached at all, or a refused token ends this life."""
        failures = 0
        until = self._clock.monotonic() + (_PATIENCE_S if patience_s is None else patience_s)
        while True:
            try:
                return await ask()
            except MatrixError as error:
                if _is_no(error) or (any_refusal and isinstance(error, Refused)):
                    return None
                failures += 1
                wait_s = _wait_s(error, failures)
                if patience_s is not None or not isinstance(error, NotSent | TokenRefused):
                    left_s = until - self._clock.monotonic()
                    if left_s <= 0:
                        raise
                    wait_s = min(wait_s, left_s)
                await self._clock.sleep(wait_s)


def _is_no(error: MatrixError) -> bool:
    """Whether it says that we are not in the room."""
    return isinstance(error, RoomGone) or (
        isinstance(error, NotAllowed) and error.errcode == "M_FORBIDDEN"
    )


def _wait_s(error: MatrixError, failures: int) -> float:
    if isinstance(error, RateLimited):
        return error.retry_after_s
    return delay_s(failures - 1, base_s=1.0, cap_s=30.0, unit=0.5)


def _name(member: object) -> str:
    name = member.get("display_name") if isinstance(member, Mapping) else None
    return name if isinstance(name, str) else ""
