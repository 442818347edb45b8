"""Signs in Matrix: "typing" in the room, and a stored reaction to the person's event."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from agentsup.channels.core.live import signs
from agentsup.channels.core.live.signs import REACTIONS_MAX, SEEN, SeenMessage
from agentsup.channels.matrix import seen_reactions
from agentsup.channels.matrix.address import parse
from agentsup.channels.matrix.outgoing import short
from agentsup.channels.matrix.seen_reactions import SeenReaction
from agentsup.channels.matrix.sender import Sender
from agentsup.kit.log import get_logger
from agentsup.model.errors import Overloaded, StoreUnavailable

_log = get_logger(__name__)

REACTION: Final = "m.reaction"
TYPING_S: Final = 20.0
_TYPING_MS = 30_000
"""Time that the homeserver shows it without a renewal."""
_TIMEOUT_S = 5.0


def annotation(event_id: str, key: str) -> dict[str, Any]:
    """The content of a reaction."""
    return {"m.relates_to": {"rel_type": "m.annotation", "event_id": event_id, "key": key}}


class Typing(signs.Typing[Sender]):
    """The sign of a room. It would otherwise stay for up to half a minute, so it is ended."""

    renew_s = TYPING_S
    is_brief = False

    def _chat_of(self, conversation: str) -> str:
        return parse(conversation).room_id

    def _pause_s(self, chat: str) -> float:
        return self._sender.pause_s(chat)

    async def _set(self, chat: str, *, is_on: bool) -> None:
        await self._sender.typing(chat, is_on, _TYPING_MS)


class Reactions(signs.Reactions[SeenReaction, Sender]):
    """Seen reactions, each an event of its own that is redacted at the end."""

    clear_attempts = 5

    async def restore(self) -> None:
        """Follow the reactions that an earlier life set; remove those whose work has ended."""
        left = await self._database.read(
            seen_reactions.all_of, self._agent_id, REACTIONS_MAX, name="eyes.left"
        )
        for each, is_open in left:
            message_id = each.message_id
            if message_id in self._seen:
                continue
            seen = SeenMessage(each, is_shown=True)
            if is_open:
                self._watch(message_id, seen)
                # It may have ended after the read and before the listening.
                self._spawn(self._recheck(message_id), f"reaction:{message_id}")
            else:
                self._spawn(self._clear(message_id, seen), f"reaction-end:{message_id}")

    async def _recheck(self, message_id: str) -> None:
        if not await self._is_open(message_id, otherwise=True):
            self._ended(message_id)

    async def _set(self, seen: SeenMessage[SeenReaction]) -> None:
        seen.reaction_id = await self._sender.send(
            seen.target.room_id,
            REACTION,
            annotation(seen.target.event_id, SEEN),
            txn_id=seen.target.txn_id,
            droppable=True,
            timeout_s=_TIMEOUT_S,
        )

    async def _unset(self, seen: SeenMessage[SeenReaction]) -> None:
        if not seen.reaction_id:
            await self._set(seen)
        await self._sender.redact(
            seen.target.room_id,
            seen.reaction_id,
            txn_id=f"ag-x-{short(seen.reaction_id)}",
            droppable=True,
        )

    def _pause_s(self, seen: SeenMessage[SeenReaction]) -> float:
        return self._sender.pause_s(seen.target.room_id)

    async def _record(self, message_id: str, seen: SeenMessage[SeenReaction]) -> bool:
        return await self._write(seen_reactions.put_tx, seen.target, self._clock.now_ms())

    async def _forget(self, message_id: str) -> None:
        await self._write(seen_reactions.forget_tx, message_id)

    async def _write(self, change: Callable[..., None], *args: object) -> bool:
        try:
            await self._database.write(change, self._agent_id, *args, name="eyes.record")
        except (StoreUnavailable, Overloaded) as error:
            _log.warning(f"the record of a reaction is not right: {error}")
            return False
        return True
