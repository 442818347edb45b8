"""The limits of an answer, and how its JSON values are counted without building them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * 1024
ENCODING: Final = "identity"
"""The requested encoding. Compression saves little here, and costs time to unpack."""
_SIGNS: Final = (b",", b"[", b"{")
_STEP_BYTES: Final = 256 * 1024


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


def values_in(data: bytes, most: int) -> int:
    """The approximate number of values a parser would build; counting ends above ``most``.

    A parser holds the interpreter until it is done, in whatever thread it runs. Its time depends on
    the number of values far more than on the number of bytes, so the number is checked first.
    A comma inside a string counts only if all signs together are no more than ``most``. Data that
    is no JSON is counted too.
    """
    signs = sum(data.count(sign) for sign in _SIGNS)
    if signs <= most:
        return signs
    count, in_string = 0, False
    start = 0
    while start < len(data) and count <= most:
        piece = data[start : start + _STEP_BYTES]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2 and len(piece) > 1:
            piece = piece[:-1]  # an escape is handled as a whole, in the next step
        start += len(piece)
        parts = piece.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"".join(parts[1::2] if in_string else parts[::2])
        count += sum(outside.count(sign) for sign in _SIGNS)
        in_string ^= len(parts) % 2 == 0
    return count
