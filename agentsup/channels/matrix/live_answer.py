"""One answer while it is written: shown as it comes, until the whole answer takes its place.

What is sent here may be late, dropped or refused; none of that touches the answer, which comes
through the outbox. The one thing that must not happen is a late edit over the whole answer: so an
event of which an edit is still under way when the answer comes is given up and taken back (D21).
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any, Final

from agentsup.catalogue import words
from agentsup.channels.matrix.errors import (
    Dropped,
    FateUnknown,
    MatrixError,
    NotSent,
    RateLimited,
)
from agentsup.channels.matrix.place import Place
from agentsup.channels.matrix.placeholders import Placeholder
from agentsup.channels.matrix.render import (
    ON_LOOP_MAX_CHARS,
    Piece,
    render_partial,
    with_line,
)
from agentsup.channels.matrix.upkeep import Bench, Upkeep, content_of
from agentsup.channels.pace import (
    Heard,
    Mode,
    Pace,
    Progress,
    Window,
    complete_length,
    next_show_at,
)
from agentsup.channels.streamed import Fate, Outcome
from agentsup.observe.live import LiveTurn

__all__ = ["LATE_S", "LiveAnswer"]

_log = logging.getLogger(__name__)

QUIET_S: Final = 1.0
"""So long the answer waits for an edit under way; then it goes as a new message."""
LATE_S: Final = 20.0
"""What a request does that was under way when its process ended, it does within this time, however
slow the homeserver is."""
LEAST_INTERVAL_S: Final = 1.0
WINDOW_CHARS: Final = 6_000
"""Most characters of the running text in one event: each edit carries all of it."""
KEPT_CHARS: Final = 2_000
_INTERVAL_CAP_S = 20.0
_FAILURES_MAX = 3
_LOOK_AGAIN_S = 10.0
_LOOK_GAP_S = 0.2
_LOOK_GAP_MAX_S = 2.0
_CURSOR = "…"
_ENDS = {Fate.STOPPED: "part.stopped", Fate.BROKEN: "part.interrupted"}


class LiveAnswer:
    """The stream of one message. ``run`` is its life; everything else only tells it something."""

    def __init__(
        self, bench: Bench, message_id: str, place: Place, left: Placeholder | None = None
    ) -> None:
        """``left``: the placeholder that an earlier life left."""
        self._bench = bench
        self._message_id = message_id
        self._place = place
        self._upkeep = Upkeep(bench, message_id, place, left)
        self._event_id = left.event_id if left is not None else ""
        self._is_taken = left is not None and left.is_taken
        is_sure = left is None or left.is_taken
        self._sure_at = 0.0 if is_sure else bench.clock.monotonic() + LATE_S
        """Until then an edit of the earlier life may still come into effect."""
        self._turn: LiveTurn | None = None
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._heard = Heard()
        self._progress = Progress()
        self._window = Window()
        self._doubtful: tuple[dict[str, Any], str] | None = None
        """An edit of unknown fate; with its transaction id again it is known."""
        self._is_quiet = False
        """The whole answer comes: nothing is shown any more."""
        self._is_muted = False
        """This turn is not shown any more, because the homeserver would not have it."""
        self._is_distrusted = left is not None and not left.is_trusted

    # -- told from outside -------------------------------------------------------------------------

    def begin(self, turn: LiveTurn) -> None:
        """Show this turn; it replaces an earlier segment of the message."""
        self.leave()
        self._turn = turn
        self._heard, self._window = Heard(), Window()
        self._progress = self._progress.anew()
        self._is_muted = self._is_distrusted
        turn.on_change = self._wake.set
        self._wake.set()

    def leave(self) -> None:
        """Hear no more of the turn."""
        if self._turn is not None:
            self._turn.leave()

    @property
    def is_running(self) -> bool:
        """Whether the turn still produces text."""
        return self._turn is not None and not self._turn.ended

    async def takeover(self) -> str | None:
        """The whole answer comes: show nothing more, and give up the placeholder's id, if any.

        Waits shortly for a request under way. None: the answer is sent as a new message, and a
        placeholder that there may be is taken back. None is given for good, also to later lives:
        the answer may have gone already.
        """
        self.hush()
        is_sure = self._bench.clock.monotonic() >= self._sure_at
        try:
            async with asyncio.timeout(QUIET_S):
                await self.rest()
        except TimeoutError:
            is_sure = False
        if not is_sure or self._doubtful is not None or not self._event_id:
            self._is_distrusted = True
        if self._is_distrusted:
            if self._upkeep.is_begun:
                await self._upkeep.distrust()
                await self._take_back()
            return None
        if not self._is_taken:
            await self._upkeep.taken()
            self._is_taken = True
        return self._event_id

    async def _take_back(self) -> None:
        """Try once to remove the placeholder before the answer is there; its end does so for sure."""
        if not self._event_id:
            return
        try:
            async with asyncio.timeout(QUIET_S):
                await self._upkeep.redact(self._event_id)
        except (TimeoutError, MatrixError) as error:
            _log.debug("the stream of %s is taken back later: %s", self._message_id, error)

    def hush(self) -> None:
        """Begin to send nothing more."""
        self._is_quiet = True
        self._wake.set()

    async def rest(self) -> None:
        """Wait until nothing is under way; the id of an event that was born counts then."""
        await self._idle.wait()

    # -- life --------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Show the turn, and when it has ended give the placeholder the end it deserves."""
        try:
            while True:
                await self._show_turn()
                if await self._settle() and not self.is_running:
                    return
        finally:
            self.leave()

    async def _show_turn(self) -> None:
        if not self.is_running:
            return
        with self._bench.typing(self._place):
            while self.is_running:
                self._wake.clear()
                now = self._bench.clock.monotonic()
                pace = self._pace()
                self._hear(pace.mode, now)
                at = next_show_at(self._heard, self._progress, pace)
                if self._is_muted or self._is_quiet:
                    at = None
                if at is not None and at <= now:
                    await self._show(pace)
                else:
                    await self._pause(None if at is None else at - now)

    async def _pause(self, limit_s: float | None) -> None:
        """Wait until something changes, at most ``limit_s``."""
        try:
            async with asyncio.timeout(limit_s):
                await self._wake.wait()
        except TimeoutError:
            return

    def _pace(self) -> Pace:
        wanted = self._bench.streaming()
        interval_s = max(LEAST_INTERVAL_S, wanted.edit_interval_s)
        return Pace(
            self._bench.mode(),
            interval_s,
            wanted.min_chars,
            wanted.idle_ms / 1000,
            interval_cap_s=max(interval_s, _INTERVAL_CAP_S),
        )

    def _hear(self, mode: Mode, now: float) -> None:
        """Note how far the text has come."""
        turn = self._turn
        assert turn is not None, "called while a turn runs"
        if turn.kept_from > self._window.start:
            self._window = Window(turn.kept_from)
        if turn.length == self._heard.length:
            return
        complete = 0
        if mode is Mode.BUFFERED:
            text = turn.text(self._window.start)
            complete = self._window.start + complete_length(text, self._window.fence)
        self._heard = self._heard.grown(turn.length, complete, now)

    # -- showing -----------------------------------------------------------------------------------

    async def _show(self, pace: Pace) -> None:
        length = self._heard.complete if pace.mode is Mode.BUFFERED else self._heard.length
        self._idle.clear()
        try:
            piece = await _rendered(self._in_view(length))
            if piece is None:
                self._progress = replace(self._progress, length=length)  # nothing visible in it yet
            elif self.is_running and not self._is_quiet:
                await self._try(content_of(with_line(piece, _CURSOR)), length, pace)
        finally:
            self._idle.set()

    def _in_view(self, length: int) -> str:
        """The Markdown to show of the text up to ``length``; moves the window where it must."""
        turn, window = self._turn, self._window
        assert turn is not None, "called with a turn"
        text = turn.text(window.start)[: max(0, length - window.start)]
        self._window = window.moved(text, most=WINDOW_CHARS, keep=KEPT_CHARS)
        return self._window.markdown(text[self._window.start - window.start :])

    async def _try(self, content: dict[str, Any], length: int, pace: Pace) -> None:
        """Send once, and draw the conclusions."""
        clock = self._bench.clock
        pause_s = self._bench.sender.pause_s(self._place.room_id)
        if pause_s > 0:
            self._progress = self._progress.held(clock.monotonic() + pause_s)
            return
        try:
            is_there = await self._send(content)
        except RateLimited as error:
            until = clock.monotonic() + max(error.retry_after_s, pace.interval_s)
            self._progress = self._progress.slowed(until)
        except Dropped:
            self._progress = self._progress.held(clock.monotonic() + pace.interval_s)
        except (FateUnknown, NotSent) as error:
            _log.debug("the stream of %s: %s", self._message_id, error)
            self._progress = self._progress.failed(clock.monotonic() + pace.interval_s)
            self._is_muted = self._progress.failures >= _FAILURES_MAX
        except MatrixError as error:
            _log.debug("the stream of %s is refused: %s", self._message_id, error)
            self._is_muted = self._is_distrusted = True
        else:
            self._progress = self._progress.shown(length if is_there else 0, clock.monotonic())

    async def _send(self, content: dict[str, Any]) -> bool:
        """Whether the content is there now; an event sent before may hold an earlier one."""
        if not self._event_id:
            is_first = not self._upkeep.is_unsure
            self._event_id = await self._upkeep.create(content)
            return is_first
        if self._doubtful is not None:
            await self._upkeep.change(self._event_id, *self._doubtful)
            self._doubtful = None
        txn_id = self._upkeep.next_edit()
        try:
            await self._upkeep.change(self._event_id, content, txn_id)
        except FateUnknown:
            self._doubtful = (content, txn_id)
            raise
        return True

    # -- the end -----------------------------------------------------------------------------------

    async def _settle(self) -> bool:
        """Wait for what becomes of the message and end the placeholder accordingly; False when the
        turn runs again."""
        if not self._upkeep.is_begun:
            return True
        unlisten = [
            self._bench.database.listen(topic, self._wake.set)
            for topic in ("events", f"agent:{self._bench.agent_id}")
        ]
        gap_s = _LOOK_GAP_S
        try:
            while not self.is_running:
                self._wake.clear()
                outcome = await self._upkeep.outcome()
                if outcome.fate not in (Fate.OPEN, Fate.ANSWERING):
                    # From now on it is not there for an answer to come: its end may take a while.
                    event_id, self._event_id = self._event_id, ""
                    await self._end(event_id, outcome)
                    return True
                await self._bench.clock.sleep(gap_s)  # much else makes events
                gap_s = min(1.5 * gap_s, _LOOK_GAP_MAX_S)
                await self._pause(_LOOK_AGAIN_S)
        finally:
            for stop in unlisten:
                stop()
        return False

    async def _end(self, event_id: str, outcome: Outcome) -> None:
        if not event_id:
            event_id = await self._upkeep.found() or ""
            if not event_id:
                return
        is_kept = event_id in outcome.platform_ids
        if not is_kept and not self._is_distrusted and self._doubtful is None:
            is_kept = await self._keep(event_id, outcome)
        if is_kept or await self._upkeep.delete(event_id):
            await self._upkeep.forget()

    async def _keep(self, event_id: str, outcome: Outcome) -> bool:
        """Give it a last text that is true, where there is one; False if it is to be taken back."""
        if outcome.fate is not Fate.UNCERTAIN and outcome.fate not in _ENDS:
            return False
        # What stays may not change any more.
        await self._bench.clock.sleep(max(0.0, self._sure_at - self._bench.clock.monotonic()))
        if outcome.fate is Fate.UNCERTAIN:
            return await self._upkeep.mend(event_id, outcome.text)
        return await self._freeze(event_id, words(outcome.language)(_ENDS[outcome.fate]))

    async def _freeze(self, event_id: str, word: str) -> bool:
        """Leave what was said, and say that this is all; False if nothing was said."""
        if self._turn is None or self._turn.length == 0 or self._progress.length == 0:
            return False
        piece = await _rendered(self._in_view(self._turn.length))
        return piece is not None and await self._upkeep.edit(event_id, with_line(piece, word))


async def _rendered(markdown: str) -> Piece | None:
    if len(markdown) <= ON_LOOP_MAX_CHARS:
        return render_partial(markdown)
    return await asyncio.to_thread(render_partial, markdown)
