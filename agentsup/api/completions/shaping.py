"""Where an answer ends early because its reader wants it so: `stop` and `max_tokens`. Pure.

An agent is asked no differently; its reader gets the answer up to there, and the whole stays in its
session and its row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

BYTES_PER_TOKEN: Final = 4
"""Engines count tokens of their own; this is the usual measure."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far a reader wants to read. `max_tokens` None: to the end."""

    stop: tuple[str, ...] = ()
    max_tokens: int | None = None


class Shaper:
    """Passes a text on piece by piece, up to its bounds."""

    def __init__(self, bounds: Bounds) -> None:
        self._stop = bounds.stop
        self._room = None if bounds.max_tokens is None else bounds.max_tokens * BYTES_PER_TOKEN
        self._held = ""
        self._is_over = False
        self.finish_reason: Literal["stop", "length"] = "stop"

    def more(self, text: str) -> str:
        """What of the text so far can be passed on now; what may begin a stop is held back."""
        if self._is_over:
            return ""
        self._held += text
        found = [at for at in (self._held.find(one) for one in self._stop) if at >= 0]
        end = min(found) if found else len(self._held) - self._begun()
        ready, self._held = self._held[:end], self._held[end:]
        ready = self._within(ready)
        self._is_over = self._is_over or bool(found)
        return ready

    def rest(self) -> str:
        """The text has ended: what was held back."""
        return "" if self._is_over else self._within(self._held)

    def _begun(self) -> int:
        """How many of the last characters may be the beginning of a stop."""
        longest = max((len(one) for one in self._stop), default=1) - 1
        for count in range(min(longest, len(self._held)), 0, -1):
            if any(one.startswith(self._held[-count:]) for one in self._stop):
                return count
        return 0

    def _within(self, text: str) -> str:
        if self._room is None:
            return text
        data = text.encode()
        if len(data) > self._room:
            self._is_over, self.finish_reason = True, "length"
            data = data[: self._room]
        self._room -= len(data)
        return data.decode(errors="ignore")


def shaped(text: str, bounds: Bounds) -> tuple[str, Literal["stop", "length"]]:
    """What a reader with these bounds gets of a whole text, and why it ends there."""
    shaper = Shaper(bounds)
    got = shaper.more(text) + shaper.rest()
    return got, shaper.finish_reason
