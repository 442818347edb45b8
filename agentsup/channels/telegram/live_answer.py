"""One answer while it is written: shown as it comes, until the whole answer takes its place.

What is sent here may be late, dropped or refused; none of that touches the answer, which comes
through the outbox. The one thing that must not happen is a late edit over the whole answer: so a
message of which an edit is still under way when the answer comes is given up and deleted (D21).
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any, Final

from agentsup.catalogue import words
from agentsup.channels.pace import (
    WINDOW_CHARS,
    Heard,
    Mode,
    Pace,
    Progress,
    Way,
    Window,
    complete_length,
    draft_id_of,
    next_show_at,
)
from agentsup.channels.streamed import Fate, Outcome
from agentsup.channels.telegram import render
from agentsup.channels.telegram.errors import (
    ChatGone,
    ChatMigrated,
    Dropped,
    FateUnknown,
    FloodWait,
    MarkupRefused,
    NotModified,
    Refused,
    TelegramError,
    TokenRefused,
)
from agentsup.channels.telegram.flood import Kind
from agentsup.channels.telegram.place import Place
from agentsup.channels.telegram.placeholders import Placeholder
from agentsup.channels.telegram.sender import SendPriority
from agentsup.channels.telegram.upkeep import NO_PREVIEW, Bench, Upkeep
from agentsup.observe.live import LiveTurn

__all__ = ["LATE_S", "LiveAnswer"]

_log = logging.getLogger(__name__)

EDIT_QUIET_S: Final = 1.0
"""So long the answer waits for an edit under way; then it goes as a new message."""
DRAFT_QUIET_S: Final = 0.3
"""The same for a draft, which at worst is seen for some seconds more."""
LATE_S: Final = 3.0
"""What a request does that was under way when its process ended, it does within this time."""
SEND_TIMEOUT_S: Final = 10.0
_FAILURES_MAX = 3
_LOOK_AGAIN_S = 10.0
_LOOK_GAP_S = 0.2
_LOOK_GAP_MAX_S = 2.0
_CURSOR = " …"
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
        self._platform_id = None if left is None else left.platform_id
        self._sure_at = 0.0 if left is None else bench.clock.monotonic() + LATE_S
        """Until then an edit of the earlier life may still come into effect."""
        self._key = f"stream:{message_id}"
        self._upkeep = Upkeep(bench, message_id, place)
        self._turn: LiveTurn | None = None
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._heard = Heard()
        self._progress = Progress()
        self._window = Window()
        self._is_plain = False
        self._is_quiet = False
        """The whole answer comes: nothing is shown any more."""
        self._is_muted = False
        """This turn is not shown any more, because the platform would not have it."""
        self._is_distrusted = left is not None and not left.is_trusted
        """The fate of an edit is unknown, so the placeholder may change once more by itself."""

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

    async def takeover(self) -> int | None:
        """The whole answer comes: show nothing more, and give up the placeholder's id, if any.

        Waits shortly for a request under way. None: the answer is sent as a new message, and a
        placeholder that there may be is deleted.
        """
        self.hush()
        if self._sure_in_s() > 0:
            self._is_distrusted = True
        try:
            async with asyncio.timeout(DRAFT_QUIET_S if self._way is Way.DRAFT else EDIT_QUIET_S):
                await self.rest()
        except TimeoutError:
            self._is_distrusted = True
        if self._platform_id is not None and self._edit_must_wait() and not self._is_distrusted:
            await self._distrust()
        return None if self._is_distrusted else self._platform_id

    def _edit_must_wait(self) -> bool:
        """Whether the platform takes a message there sooner than an edit: the stream's edits may
        have been too many, and the answer does not wait for that."""
        pause_s, chat_id = self._bench.sender.pause_s, self._place.chat_id
        return pause_s(chat_id, Kind.EDIT) > pause_s(chat_id, Kind.MESSAGE) + EDIT_QUIET_S

    def _sure_in_s(self) -> float:
        return self._sure_at - self._bench.clock.monotonic()

    def hush(self) -> None:
        """Begin to send nothing more."""
        self._is_quiet = True
        self._wake.set()
        self._bench.sender.withdraw(self._key)

    async def rest(self) -> None:
        """Wait until nothing is under way; the id of a message that was born counts then."""
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

    @property
    def _way(self) -> Way:
        if self._platform_id is None and self._bench.takes_drafts(self._place):
            return Way.DRAFT
        return Way.EDIT

    def _pace(self) -> Pace:
        wanted = self._bench.streaming()
        return Pace.of(
            self._bench.mode(),
            self._way,
            interval_s=wanted.edit_interval_s,
            min_chars=wanted.min_chars,
            idle_ms=wanted.idle_ms,
            group=not self._place.is_private,
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
                fields = self._fields(piece)
                if self._way is Way.EDIT and len(fields["text"]) <= WINDOW_CHARS:
                    fields["text"] += _CURSOR
                await self._try(fields, length, pace)
        finally:
            self._idle.set()

    def _in_view(self, length: int) -> str:
        """The Markdown to show of the text up to ``length``; moves the window where it must."""
        turn, window = self._turn, self._window
        assert turn is not None, "called with a turn"
        text = turn.text(window.start)[: max(0, length - window.start)]
        self._window = window.moved(text)
        return self._window.markdown(text[self._window.start - window.start :])

    def _fields(self, piece: render.Piece) -> dict[str, Any]:
        return {"text": render.plain(piece)} if self._is_plain else piece.fields()

    async def _try(self, fields: dict[str, Any], length: int, pace: Pace) -> None:
        """Send once, and draw the conclusions."""
        clock, way = self._bench.clock, self._way
        kind = Kind.LIGHT if way is Way.DRAFT else Kind.EDIT
        pause_s = self._bench.sender.pause_s(self._place.chat_id, kind)
        if pause_s > 0:
            self._progress = self._progress.held(clock.monotonic() + pause_s)
            return
        try:
            await self._send(way, fields)
        except NotModified:
            self._progress = self._progress.shown(length, clock.monotonic())
        except FloodWait as error:
            until = clock.monotonic() + max(error.retry_after_s, pace.interval_s)
            self._progress = self._progress.slowed(until)
        except Dropped:
            self._progress = self._progress.held(clock.monotonic() + pace.interval_s)
        except MarkupRefused:
            self._is_muted, self._is_plain = self._is_plain, True
        except (ChatGone, ChatMigrated, TokenRefused):
            self._is_muted = True
        except Refused as error:
            await self._on_refusal(way, error)
        except TelegramError as error:
            await self._on_trouble(way, error, clock.monotonic() + pace.interval_s)
        else:
            self._progress = self._progress.shown(length, clock.monotonic())

    async def _send(self, way: Way, fields: dict[str, Any]) -> None:
        place, send = self._place, self._bench.sender.send
        if place.topic_id is not None and (way is Way.DRAFT or self._platform_id is None):
            fields["message_thread_id"] = place.topic_id
        common: dict[str, Any] = {
            "droppable": True,
            "replaces": self._key,
            "timeout_s": SEND_TIMEOUT_S,
            **fields,
        }
        if way is Way.DRAFT:
            draft_id = draft_id_of(self._message_id)
            await send(
                place.chat_id,
                "sendMessageDraft",
                priority=SendPriority.DRAFT,
                draft_id=draft_id,
                **common,
            )
            return
        common |= {"priority": SendPriority.EDIT, **NO_PREVIEW}
        if self._platform_id is not None:
            await send(place.chat_id, "editMessageText", message_id=self._platform_id, **common)
            return
        sent = await send(place.chat_id, "sendMessage", **common)
        self._platform_id = int(sent["message_id"])
        await self._upkeep.record(self._platform_id)

    async def _on_refusal(self, way: Way, error: Refused) -> None:
        if way is Way.DRAFT:
            _log.info("drafts are not taken, edits instead: %s", error)
            # 404: the server knows no such method at all.
            self._bench.refused_drafts.add(0 if error.error_code == 404 else self._place.chat_id)
            return
        self._is_muted = True
        if self._platform_id is not None:
            await self._distrust()  # most likely a person deleted it

    async def _on_trouble(self, way: Way, error: TelegramError, until: float) -> None:
        _log.debug("the stream of %s: %s", self._message_id, error)
        if way is Way.EDIT and isinstance(error, FateUnknown):
            self._is_muted = True
            await self._distrust()
            return
        self._progress = self._progress.failed(until)
        self._is_muted = self._progress.failures >= _FAILURES_MAX

    async def _distrust(self) -> None:
        self._is_distrusted = True
        await self._upkeep.distrust()

    # -- the end -----------------------------------------------------------------------------------

    async def _settle(self) -> bool:
        """Wait for what becomes of the message and end the placeholder accordingly; False when the
        turn runs again."""
        if self._platform_id is None:
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
                    platform_id, self._platform_id = self._platform_id, None
                    await self._end(platform_id, outcome)
                    return True
                await self._bench.clock.sleep(gap_s)  # much else makes events
                gap_s = min(1.5 * gap_s, _LOOK_GAP_MAX_S)
                await self._pause(_LOOK_AGAIN_S)
        finally:
            for stop in unlisten:
                stop()
        return False

    async def _end(self, platform_id: int, outcome: Outcome) -> None:
        await self._bench.clock.sleep(self._sure_in_s())
        is_kept = outcome.is_in(platform_id)
        if not is_kept and not self._is_distrusted:
            if outcome.fate is Fate.UNCERTAIN:
                is_kept = await self._upkeep.mend(platform_id, outcome.text)
            elif outcome.fate in _ENDS:
                word = words(outcome.language)(_ENDS[outcome.fate])
                is_kept = await self._freeze(platform_id, word)
        if is_kept or await self._upkeep.delete(platform_id):
            await self._upkeep.forget()

    async def _freeze(self, platform_id: int, word: str) -> bool:
        """Leave what was said, and say that this is all; False if nothing was said."""
        if self._turn is None or self._turn.length == 0 or self._progress.length == 0:
            return False
        piece = await _rendered(self._in_view(self._turn.length))
        if piece is None:
            return False
        fields = self._fields(piece)
        fields["text"] += f"\n\n{word}"
        return await self._upkeep.edit(platform_id, fields | NO_PREVIEW)


async def _rendered(markdown: str) -> render.Piece | None:
    if len(markdown) <= render.ON_LOOP_MAX_CHARS:
        return render.render_partial(markdown)
    return await asyncio.to_thread(render.render_partial, markdown)
