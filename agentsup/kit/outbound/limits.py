"""How much of an answer is taken. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["AnswerLimits", "LimitExceeded", "Meter", "exceeded"]

KIB: Final = 1024
MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class AnswerLimits:
    """Bounds of one answer, as decoded. None stands for no bound of that kind.

    ``connect_s`` is the way to a connection, ``headers_s`` the time from the request to the end of
    the headers, ``idle_s`` the longest silence, ``total_s`` the time to the end of the answer.
    ``values`` are the commas and opening brackets in a JSON answer or in one event of a stream.
    """

    body_bytes: int = 4 * MIB
    stream_bytes: int | None = 64 * MIB
    """Of a stream of events, all together."""
    event_bytes: int = 4 * MIB
    pieces: int = 500_000
    """Pieces in which an answer comes."""
    events_a_second: int | None = None
    """A stream with more is read more slowly."""
    requests_a_second: int | None = None
    """A client that asks more often waits: a server may end each answer at once and have itself
    asked again."""
    values: int | None = 100_000
    header_bytes: int = 64 * KIB
    redirects: int = 3
    connect_s: float = 20.0
    headers_s: float = 60.0
    idle_s: float | None = 60.0
    total_s: float | None = 300.0


class LimitExceeded(Exception):
    """An answer is over a limit; ``limit`` names it. The rest of the answer is not read."""

    def __init__(self, limit: str, told: str) -> None:
        """``told`` is what people read."""
        super().__init__(told)
        self.limit = limit
        self.told = told


def exceeded(error: BaseException | None) -> LimitExceeded | None:
    """The limit that was exceeded, wherever ``error`` carries it: itself, as cause or context."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        if isinstance(one, LimitExceeded):
            return one
        seen.add(id(one))
        waiting += [one.__context__, one.__cause__]
        if isinstance(one, BaseExceptionGroup):
            waiting += one.exceptions
    return None


class Meter:
    """Counts what comes of one answer."""

    def __init__(self, limits: AnswerLimits, *, is_stream: bool = False) -> None:
        self._limits = limits
        self._most = limits.stream_bytes if is_stream else limits.body_bytes
        self._bytes = 0
        self._pieces = 0

    def add(self, size: int) -> None:
        """Count one piece of ``size`` bytes. Raises ``LimitExceeded``."""
        self._bytes += size
        self._pieces += 1
        if self._most is not None and self._bytes > self._most:
            raise LimitExceeded("bytes", f"the answer is over the limit of {_size(self._most)}")
        if self._pieces > self._limits.pieces:
            raise LimitExceeded(
                "pieces", f"the answer comes in over {self._limits.pieces} pieces, the limit"
            )


def _size(count: int) -> str:
    return f"{count // MIB} MiB" if count % MIB == 0 else f"{count} bytes"
