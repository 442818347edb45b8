"""The only module for randomness: ids, secrets and jitter.

Ids are ``prefix_`` + 10 characters of time + 16 characters of randomness in lower-case Crockford
base32, so text order is creation order, even within one millisecond and when the wall clock steps
back. A secret is never derived from an id.
"""

from __future__ import annotations

import base64
import random
import secrets
import threading
from collections.abc import Callable
from typing import Protocol

from agentsup.kit.clock import Clock

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = tuple(high + low for high in _ALPHABET for low in _ALPHABET)
_TIME_CHARS = 10
_RANDOM_CHARS = 16
_RANDOM_BITS = 5 * _RANDOM_CHARS
# New ids start in the lower half, so that counting upwards within a millisecond cannot overflow.
_START_BITS = _RANDOM_BITS - 1
_LOW_CHARS = 4
_LOW_BITS = 5 * _LOW_CHARS
_TOKEN_BYTES = 32
_STOCK_BYTES = 512


class Entropy(Protocol):
    """The source of ids and random decisions."""

    def new_id(self, prefix: str) -> str:
        """A new sortable id such as ``msg_01jd…``; later ids of one source sort after earlier."""

    def token(self) -> str:
        """A URL-safe secret of 256 bits."""

    def uniform(self, low: float, high: float) -> float:
        """A number in [low, high], for jitter."""


def _base32(value: int, length: int) -> str:
    """``value`` as ``length`` (even) Crockford characters, most significant first."""
    pairs = []
    for _ in range(length // 2):
        pairs.append(_PAIRS[value & 1023])
        value >>= 10
    pairs.reverse()
    return "".join(pairs)


class SortableIds:
    """Issues ids in strictly rising order. Threads share it, so it has a lock."""

    def __init__(self, clock: Clock, random_bits: Callable[[int], int]) -> None:
        self._clock = clock
        self._random_bits = random_bits
        self._lock = threading.Lock()
        self._last_ms = -1
        self._last_random = 0
        # All but the last characters of the last id: within a millisecond they rarely change.
        self._head = ""
        self._head_random = -1

    def issue(self, prefix: str) -> str:
        with self._lock:
            now_ms = self._clock.now_ms()
            is_later = now_ms > self._last_ms
            if is_later:
                self._last_ms = now_ms
                self._last_random = self._random_bits(_START_BITS)
            else:
                self._last_random += 1 + self._random_bits(16)
            high, low = divmod(self._last_random, 1 << _LOW_BITS)
            if high != self._head_random or is_later:
                time = _base32(self._last_ms, _TIME_CHARS)
                self._head = time + _base32(high, _RANDOM_CHARS - _LOW_CHARS)
                self._head_random = high
            return f"{prefix}_{self._head}{_PAIRS[low >> 10]}{_PAIRS[low & 1023]}"


class _Stock:
    """Random bytes, read in larger blocks, since each read lets another waiting thread run.

    It has no lock of its own; its caller must hold one.
    """

    def __init__(self) -> None:
        self._stock = b""
        self._used = 0

    def bits(self, count: int) -> int:
        """The next ``count`` bits as a number."""
        size = -(-count // 8)
        if self._used + size > len(self._stock):
            self._stock, self._used = secrets.token_bytes(_STOCK_BYTES), 0
        taken = self._stock[self._used : self._used + size]
        self._used += size
        return int.from_bytes(taken, "big") >> (8 * size - count)


def new_token() -> str:
    """A URL-safe secret of 256 bits, for code without an ``Entropy``; never repeatable."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


class SystemEntropy:
    """Randomness of the operating system."""

    def __init__(self, clock: Clock) -> None:
        """Take the time part of ids from ``clock``."""
        self._ids = SortableIds(clock, _Stock().bits)
        self._secrets, self._lock = _Stock(), threading.Lock()
        self._random = random.SystemRandom()

    def new_id(self, prefix: str) -> str:
        """A new sortable id."""
        return self._ids.issue(prefix)

    def token(self) -> str:
        """A URL-safe secret of 256 bits."""
        with self._lock:
            bits = self._secrets.bits(8 * _TOKEN_BYTES)
        raw = base64.urlsafe_b64encode(bits.to_bytes(_TOKEN_BYTES, "big"))
        return raw.rstrip(b"=").decode()

    def uniform(self, low: float, high: float) -> float:
        """A number in [low, high]."""
        return self._random.uniform(low, high)
