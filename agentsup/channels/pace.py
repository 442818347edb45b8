"""When a running answer is shown, and which part of it: decisions without effects.

A stream is a courtesy, the answer itself comes through the outbox. So it is slow where the platform
is strict, slower the longer it lasts, and silent when told to pause (P3).
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Self

__all__ = [
    "Heard",
    "Mode",
    "Pace",
    "Progress",
    "Way",
    "Window",
    "complete_length",
    "draft_id_of",
    "next_show_at",
    "open_fence",
]

WINDOW_CHARS: Final = 3_000
"""Most characters of the running text in one message: with its markup surely one piece."""
KEPT_CHARS: Final = 900
"""About how much of the text stays in view when the window moves."""
_SENDS_OF_A_PAUSE = 10
_DRAFT_ID_MASK = 0x7FFF_FFFF
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")


class Mode(StrEnum):
    """How much of an answer is shown while it is written."""

    OFF = "off"
    BUFFERED = "buffered"
    """Paragraphs, once they are complete."""
    LIVE = "live"
    """The text as it comes."""


class Way(StrEnum):
    """By what the text is shown."""

    DRAFT = "draft"
    """The platform's own preview, which goes away by itself."""
    EDIT = "edit"
    """A message that is edited, until the whole answer takes its place."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast. Times in seconds."""

    mode: Mode
    interval_s: float
    """Least time between two sends; it grows with their number."""
    min_chars: int
    idle_s: float
    refresh_s: float | None = None
    """Show the same text again after this time, for a preview that fades; None: never."""
    steady_sends: int = 10
    """So many sends go at the first interval."""
    growth: float = 1.1
    interval_cap_s: float = 20.0

    @classmethod
    def of(
        cls, mode: Mode, way: Way, *, interval_s: float, min_chars: int, idle_ms: int, group: bool
    ) -> Self:
        """The pace for a chat. Edits in a group share its 20 messages a minute with the answers."""
        least_s = 3.0 if group and way is Way.EDIT else 0.5
        interval_s = max(interval_s, least_s)
        return cls(
            mode,
            interval_s,
            min_chars,
            idle_ms / 1000,
            refresh_s=20.0 if way is Way.DRAFT else None,
            interval_cap_s=max(interval_s, 20.0 if way is Way.EDIT else 10.0),
        )

    def gap_s(self, sends: int) -> float:
        """Least time after the ``sends``-th send. Platforms punish who edits one message for long."""
        grown = self.growth ** min(200, max(0, sends - self.steady_sends))
        return min(max(self.interval_cap_s, self.interval_s), self.interval_s * grown)


@dataclass(frozen=True, slots=True)
class Heard:
    """The running text as the stream knows it. Lengths in characters, times on the loop's clock."""

    length: int = 0
    complete: int = 0
    """Of it, up to the end of the last complete paragraph."""
    first_at: float = 0.0
    last_at: float = 0.0

    def grown(self, length: int, complete: int, at: float) -> Heard:
        """The same after more text."""
        if length == self.length:
            return self
        return Heard(length, complete, self.first_at if self.length else at, at)


@dataclass(frozen=True, slots=True)
class Progress:
    """What was shown of it, and what the platform said to that."""

    length: int = 0
    at: float | None = None
    """When something was last sent."""
    sends: int = 0
    failures: int = 0
    not_before: float = 0.0

    def shown(self, length: int, at: float) -> Progress:
        """After a send that worked."""
        return Progress(length, at, self.sends + 1)

    def held(self, until: float) -> Progress:
        """After a send that gave way: nothing before ``until``."""
        return replace(self, not_before=max(self.not_before, until))

    def slowed(self, until: float) -> Progress:
        """After the platform asked for a pause: later, and less often from then on."""
        return replace(self.held(until), sends=self.sends + _SENDS_OF_A_PAUSE)

    def failed(self, until: float) -> Progress:
        """After a send that went wrong."""
        return replace(self.held(until), failures=self.failures + 1)

    def anew(self) -> Progress:
        """The text begins anew in the same place."""
        return replace(self, length=0)


def next_show_at(heard: Heard, progress: Progress, pace: Pace) -> float | None:
    """The moment at which to show the text if nothing more comes meanwhile; None: not at all."""
    if pace.mode is Mode.OFF:
        return None
    length = heard.length if pace.mode is Mode.LIVE else heard.complete
    if length > progress.length:
        ready_at = heard.last_at
        if progress.length == 0 and pace.mode is Mode.LIVE and length < pace.min_chars:
            # A short beginning is shown after a pause, and before anybody gets impatient.
            ready_at = min(heard.last_at + pace.idle_s, heard.first_at + pace.interval_s)
    elif pace.refresh_s is not None and progress.at is not None and progress.length:
        ready_at = progress.at + pace.refresh_s
    else:
        return None
    if progress.at is not None:
        ready_at = max(ready_at, progress.at + pace.gap_s(progress.sends))
    return max(ready_at, progress.not_before)


# -- which part ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Window:
    """The part of a running text that fits one message. Positions count from the text's beginning.

    It grows with the text; where it would become too long it moves on by whole paragraphs.
    """

    start: int = 0
    fence: str = ""
    """The line that opened the code block in which the window begins; empty outside of one."""

    def moved(self, text: str, *, most: int = WINDOW_CHARS, keep: int = KEPT_CHARS) -> Window:
        """The window for ``text``, which begins at ``start``; ``self`` while that fits."""
        if len(text) <= most:
            return self
        cut = _boundary(text, len(text) - keep)
        return Window(self.start + cut, open_fence(text[:cut], self.fence))

    def markdown(self, text: str) -> str:
        """What to show of ``text``, which begins at ``start``: with an open code block opened
        again, and with a sign where the beginning is out of view."""
        opened = f"{self.fence}\n" if self.fence else ""
        return f"…\n\n{opened}{text}" if self.start else f"{opened}{text}"


def _boundary(text: str, wanted: int) -> int:
    """A place to cut near ``wanted``: after a paragraph, else a line, else a word."""
    for mark, reach in (("\n\n", KEPT_CHARS), ("\n", KEPT_CHARS), (" ", 200)):
        found = text.rfind(mark, max(0, wanted - reach), wanted)
        if found >= 0:
            return found + len(mark)
    return wanted


def open_fence(text: str, fence: str = "") -> str:
    """The opening line of the code block that is open at the end of ``text``, or "".

    ``fence`` is the one open at its beginning.
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


def draft_id_of(message_id: str) -> int:
    """The platform's number for a preview; drafts with the same number replace each other."""
    return zlib.crc32(message_id.encode()) & _DRAFT_ID_MASK or 1
