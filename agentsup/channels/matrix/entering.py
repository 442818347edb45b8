"""Invitations: accepted or rejected, once, and looked at again from inside.

Who invited is told by the inviter's server; only in the room it is known for sure. A homeserver
that can't be reached is asked again later; one that fails at this is given up, and the operator
hears of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from agentsup.channels.matrix.access import People, Reason, may_enter, remedy
from agentsup.channels.matrix.batch import is_membership
from agentsup.channels.matrix.errors import (
    FateUnknown,
    MatrixError,
    NotSent,
    RateLimited,
    TokenRefused,
)
from agentsup.channels.matrix.event import Event
from agentsup.kit.backoff import delay_s
from agentsup.kit.clock import Clock
from agentsup.model.agent import AgentSpec
from agentsup.observe.logging import get_logger

__all__ = ["Doors", "Entering", "inviter_in"]

_log = get_logger(__name__)

Json = Mapping[str, Any]

_TRIES = 12
"""Answers without sense, or pauses, before an invitation is given up."""
_LOOK_TRIES = 4
_MEMBERS: Json = {"types": ["m.room.member"]}
_MEMBERS_MAX = 100


class Doors(Protocol):
    """How a bot enters and leaves rooms, and what it sees inside."""

    async def join(self, room_id: str) -> None: ...

    async def leave(self, room_id: str) -> None: ...

    async def messages(
        self, room_id: str, *, start: str | None, end: str | None, limit: int, filter_: Json
    ) -> dict[str, Any]: ...


def inviter_in(events: Sequence[object], me: str) -> str:
    """Who invited us last, by the room's own events, newest first; empty if they don't say."""
    for event in events:
        if not isinstance(event, Mapping):
            continue
        if is_membership(event, me, "invite"):
            sender = event.get("sender")
            return sender if isinstance(sender, str) else ""
        if is_membership(event, me, "leave"):
            break
        unsigned = event.get("unsigned")
        if is_membership(event, me, "join") and isinstance(unsigned, Mapping):
            # Where the room hides what came before us, servers tell it beside our entry.
            before, sender = unsigned.get("prev_content"), unsigned.get("prev_sender")
            was_invited = isinstance(before, Mapping) and before.get("membership") == "invite"
            if was_invited and isinstance(sender, str):
                return sender
    return ""


class Entering:
    """Answers the invitations of one bot."""

    def __init__(
        self,
        doors: Doors,
        *,
        me: str,
        agent_name: str,
        spec: Callable[[], AgentSpec],
        people: People,
        clock: Clock,
        warn: Callable[[tuple[str, str], str], None],
        tell: Callable[[str], Awaitable[None]],
    ) -> None:
        """``warn`` writes a text to the log, once for what it is about; ``tell`` speaks to the
        operator and does not raise."""
        self._doors = doors
        self._me = me
        self._agent_name = agent_name
        self._spec = spec
        self._people = people
        self._clock = clock
        self._warn = warn
        self._tell = tell

    async def answer(self, event: Event) -> str:
        """Enter, or say no; returns why we are not inside, or nothing."""
        if not self._is_welcome(event):
            return await self._refuse(event)
        if not await self._step(self._doors.join, event, "could not be accepted"):
            return "the invitation could not be accepted"
        if event.room_id in self._spec().matrix.allowed_rooms:
            return ""
        inviter = await self._inviter(event.room_id)
        if not inviter or inviter == event.sender:
            return ""
        real = replace(event, sender=inviter)
        return "" if self._is_welcome(real) else await self._refuse(real)

    def _is_welcome(self, event: Event) -> bool:
        return may_enter(event, self._spec(), self._people)

    async def _refuse(self, event: Event) -> str:
        text = remedy(event, Reason.STRANGER, self._agent_name)
        self._warn(("invite", event.room_id), text)
        await self._step(self._doors.leave, event, "could not be rejected")
        return Reason.STRANGER.value

    async def _step(
        self, step: Callable[[str], Awaitable[None]], event: Event, failed: str
    ) -> bool:
        """Whether it succeeded, within bounds."""
        failures, pauses = 0, 0
        while True:
            try:
                await step(event.room_id)
            except (NotSent, TokenRefused) as error:
                why: MatrixError = error  # nobody is there, or this life ends; that takes its time
            except (FateUnknown, RateLimited) as error:
                why, failures = error, failures + 1
            except MatrixError as error:
                why, failures = error, _TRIES
            else:
                return True
            if failures >= _TRIES:
                break
            wait_s = delay_s(pauses, base_s=1.0, cap_s=60.0, unit=0.5)
            pauses += 1
            await self._clock.sleep(getattr(why, "retry_after_s", wait_s))
        await self._tell(
            f"The invitation of {event.sender} to the Matrix room {event.room_id} {failed} by "
            f"{self._agent_name}: {why.message}. Invite again once that is mended."
        )
        return False

    async def _inviter(self, room_id: str) -> str:
        for attempt in range(1, _LOOK_TRIES + 1):
            try:
                answer = await self._doors.messages(
                    room_id, start=None, end=None, limit=_MEMBERS_MAX, filter_=_MEMBERS
                )
            except (NotSent, FateUnknown, RateLimited) as error:
                wait_s = delay_s(attempt - 1, base_s=1.0, cap_s=30.0, unit=0.5)
                await self._clock.sleep(min(getattr(error, "retry_after_s", wait_s), 30.0))
            except MatrixError:
                break
            else:
                chunk = answer.get("chunk")
                return inviter_in(chunk if isinstance(chunk, list) else [], self._me)
        _log.warning("who invited could not be seen", agent=self._agent_name, room=room_id)
        return ""
