"""Signs in Matrix: "typing", a reaction to the person's event while it is worked on, and read markers.

A row is written before a reaction is sent, and the transaction id is made from the row. So a later
life learns the id of a reaction by sending it again, which changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from agentsup.channels.core.errors import PlatformError, RateLimited
from agentsup.channels.core.live import signs
from agentsup.channels.core.live.signs import REACTIONS_MAX, SEEN, SeenMessage
from agentsup.channels.matrix.address import RoomAddress, parse
from agentsup.channels.matrix.client import MatrixClient
from agentsup.channels.matrix.outgoing import short
from agentsup.channels.matrix.sender import Sender
from agentsup.kit.clock import Clock
from agentsup.kit.log import get_logger
from agentsup.kit.tasks import OwnerClosed, TaskOwner
from agentsup.model.errors import Overloaded, StoreUnavailable
from agentsup.store import Reader, Tx

_log = get_logger(__name__)
REACTION: Final = "m.reaction"
TYPING_S: Final = 20.0
_TYPING_MS = 30_000
"""Time that the homeserver shows it without a renewal."""
_TIMEOUT_S = 5.0
_WAITING_MAX = 500
_PAUSE_MAX_S = 60.0


@dataclass(frozen=True, slots=True)
class SeenReaction:
    """One row of ``matrix_eyes``: ``event_id`` is the person's event."""

    message_id: str
    room_id: str
    event_id: str

    @property
    def txn_id(self) -> str:
        """The transaction id of the reaction."""
        return f"ag-v-{short(self.message_id)}"


def put_tx(tx: Tx, agent_id: str, seen: SeenReaction, at: int) -> None:
    """Store that the reaction is about to be sent. ``at`` is wall ms."""
    tx.execute(
        "INSERT INTO matrix_eyes (agent_id, message_id, room_id, event_id, at)"
        " VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (agent_id, seen.message_id, seen.room_id, seen.event_id, at),
    )


def forget_tx(tx: Tx, agent_id: str, message_id: str) -> None:
    """Remove the row; harmless when repeated."""
    tx.execute(
        "DELETE FROM matrix_eyes WHERE agent_id = ? AND message_id = ?", (agent_id, message_id)
    )


def all_of(reader: Reader, agent_id: str, limit: int) -> list[tuple[SeenReaction, bool]]:
    """Return the stored reactions of one agent, each with whether its message is still open."""
    rows = reader.all(
        "SELECT e.message_id, e.room_id, e.event_id, m.state IN ('queued', 'leased', 'parked')"
        " FROM matrix_eyes e LEFT JOIN messages m ON m.message_id = e.message_id"
        " WHERE e.agent_id = ? LIMIT ?",
        (agent_id, limit),
    )
    return [(SeenReaction(row[0], row[1], row[2]), bool(row[3])) for row in rows]


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
        left = await self._database.read(all_of, self._agent_id, REACTIONS_MAX, name="eyes.left")
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
        return await self._write(put_tx, seen.target, self._clock.now_ms())

    async def _forget(self, message_id: str) -> None:
        await self._write(forget_tx, message_id)

    async def _write(self, change: Callable[..., None], *args: object) -> bool:
        try:
            await self._database.write(change, self._agent_id, *args, name="eyes.record")
        except (StoreUnavailable, Overloaded) as error:
            _log.warning(f"the record of a reaction is not right: {error}")
            return False
        return True


class ReadReceipts:
    """The read markers of one bot: the newest event of each address, one call at a time."""

    def __init__(self, client: MatrixClient, clock: Clock, name: str) -> None:
        self._client = client
        self._clock = clock
        self._name = name
        self._waiting: dict[RoomAddress, str] = {}
        self._owner = TaskOwner("matrix read markers")
        self._is_serving = False

    def read(self, address: RoomAddress, event_id: str) -> None:
        """Mark everything at this address up to this event as read. Never blocks."""
        self._waiting.pop(address, None)
        while len(self._waiting) >= _WAITING_MAX:
            self._waiting.pop(next(iter(self._waiting)))
        self._waiting[address] = event_id
        if not self._is_serving:
            with suppress(OwnerClosed):
                self._owner.spawn(self._serve(), name=f"matrix-read:{self._name}")
                self._is_serving = True

    async def _serve(self) -> None:
        try:
            while self._waiting:
                address = next(iter(self._waiting))
                event_id = self._waiting.pop(address)
                try:
                    await self._client.read_marker(address.room_id, event_id, address.thread_id)
                except RateLimited as error:
                    await self._clock.sleep(min(error.retry_after_s, _PAUSE_MAX_S))
                except PlatformError:
                    continue  # the next message marks this one too
        finally:
            self._is_serving = False

    async def close(self) -> None:
        """Set no more markers."""
        await self._owner.close(1.0)
