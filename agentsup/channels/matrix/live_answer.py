"""Live answers in Matrix: edits of one event while an answer is written.

A row is written before the event is sent. All sends carry transaction ids, that of the event is made
from the row: so one of unknown outcome is made again, and a crash at any moment leaves no unknown
event behind (P2).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from agentsup.channels.core.errors import LowPriorityDropped, NotSent, OutcomeUnknown, PlatformError
from agentsup.channels.core.live import live_answer, placeholders
from agentsup.channels.core.live.placeholders import (
    Placeholder,
    PlaceholderUpdates,
    StreamContext,
    StreamOutcome,
    Trust,
)
from agentsup.channels.core.live.rate_limit import RateLimit
from agentsup.channels.core.live.streams import StreamSet
from agentsup.channels.matrix.address import RoomAddress, parse
from agentsup.channels.matrix.outgoing import MESSAGE, content_of, edit_of, new_of, short
from agentsup.channels.matrix.render import Piece, render, render_partial, with_line
from agentsup.channels.matrix.sender import Sender
from agentsup.channels.matrix.status import Reactions, SeenReaction, Typing
from agentsup.channels.text.long import rendered
from agentsup.kit.log import get_logger
from agentsup.kit.tasks import time_limit

SEND_TIMEOUT_S: Final = 10.0
_DOTS = Piece("…")
_log = get_logger(__name__)
QUIET_S: Final = 1.0
"""The longest wait of the answer for an edit under way; then it is sent as a new message."""
LATE_S: Final = 20.0
"""However slow the homeserver is."""
LEAST_INTERVAL_S: Final = 1.0
_CURSOR = "…"


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


class LiveAnswer(live_answer.LiveAnswer[Piece]):
    """The stream of one message."""

    window_chars = 6_000  # each edit carries all of the text
    preview_chars = 2_000

    def __init__(self, updates: EventUpdates) -> None:
        super().__init__(updates, LATE_S)
        self._event = updates
        self._address = updates.address
        self._sender = updates.sender
        self._is_taken = updates.row is not None and updates.row.trust is Trust.REPLACING
        self._unknown_edit: tuple[Piece, str] | None = None
        """An edit of unknown outcome; sent again with its transaction id, the outcome is known."""

    async def takeover(self) -> str | None:
        """Show nothing more, as the whole answer comes; return the event to put it into, or None.

        Waits up to ``QUIET_S`` for a request under way. None: the answer is sent as a new message,
        and the placeholder, if any, is redacted. None is final, also for later lives: the answer
        may have been sent already.
        """
        is_sure = await self._rests_within(QUIET_S)
        if not is_sure or self._unknown_edit is not None or not self._platform_id:
            self._is_distrusted = True
        if self._is_distrusted:
            if self._event.is_begun:
                await self._event.distrust()
                await self._take_back()
            return None
        if not self._is_taken:
            await self._event.taken()
            self._is_taken = True
        return self._platform_id

    async def _take_back(self) -> None:
        """Try once to redact the placeholder before the answer is sent; ``run`` repeats it."""
        if not self._platform_id:
            return
        try:
            async with time_limit(QUIET_S):
                await self._event.redact(self._platform_id)
        except (TimeoutError, PlatformError) as error:
            _log.debug(f"the stream of {self._message_id} is taken back later: {error}")

    def _pace(self) -> RateLimit:
        mode, wanted = self._context.mode(), self._context.streaming()
        return RateLimit.of(mode, wanted, least_s=LEAST_INTERVAL_S)

    async def _rendered(self, markdown: str) -> Piece | None:
        return await rendered(render_partial, markdown, agent_id=self._context.agent_id)

    def _ended_with(self, piece: Piece, word: str) -> Piece:
        return with_line(piece, word)

    def _asked_pause_s(self) -> float:
        return self._sender.pause_s(self._address.room_id)

    async def _send(self, piece: Piece) -> bool:
        shown = with_line(piece, _CURSOR)
        if not self._platform_id:
            is_first = not self._event.is_unsure
            self._platform_id = await self._event.create(shown)
            return is_first
        if self._unknown_edit is not None:
            await self._change(*self._unknown_edit)
            self._unknown_edit = None
        txn_id = self._event.next_edit()
        try:
            await self._change(shown, txn_id)
        except OutcomeUnknown:
            self._unknown_edit = (shown, txn_id)
            raise
        return True

    async def _change(self, piece: Piece, txn_id: str) -> None:
        await self._event.change(self._platform_id, piece, txn_id, timeout_s=SEND_TIMEOUT_S)

    async def _on_error(self, error: PlatformError, retry_at: float) -> None:
        _log.debug(f"the stream of {self._message_id}: {error}")
        if isinstance(error, OutcomeUnknown | NotSent):
            self._on_failure(retry_at)
        else:
            self._is_muted = self._is_distrusted = True

    @property
    def _may_be_shown(self) -> bool:
        return self._event.is_begun

    async def _keep(self, platform_id: str, outcome: StreamOutcome) -> bool:
        return self._unknown_edit is None and await super()._keep(platform_id, outcome)


class Streams(StreamSet[Sender]):
    """The live answers of one bot in one life."""

    channel = "matrix"
    typing_kind = Typing
    reactions_kind = Reactions

    def _target(self, message_id: str, conversation: str, platform_id: str) -> SeenReaction:
        return SeenReaction(message_id, parse(conversation).room_id, platform_id)

    def _new(
        self, message_id: str, conversation: str, left: Placeholder | None = None
    ) -> LiveAnswer:
        address = parse(conversation)
        return LiveAnswer(EventUpdates(self._context, message_id, address, self._sender, left))
