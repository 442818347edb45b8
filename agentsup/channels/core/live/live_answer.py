"""One answer while it is written: shown as it comes, until the whole answer replaces it.

Sends of a stream may be late, dropped or refused; the answer does not depend on them and is
delivered through the outbox. Only a late edit must never overwrite the whole answer. So if an edit
is still under way when the answer is delivered, the placeholder is not used and is deleted (D21).
How a piece is sent, and what follows from a refusal, is defined by each platform.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, ClassVar, Generic, TypeVar

from agentsup.catalogue import words
from agentsup.channels.core.errors import LowPriorityDropped, PlatformError, RateLimited
from agentsup.channels.core.live.placeholders import (
    PlaceholderUpdates,
    StreamFate,
    StreamOutcome,
    Trust,
)
from agentsup.channels.core.live.rate_limit import (
    PREVIEW_CHARS,
    WINDOW_CHARS,
    Progress,
    RateLimit,
    StreamMode,
    StreamState,
    TextWindow,
    complete_length,
    next_show_at,
)
from agentsup.kit.tasks import is_set_within
from agentsup.observe import LiveTurn

FAILURES_MAX = 3
"""After so many failed sends in a row the turn is shown no more."""
_LOOK_AGAIN_S = 10.0
_LOOK_GAP_S = 0.2
_LOOK_GAP_MAX_S = 2.0
_ENDS = {StreamFate.STOPPED: "part.stopped", StreamFate.BROKEN: "part.interrupted"}

Piece = TypeVar("Piece")


class LiveAnswer(ABC, Generic[Piece]):
    """The stream of one message. ``run`` does all the work; the other methods only signal to it.

    ``Piece`` is the platform's type of a rendered text.
    """

    window_chars: ClassVar[int] = WINDOW_CHARS
    """Most characters of the running text in one message."""
    preview_chars: ClassVar[int] = PREVIEW_CHARS
    """About how many of them stay in view when the window moves."""

    def __init__(self, updates: PlaceholderUpdates[Piece, Any, Any], late_s: float) -> None:
        """``late_s``: a request that was under way when its process ended takes effect within this
        time or never."""
        context, left = updates.context, updates.row
        self._context = context
        self._message_id = updates.message_id
        self._updates = updates
        self._platform_id = "" if left is None else left.platform_id
        is_sure = left is None or left.trust is Trust.REPLACING
        self._sure_at = 0.0 if is_sure else context.clock.monotonic() + late_s
        """Until this loop time an edit of the earlier life may still take effect."""
        self._turn: LiveTurn | None = None
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._state = StreamState()
        self._progress = Progress()
        self._window = TextWindow()
        self._is_quiet = False
        """The whole answer is being delivered: nothing is shown any more."""
        self._is_muted = False
        """This turn is not shown any more, because the platform failed or refused it."""
        self._is_distrusted = left is not None and left.trust is Trust.UNSAFE
        """The outcome of an edit is unknown, so the placeholder may still change."""

    # -- of the platform ---------------------------------------------------------------------------

    @abstractmethod
    async def takeover(self) -> str | None:
        """See ``StreamSet.takeover``."""

    @abstractmethod
    def _pace(self) -> RateLimit:
        """Return how often the text may be sent now."""

    @abstractmethod
    async def _rendered(self, markdown: str) -> Piece | None:
        """Return the text as the platform shows it, or None if nothing is visible in it."""

    def _asked_pause_s(self) -> float:
        """Return for how many seconds the platform allows no such send, or 0."""
        return 0.0

    @abstractmethod
    async def _send(self, piece: Piece) -> bool:
        """Send the piece and set ``_platform_id``; False if an earlier text may be shown instead.

        Raises a ``PlatformError``.
        """

    @abstractmethod
    async def _on_error(self, error: PlatformError, retry_at: float) -> None:
        """React to a send that failed or was refused; the earliest next one is at ``retry_at``."""

    @abstractmethod
    def _ended_with(self, piece: Piece, word: str) -> Piece:
        """Return the piece with a last line that says why the text ends."""

    # -- called from outside -----------------------------------------------------------------------

    def begin(self, turn: LiveTurn) -> None:
        """Show this turn; it replaces an earlier segment of the message."""
        self.detach()
        self._turn = turn
        self._state, self._window = StreamState(), TextWindow()
        self._progress = self._progress.anew()
        self._is_muted = self._is_distrusted
        turn.listen(self._wake.set)
        self._wake.set()

    def detach(self) -> None:
        """Stop following the turn."""
        if self._turn is not None:
            self._turn.unlisten(self._wake.set)

    @property
    def is_running(self) -> bool:
        """Whether the turn still produces text."""
        return self._turn is not None and not self._turn.ended

    def stop_sending(self) -> None:
        """Send nothing more; does not wait for a request under way."""
        self._is_quiet = True
        self._wake.set()

    async def rest(self) -> None:
        """Wait until no request is under way; then the id of a new placeholder is stored."""
        await self._idle.wait()

    async def _rests_within(self, limit_s: float) -> bool:
        """Send nothing more; return whether no request is under way after at most ``limit_s``, and
        none of an earlier life either."""
        self.stop_sending()
        is_sure = self._sure_in_s() <= 0
        return await is_set_within(self._idle, limit_s) and is_sure

    def _sure_in_s(self) -> float:
        return max(0.0, self._sure_at - self._context.clock.monotonic())

    # -- life --------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Show the turn; when it has ended, bring the placeholder to its final state."""
        try:
            while True:
                await self._show_turn()
                if await self._settle() and not self.is_running:
                    return
        finally:
            self.detach()

    async def _show_turn(self) -> None:
        if not self.is_running:
            return
        with self._context.typing(self._updates.address.conversation):
            while self.is_running:
                self._wake.clear()
                now = self._context.clock.monotonic()
                pace = self._pace()
                self._update_state(pace.mode, now)
                at = next_show_at(self._state, self._progress, pace)
                if self._is_muted or self._is_quiet:
                    at = None
                if at is not None and at <= now:
                    await self._show(pace)
                else:
                    await is_set_within(self._wake, None if at is None else at - now)

    def _update_state(self, mode: StreamMode, now: float) -> None:
        """Note how much text the turn has produced."""
        turn = self._turn
        assert turn is not None, "called while a turn runs"
        if turn.stored_from > self._window.start:
            self._window = TextWindow(turn.stored_from)
        if turn.length == self._state.length:
            return
        complete = 0
        if mode is StreamMode.BUFFERED:
            text = turn.text(self._window.start)
            complete = self._window.start + complete_length(text, self._window.fence)
        self._state = self._state.grown(turn.length, complete, now)

    # -- showing -----------------------------------------------------------------------------------

    async def _show(self, pace: RateLimit) -> None:
        length = self._state.complete if pace.mode is StreamMode.BUFFERED else self._state.length
        self._idle.clear()
        try:
            piece = await self._rendered(self._in_view(length))
            if piece is None:
                self._progress = replace(self._progress, length=length)  # nothing visible in it yet
            elif self.is_running and not self._is_quiet:
                await self._try(piece, length, pace)
        finally:
            self._idle.set()

    def _in_view(self, length: int) -> str:
        """Return the Markdown to show of the text up to ``length``; moves the window if needed."""
        turn, window = self._turn, self._window
        assert turn is not None, "called with a turn"
        text = turn.text(window.start)[: max(0, length - window.start)]
        self._window = window.moved(text, most=self.window_chars, keep=self.preview_chars)
        return self._window.markdown(text[self._window.start - window.start :])

    async def _try(self, piece: Piece, length: int, pace: RateLimit) -> None:
        """Send once, and set from the result when and whether to send again."""
        now = self._context.clock.monotonic
        pause_s = self._asked_pause_s()
        if pause_s > 0:
            self._progress = self._progress.paused(now() + pause_s)
            return
        try:
            is_shown = await self._send(piece)
        except RateLimited as error:
            self._progress = self._progress.slowed(
                now() + max(error.retry_after_s, pace.interval_s)
            )
        except LowPriorityDropped:
            self._progress = self._progress.paused(now() + pace.interval_s)
        except PlatformError as error:
            await self._on_error(error, now() + pace.interval_s)
        else:
            self._progress = self._progress.shown(length if is_shown else 0, now())

    def _on_failure(self, retry_at: float) -> None:
        """Try again later, unless too many sends have failed."""
        self._progress = self._progress.failed(retry_at)
        self._is_muted = self._progress.failures >= FAILURES_MAX

    # -- the end -----------------------------------------------------------------------------------

    @property
    def _may_be_shown(self) -> bool:
        """Whether a placeholder exists, or may exist."""
        return bool(self._platform_id)

    async def _settle(self) -> bool:
        """Wait for the outcome of the message, and end the placeholder accordingly.

        False if the turn runs again.
        """
        if not self._may_be_shown:
            return True
        gap_s = _LOOK_GAP_S
        with ExitStack() as listening:
            for topic in ("events", f"agent:{self._context.agent_id}"):
                listening.callback(self._context.database.listen(topic, self._wake.set))
            while not self.is_running:
                self._wake.clear()
                outcome = await self._updates.outcome()
                if outcome.fate not in (StreamFate.OPEN, StreamFate.ANSWERING):
                    # From now on no answer may be edited into it: its end may take a while.
                    platform_id, self._platform_id = self._platform_id, ""
                    await self._end(platform_id, outcome)
                    return True
                await self._context.clock.sleep(gap_s)  # most wake-ups are for other messages
                gap_s = min(1.5 * gap_s, _LOOK_GAP_MAX_S)
                await is_set_within(self._wake, _LOOK_AGAIN_S)
        return False

    async def _end(self, platform_id: str, outcome: StreamOutcome) -> None:
        platform_id = platform_id or await self._updates.found() or ""
        if not platform_id:
            return
        is_final = outcome.is_in(platform_id)
        if not is_final and not self._is_distrusted:
            is_final = await self._keep(platform_id, outcome)
        if is_final or await self._updates.delete(platform_id):
            await self._updates.forget()

    async def _keep(self, platform_id: str, outcome: StreamOutcome) -> bool:
        """Edit the placeholder to a last text that is true; False if there is none."""
        if outcome.fate is not StreamFate.UNCERTAIN and outcome.fate not in _ENDS:
            return False
        # A late edit of an earlier life must not change the text that stays.
        await self._context.clock.sleep(self._sure_in_s())
        if outcome.fate is StreamFate.UNCERTAIN:
            return await self._updates.mend(platform_id, outcome.text)
        return await self._freeze(platform_id, words(outcome.language)(_ENDS[outcome.fate]))

    async def _freeze(self, platform_id: str, word: str) -> bool:
        """Keep the text that was shown and append ``word``; False if none was shown."""
        if self._turn is None or self._turn.length == 0 or self._progress.length == 0:
            return False
        piece = await self._rendered(self._in_view(self._turn.length))
        if piece is None:
            return False
        return await self._updates.edit(platform_id, self._ended_with(piece, word))
