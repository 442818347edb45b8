"""The members of rooms: requested from the homeserver when needed, and cached until they change.

Whether a person is alone in a room with the bot decides whether the agent answers there, so it is
never guessed: while the homeserver can't be reached, the message waits. If a reachable homeserver
does not answer for an hour, the request fails, so that later messages do not wait for ever.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from agentsup.channels.core.errors import (
    ChatGone,
    NotAllowed,
    NotSent,
    PlatformError,
    RateLimited,
    RequestRefused,
    TokenRefused,
)
from agentsup.channels.core.receiving.raw import Json, Malformed, maybe_text
from agentsup.channels.core.receiving.texts import Quoted
from agentsup.channels.matrix.access import Room
from agentsup.channels.matrix.client import MatrixClient
from agentsup.channels.matrix.event import BotUser, RoomEvent, RoomEventKind, read
from agentsup.kit.backoff import delay_s
from agentsup.kit.clock import Clock

_REMEMBERED = 2000
_PATIENCE_S = 3600.0


class RoomMembers:
    """Caches the members of the rooms of one bot in one life."""

    def __init__(self, client: MatrixClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._known: dict[str, Room] = {}
        self._turns: dict[str, int] = {}
        """Number of changes of a room, so that an older answer does not count."""

    def forget(self, room_id: str) -> None:
        """Drop the cached members of a room: somebody came, went, or changed their name."""
        self._known.pop(room_id, None)
        self._turns[room_id] = self._turns.get(room_id, 0) + 1

    def known(self, room_id: str) -> Room | None:
        """Return the room if its members are cached."""
        return self._known.get(room_id)

    async def get(self, room_id: str) -> Room | None:
        """Return the room, or None if the bot is not in it.

        Waits while the homeserver can't be reached. Raises a ``PlatformError`` if it is reachable,
        but has not answered for an hour.
        """
        known = self._known.get(room_id)
        if known is not None:
            return known
        while True:
            turn = self._turns.get(room_id, 0)
            members = await self._asked(lambda: self._client.members(room_id))
            if members is None:
                return None
            names = {who: maybe_text(each, "display_name") for who, each in members.items()}
            room = Room(room_id, names)
            if self._turns.get(room_id, 0) != turn:
                continue  # somebody came or went meanwhile
            while len(self._known) >= _REMEMBERED:
                self._known.pop(next(iter(self._known)))
            self._known[room_id] = room
            return room

    async def event(
        self, room_id: str, event_id: str, *, patience_s: float | None = None
    ) -> Json | None:
        """Return an event of the homeserver, or None if the bot can't see it.

        Raises a ``PlatformError`` after ``patience_s`` without an answer; None: waits as ``get``.
        """
        return await self._asked(
            lambda: self._client.event(room_id, event_id), patience_s=patience_s, any_refusal=True
        )

    async def quoted(
        self, room: Room, event_id: str, *, patience_s: float | None = None
    ) -> Quoted | None:
        """Return the replied-to message, or None if the bot can't see it. Raises as ``event``."""
        event = await self.event(room.room_id, event_id, patience_s=patience_s)
        if event is None:
            return None
        sender = maybe_text(event, "sender")
        try:
            said = read(event, room.room_id, BotUser(self._client.user_id))
        except Malformed:
            said = RoomEvent(RoomEventKind.OTHER, room.room_id, event_id)
        return Quoted(
            event_id,
            is_ours=sender == self._client.user_id,
            who=room.members.get(sender, "") or sender,
            text="\n".join(filter(None, (said.text, *said.notes))),
            files=said.attachments,
        )

    async def _asked(
        self,
        ask: Callable[[], Awaitable[Json]],
        *,
        patience_s: float | None = None,
        any_refusal: bool = False,
    ) -> Json | None:
        """Return the answer, or None if it is a refusal.

        Other errors say nothing about the room: the request is repeated, for ``patience_s`` or an
        hour. Without ``patience_s`` it is repeated without limit while the homeserver can't be
        reached, or while the token is refused, which ends this life.
        """
        failures = 0
        until = self._clock.monotonic() + (_PATIENCE_S if patience_s is None else patience_s)
        while True:
            try:
                return await ask()
            except PlatformError as error:
                if _is_no(error) or (any_refusal and isinstance(error, RequestRefused)):
                    return None
                failures += 1
                wait_s = _wait_s(error, failures)
                if patience_s is not None or not isinstance(error, NotSent | TokenRefused):
                    left_s = until - self._clock.monotonic()
                    if left_s <= 0:
                        raise
                    wait_s = min(wait_s, left_s)
                await self._clock.sleep(wait_s)


def _is_no(error: PlatformError) -> bool:
    """Whether the error says that the bot is not in the room."""
    return isinstance(error, ChatGone) or (
        isinstance(error, NotAllowed) and error.name == "M_FORBIDDEN"
    )


def _wait_s(error: PlatformError, failures: int) -> float:
    if isinstance(error, RateLimited):
        return error.retry_after_s
    return delay_s(failures - 1, base_s=1.0, cap_s=30.0, unit=0.5)
