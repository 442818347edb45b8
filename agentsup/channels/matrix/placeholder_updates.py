"""The event in which an answer is streamed: how it is sent, edited and redacted.

A row is written before the event is sent, and the transaction id is made from the row: so a crash
at any moment leaves no unknown event behind (P2).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from agentsup.channels.core.errors import LowPriorityDropped, OutcomeUnknown, PlatformError
from agentsup.channels.core.live import placeholders
from agentsup.channels.core.live.placeholder_updates import PlaceholderUpdates, StreamContext
from agentsup.channels.core.live.placeholders import Placeholder
from agentsup.channels.matrix.address import RoomAddress
from agentsup.channels.matrix.outgoing import MESSAGE, content_of, edit_of, new_of, short
from agentsup.channels.matrix.render import Piece, render
from agentsup.channels.matrix.sender import Sender

SEND_TIMEOUT_S: Final = 10.0
_DOTS = Piece("…")


class EventUpdates(PlaceholderUpdates[Piece, RoomAddress, Sender]):
    """The placeholder is an event that is edited by events that replace its content."""

    _render = staticmethod(render)

    def __init__(
        self,
        context: StreamContext,
        message_id: str,
        address: RoomAddress,
        sender: Sender,
        left: Placeholder | None = None,
    ) -> None:
        super().__init__(context, message_id, address, sender, left)
        self.is_unsure = left is not None
        """Whether an event may be there whose id is not known."""
        self._life = f"ag-e-{short(message_id)}-{context.clock.now_ms()}"
        self._edits = 0

    @property
    def is_begun(self) -> bool:
        """Whether an event was sent, or may have been."""
        return self.row is not None

    async def create(self, piece: Piece) -> str:
        """Send the event, or learn its id if it was sent before. Raises a ``PlatformError``."""
        if self.row is None and not await self.record(""):
            raise LowPriorityDropped("the store can't keep a record of it")
        assert self.row is not None, "it is recorded"
        was_unsure, self.is_unsure = self.is_unsure, True
        try:
            event_id = await self.sender.send(
                self.address.room_id,
                MESSAGE,
                new_of(content_of(piece), self.address),
                txn_id=f"ag-s-{short(self.message_id)}-{self.row.begun_at}",
                droppable=True,
                timeout_s=SEND_TIMEOUT_S,
            )
        except OutcomeUnknown:
            raise
        except PlatformError:
            self.is_unsure = was_unsure
            raise
        await self._mark(placeholders.shown_tx, self.message_id, event_id)
        return event_id

    def next_edit(self) -> str:
        """The transaction id of another edit, different from those of earlier lives."""
        self._edits += 1
        return f"{self._life}-{self._edits}"

    async def change(
        self, event_id: str, piece: Piece, txn_id: str, *, timeout_s: float = 20.0
    ) -> None:
        """Edit the event once, with low priority. Raises a ``PlatformError``."""
        await self.sender.send(
            self.address.room_id,
            MESSAGE,
            edit_of(content_of(piece), event_id),
            txn_id=txn_id,
            droppable=True,
            timeout_s=timeout_s,
        )

    async def taken(self) -> None:
        """Record that the answer is put into the event, so that a later life may do so at once."""
        await self._mark(placeholders.replacing_tx, self.message_id)

    async def redact(self, event_id: str) -> None:
        """Redact the event, in one attempt. Raises a ``PlatformError``."""
        await self.sender.redact(
            self.address.room_id, event_id, txn_id=f"ag-x-{short(event_id)}", droppable=True
        )

    async def found(self) -> str:
        """Return the id of an event that may have been sent, or "" if there is none.

        It is sent again with the same transaction id, so it exists then.
        """
        if not self.is_unsure:
            await self.forget()
            return ""
        found: list[str] = []

        async def ask() -> None:
            found.append(await self.create(_DOTS))

        await self._insist(ask)
        return found[0] if found else ""

    def _edit_call(self, platform_id: str, piece: Piece) -> Callable[[], Awaitable[object]]:
        return partial(self.change, platform_id, piece, self.next_edit())

    async def _delete_once(self, platform_id: str) -> None:
        await self.redact(platform_id)
