"""Live answers in Matrix: edits of one event while an answer is written.

Sends carry transaction ids, so one of unknown outcome is made again, and its outcome is known.
"""

from __future__ import annotations

from typing import Final

from agentsup.channels.core.errors import NotSent, OutcomeUnknown, PlatformError
from agentsup.channels.core.live import live_answer
from agentsup.channels.core.live.placeholders import Trust
from agentsup.channels.core.live.rate_limit import RateLimit
from agentsup.channels.core.live.stream_outcome import StreamOutcome
from agentsup.channels.matrix.placeholder_updates import SEND_TIMEOUT_S, EventUpdates
from agentsup.channels.matrix.render import Piece, render_partial, with_line
from agentsup.channels.text.rendering import rendered
from agentsup.kit.log import get_logger
from agentsup.kit.tasks import time_limit

_log = get_logger(__name__)

QUIET_S: Final = 1.0
"""The longest wait of the answer for an edit under way; then it is sent as a new message."""
LATE_S: Final = 20.0
"""However slow the homeserver is."""
LEAST_INTERVAL_S: Final = 1.0
_INTERVAL_CAP_S = 20.0
_CURSOR = "…"


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
        wanted = self._context.streaming()
        interval_s = max(LEAST_INTERVAL_S, wanted.edit_interval_s)
        return RateLimit(
            self._context.mode(),
            interval_s,
            wanted.min_chars,
            wanted.idle_ms / 1000,
            interval_cap_s=max(interval_s, _INTERVAL_CAP_S),
        )

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
