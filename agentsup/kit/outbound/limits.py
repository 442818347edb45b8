"""The limits of an answer. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * 1024
ENCODING: Final = "identity"
"""The requested encoding. Compression saves little here, and costs time to unpack."""


@dataclass(frozen=True, slots=True)
class AnswerLimits:
    """Limits of one answer. None means no limit of that kind.

    ``connect_s`` is the time to a connection, ``headers_s`` the time from the request to the end of
    the headers (of httpx alone), ``idle_s`` the longest silence, ``total_s`` the time to the end of
    the answer. ``values`` are the commas and opening brackets in a JSON answer that is read whole.
    """

    body_bytes: int = 4 * MIB
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


def check_size(size: int, limits: AnswerLimits) -> None:
    """Raise ``LimitExceeded`` if an answer of ``size`` bytes is too large."""
    most = limits.body_bytes
    if size > most:
        text = f"{most // MIB} MiB" if most % MIB == 0 else f"{most} bytes"
        raise LimitExceeded("bytes", f"the answer is over the limit of {text}")
