"""The limits of an answer. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class AnswerLimits:
    """Limits of one unpacked answer. None means no limit of that kind.

    ``connect_s`` is the time to a connection, ``headers_s`` the time from the request to the end of
    the headers, ``idle_s`` the longest silence, ``total_s`` the time to the end of the answer.
    ``values`` are the commas and opening brackets in a JSON answer or in one event of a stream.
    """

    body_bytes: int = 4 * MIB
    stream_bytes: int | None = 64 * MIB
    """For all events of a stream together."""
    event_bytes: int = 4 * MIB
    pieces: int = 500_000
    """The most pieces in which an answer may come."""
    events_a_second: int | None = None
    """A stream with more events is read more slowly."""
    requests_a_second: int | None = None
    """A client that sends more requests waits: a server could end each answer at once to be asked
    again."""
    values: int | None = 100_000
    header_bytes: int = 64 * KIB
    redirects: int = 3
    connect_s: float = 20.0
    headers_s: float = 60.0
    idle_s: float | None = 60.0
    total_s: float | None = 300.0


class LimitExceeded(Exception):
    """An answer exceeds a limit; ``limit`` names it. The rest of the answer is not read."""

    def __init__(self, limit: str, text: str) -> None:
        """``text`` is for people."""
        super().__init__(text)
        self.limit = limit
        self.text = text


def exceeded(error: BaseException | None) -> LimitExceeded | None:
    """The ``LimitExceeded`` behind ``error``: itself, its cause or its context; None if there is
    none."""
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


class AnswerMeter:
    """Counts bytes and pieces of one answer."""

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
