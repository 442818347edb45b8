"""Cuts an answer at the client's ``stop`` texts and its ``max_tokens``. Pure.

The agent is asked without these limits. Only the text for the client is cut; the session and the
row of the message have the whole answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

BYTES_PER_TOKEN: Final = 4
"""The usual estimate; each engine counts tokens in its own way."""


@dataclass(frozen=True, slots=True)
class OutputLimits:
    """The client's limits for an answer. ``max_tokens`` None: no limit."""

    stop: tuple[str, ...] = ()
    max_tokens: int | None = None


class OutputLimiter:
    """Passes a text on piece by piece, up to its limits."""

    def __init__(self, bounds: OutputLimits) -> None:
        self._stop = bounds.stop
        self._room = None if bounds.max_tokens is None else bounds.max_tokens * BYTES_PER_TOKEN
        self._pending = ""
        self._is_over = False
        self.finish_reason: Literal["stop", "length"] = "stop"

    def more(self, text: str) -> str:
        """Add ``text``; return what can be passed on now. A possible beginning of a stop text is
        held back."""
        if self._is_over:
            return ""
        self._pending += text
        # The stop text that is complete first ends the text, as in a model's own output.
        found = sorted(
            (at + len(one), at) for one in self._stop if (at := self._pending.find(one)) >= 0
        )
        end = found[0][1] if found else len(self._pending) - self._begun()
        ready, self._pending = self._pending[:end], self._pending[end:]
        ready = self._within(ready)
        self._is_over = self._is_over or bool(found)
        return ready

    def rest(self) -> str:
        """The text that was not given out yet; call it once the text has ended."""
        return "" if self._is_over else self._within(self._pending)

    def _begun(self) -> int:
        """Number of last characters that may be the beginning of a stop text."""
        longest = max((len(one) for one in self._stop), default=1) - 1
        for count in range(min(longest, len(self._pending)), 0, -1):
            if any(one.startswith(self._pending[-count:]) for one in self._stop):
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


def shaped(text: str, bounds: OutputLimits) -> tuple[str, Literal["stop", "length"]]:
    """A whole text, cut at ``bounds``, and the reason why it ends there."""
    shaper = OutputLimiter(bounds)
    got = shaper.more(text) + shaper.rest()
    return got, shaper.finish_reason
