"""Invitations: each is accepted or rejected once, and checked again inside the room.

The inviter's name in an invitation comes from the inviter's server; only the events of the room
itself are reliable. While the homeserver can't be reached, a call is repeated. After other failures
the invitation is given up and the operator is told.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from agentsup.channels.core.errors import (
    NotSent,
    OutcomeUnknown,
    PlatformError,
    RateLimited,
    TokenRefused,
)
from agentsup.channels.core.receiving.gate import AccessReason
from agentsup.channels.core.receiving.incoming import OperatorNotices
from agentsup.channels.core.receiving.raw import Json, maybe_list, maybe_text
from agentsup.channels.matrix.access import may_enter, remedy
from agentsup.channels.matrix.batch import is_membership
from agentsup.channels.matrix.context import ReceiveDependencies
from agentsup.channels.matrix.event import RoomEvent
from agentsup.channels.matrix.rooms import RoomMembers
from agentsup.kit.backoff import delay_s
from agentsup.kit.log import get_logger

_log = get_logger(__name__)

_TRIES = 12
"""Calls with an unknown outcome, or refused by a rate limit, before an invitation is given up."""
_LOOK_TRIES = 4
_MEMBERS: Json = {"types": ["m.room.member"]}
_MEMBERS_MAX = 100


def inviter_in(events: Sequence[object], me: str) -> str:
    """Return who invited the user ``me`` last, by the room's own events (newest first), or ""."""
    for event in events:
        if not isinstance(event, Mapping):
            continue
        if is_membership(event, me, "invite"):
            return maybe_text(event, "sender")
        if is_membership(event, me, "leave"):
            break
        unsigned = event.get("unsigned")
        if is_membership(event, me, "join") and isinstance(unsigned, Mapping):
            # If the room hides earlier events from new members, servers add the former membership.
            before, sender = unsigned.get("prev_content"), unsigned.get("prev_sender")
            was_invited = isinstance(before, Mapping) and before.get("membership") == "invite"
            if was_invited and isinstance(sender, str):
                return sender
    return ""


class InvitationHandler:
    """Answers the invitations of one bot."""

    def __init__(self, deps: ReceiveDependencies, notices: OperatorNotices) -> None:
        self._deps = deps
        self._notices = notices

    async def answer(self, event: RoomEvent) -> str:
        """Join the room or reject the invitation. Returns why the bot is not in the room, or ""."""
        if not self.is_welcome(event):
            return await self._refuse(event)
        if not await self._step(self._deps.client.join, event, "could not be accepted"):
            return "the invitation could not be accepted"
        if event.room_id in self._deps.spec().matrix.allowed_rooms:
            return ""
        inviter = await self._inviter(event.room_id)
        if not inviter or inviter == event.sender:
            return ""
        real = replace(event, sender=inviter)
        return "" if self.is_welcome(real) else await self._refuse(real)

    async def enter_alone(self, event: RoomEvent, rooms: RoomMembers) -> str:
        """Join the room of a stranger if nobody else is in it, by the room's own events. Returns why
        the bot is not in the room, or ""."""
        if not await self._step(self._deps.client.join, event, "could not be accepted"):
            return "the invitation could not be accepted"
        rooms.forget(event.room_id)
        inviter = await self._inviter(event.room_id)
        room = await rooms.get(event.room_id) if inviter == event.sender else None
        if room is not None and room.is_private(self._deps.me.user_id, event.sender):
            return ""
        return await self._refuse(event)

    def is_welcome(self, event: RoomEvent) -> bool:
        """Whether the bot enters the room, by the invitation."""
        return may_enter(event, self._deps.spec(), self._deps.people)

    async def _refuse(self, event: RoomEvent) -> str:
        text = remedy(event, AccessReason.STRANGER, self._deps.agent_name)
        self._notices.warn_once(("invite", event.room_id), text)
        await self._step(self._deps.client.leave, event, "could not be rejected")
        return AccessReason.STRANGER.value

    async def _step(
        self, step: Callable[[str], Awaitable[None]], event: RoomEvent, failed: str
    ) -> bool:
        """Call ``step`` until it succeeds; False, after a note to the operator, if given up."""
        failures, pauses = 0, 0
        while True:
            try:
                await step(event.room_id)
            except (NotSent, TokenRefused) as error:
                why: PlatformError = error  # not reachable, or this life ends soon: no limit
            except (OutcomeUnknown, RateLimited) as error:
                why, failures = error, failures + 1
            except PlatformError as error:
                why, failures = error, _TRIES
            else:
                return True
            if failures >= _TRIES:
                break
            wait_s = delay_s(pauses, base_s=1.0, cap_s=60.0, unit=0.5)
            pauses += 1
            await self._deps.clock.sleep(getattr(why, "retry_after_s", wait_s))
        await self._notices.tell(
            f"The invitation of {event.sender} to the Matrix room {event.room_id} {failed} by "
            f"{self._deps.agent_name}: {why.message}. Invite again once that is mended."
        )
        return False

    async def _inviter(self, room_id: str) -> str:
        for attempt in range(1, _LOOK_TRIES + 1):
            try:
                answer = await self._deps.client.messages(
                    room_id, start=None, end=None, limit=_MEMBERS_MAX, filter_=_MEMBERS
                )
            except (NotSent, OutcomeUnknown, RateLimited) as error:
                wait_s = delay_s(attempt - 1, base_s=1.0, cap_s=30.0, unit=0.5)
                await self._deps.clock.sleep(min(getattr(error, "retry_after_s", wait_s), 30.0))
            except PlatformError:
                break
            else:
                return inviter_in(maybe_list(answer, "chunk"), self._deps.me.user_id)
        _log.warning("who invited could not be seen", agent=self._deps.agent_name, room=room_id)
        return ""
