"""Decides when a running answer is shown, and how much of it. Pure.

A stream is optional: the answer itself is delivered through the outbox. So a stream sends rarely
where the platform is strict, more rarely the longer it lasts, and nothing during a pause that the
platform asked for (P3).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Self

from agentsup.model.agent import Streaming

WINDOW_CHARS: Final = 3_000
"""Most characters of the running text in one message; with its markup it still fits one piece."""
PREVIEW_CHARS: Final = 900
"""About how many characters stay in view when the window moves."""
_SENDS_OF_A_PAUSE = 10
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")


class StreamMode(StrEnum):
    """The amount of an answer that is shown while it is written."""

    OFF = "off"
    BUFFERED = "buffered"
    """Paragraphs, once they are complete."""
    LIVE = "live"
    """The text as it comes."""


@dataclass(frozen=True, slots=True)
class RateLimit:
    """Limits on the sends of a running text. Times in seconds."""

    mode: StreamMode
    interval_s: float
    """Least time between two sends; it grows with their number."""
    min_chars: int
    idle_s: float
    refresh_s: float | None = None
    """Show the same text again after this time, for a preview that disappears; None: never."""
    steady_sends: int = 10
    """So many sends keep to ``interval_s``; after each further one the gap grows."""
    growth: float = 1.1
    interval_cap_s: float = 20.0

    @classmethod
    def of(
        cls,
        mode: StreamMode,
        wanted: Streaming,
        *,
        least_s: float,
        cap_s: float = 20.0,
        refresh_s: float | None = None,
    ) -> Self:
        """Return what the settings want, with at least ``least_s`` between two sends."""
        interval_s = max(wanted.edit_interval_s, least_s)
        return cls(
            mode,
            interval_s,
            wanted.min_chars,
            wanted.idle_ms / 1000,
            refresh_s,
            interval_cap_s=max(interval_s, cap_s),
        )

    def gap_s(self, sends: int) -> float:
        """Least seconds after the ``sends``-th send.

        It grows, because platforms slow down bots that edit one message for long.
        """
        grown = self.growth ** min(200, max(0, sends - self.steady_sends))
        return min(max(self.interval_cap_s, self.interval_s), self.interval_s * grown)


@dataclass(frozen=True, slots=True)
class StreamState:
    """Progress of the running text. Lengths in characters, times in loop seconds."""

    length: int = 0
    complete: int = 0
    """The length up to the end of the last complete paragraph."""
    first_at: float = 0.0
    last_at: float = 0.0

    def grown(self, length: int, complete: int, at: float) -> StreamState:
        """Return the state after more text has come."""
        if length == self.length:
            return self
        return StreamState(length, complete, self.first_at if self.length else at, at)


@dataclass(frozen=True, slots=True)
class Progress:
    """The amount of text that was shown, and the platform's reactions. Times in loop seconds."""

    length: int = 0
    at: float | None = None
    """The time of the last successful send."""
    sends: int = 0
    failures: int = 0
    not_before: float = 0.0

    def shown(self, length: int, at: float) -> Progress:
        """After a send that worked."""
        return Progress(length, at, self.sends + 1)

    def paused(self, until: float) -> Progress:
        """After a send that gave way to others: nothing is sent before ``until``."""
        return replace(self, not_before=max(self.not_before, until))

    def slowed(self, until: float) -> Progress:
        """After the platform asked for a pause: nothing before ``until``, and fewer sends later."""
        return replace(self.paused(until), sends=self.sends + _SENDS_OF_A_PAUSE)

    def failed(self, until: float) -> Progress:
        """After a send that failed: nothing is sent before ``until``."""
        return replace(self.paused(until), failures=self.failures + 1)

    def anew(self) -> Progress:
        """The progress after a new text has begun in the same message."""
        return replace(self, length=0)


def next_show_at(state: StreamState, progress: Progress, pace: RateLimit) -> float | None:
    """Return the loop time at which to show the text if no more text comes; None: not at all."""
    if pace.mode is StreamMode.OFF:
        return None
    length = state.length if pace.mode is StreamMode.LIVE else state.complete
    if length > progress.length:
        ready_at = state.last_at
        if progress.length == 0 and pace.mode is StreamMode.LIVE and length < pace.min_chars:
            # A short beginning is shown when the text pauses, or after one interval.
            ready_at = min(state.last_at + pace.idle_s, state.first_at + pace.interval_s)
    elif pace.refresh_s is not None and progress.at is not None and progress.length:
        ready_at = progress.at + pace.refresh_s
    else:
        return None
    if progress.at is not None:
        ready_at = max(ready_at, progress.at + pace.gap_s(progress.sends))
    return max(ready_at, progress.not_before)


# -- which part ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TextWindow:
    """The part of a running text that fits one message. Positions count from the text's beginning.

    It grows with the text; when it would become too long, its start moves on, if possible to the
    beginning of a paragraph.
    """

    start: int = 0
    fence: str = ""
    """The line that opened the code block in which the window begins; empty outside of one."""

    def moved(
        self, text: str, *, most: int = WINDOW_CHARS, keep: int = PREVIEW_CHARS
    ) -> TextWindow:
        """Return the window for ``text``, which begins at ``start``; ``self`` if the text fits."""
        if len(text) <= most:
            return self
        cut = _boundary(text, len(text) - keep)
        return TextWindow(self.start + cut, open_fence(text[:cut], self.fence))

    def markdown(self, text: str) -> str:
        """Return the Markdown to show for ``text``, which begins at ``start``.

        A code block that is open at the start is opened again, and "…" stands for what is before
        the window.
        """
        opened = f"{self.fence}\n" if self.fence else ""
        return f"…\n\n{opened}{text}" if self.start else f"{opened}{text}"


def _boundary(text: str, wanted: int) -> int:
    """Return the position to cut near ``wanted``: after a paragraph, else a line, else a word."""
    for mark, reach in (("\n\n", PREVIEW_CHARS), ("\n", PREVIEW_CHARS), (" ", 200)):
        found = text.rfind(mark, max(0, wanted - reach), wanted)
        if found >= 0:
            return found + len(mark)
    return wanted


def open_fence(text: str, fence: str = "") -> str:
    """Return the opening line of the code block that is open at the end of ``text``, or "".

    ``fence`` is the opening line of the block that is open at its beginning.
    """
    for line in text.split("\n"):
        match = _FENCE.match(line)
        if match is None:
            continue
        if not fence:
            if "`" not in match[2] or match[1][0] == "~":
                fence = line.strip()
            continue
        opened = _FENCE.match(fence)
        assert opened is not None, "a fence is kept as the line that opened it"
        closes = match[1][0] == opened[1][0] and len(match[1]) >= len(opened[1])
        if closes and not match[2].strip():
            fence = ""
    return fence


def complete_length(text: str, fence: str = "") -> int:
    """Length of ``text`` up to the end of its last complete paragraph or code block."""
    complete, at, lines = 0, 0, text.split("\n")
    for line in lines[:-1]:  # the last line may still grow
        at += len(line) + 1
        was = fence
        fence = open_fence(line, fence)
        if not fence and (was or not line.strip()):
            complete = at
    return complete
