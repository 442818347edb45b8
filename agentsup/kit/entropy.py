"""The one door to chance: ids, secrets and jitter.

Ids are `prefix_` + 10 characters of time + 16 characters of randomness in lower-case Crockford
base32, so text order is creation order, also within one millisecond and when the wall clock
steps back. A secret is never derived from an id.
"""

import base64
import random
import secrets
import threading
from collections.abc import Callable
from typing import Protocol

from agentsup.kit.clock import Clock

__all__ = ["Entropy", "SeededEntropy", "SystemEntropy", "new_token"]

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
    """Where ids and random decisions come from."""

    def new_id(self, prefix: str) -> str:
        """A fresh sortable id such as `msg_01jd…`; later ids of one source sort after earlier."""
        ...

    def token(self) -> str:
        """A url-safe secret of 256 bits."""
        ...

    def uniform(self, low: float, high: float) -> float:
        """A number in [low, high], for jitter."""
        ...


def _base32(value: int, length: int) -> str:
    """`value` as `length` (even) Crockford characters, most significant first."""
    pairs = []
    for _ in range(length // 2):
        pairs.append(_PAIRS[value & 1023])
        value >>= 10
    pairs.reverse()
    return "".join(pairs)


class _SortableIds:
    """Issues ids in strictly rising order; shared by threads, hence the lock."""

    def __init__(self, clock: Clock, random_bits: Callable[[int], int]) -> None:
        self._clock = clock
        self._random_bits = random_bits
        self._lock = threading.Lock()
        self._last_ms = -1
        self._last_random = 0
        # All but the last characters of the last id: within a millisecond they hardly ever change.
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
    """Random bits for ids, fetched many at a time: each fetch hands the interpreter to whichever
    thread waits for it. Tokens are never taken from a stock. Its user keeps threads apart."""

    def __init__(self) -> None:
        self._stock = b""
        self._used = 0

    def bits(self, count: int) -> int:
        """``count`` bits as a number."""
        size = -(-count // 8)
        if self._used + size > len(self._stock):
            self._stock, self._used = secrets.token_bytes(_STOCK_BYTES), 0
        taken = self._stock[self._used : self._used + size]
        self._used += size
        return int.from_bytes(taken, "big") >> (8 * size - count)


def new_token() -> str:
    """A url-safe secret of 256 bits, where no `Entropy` is at hand and nothing is to be repeated."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


class SystemEntropy:
    """Randomness of the operating system."""

    def __init__(self, clock: Clock) -> None:
        """Take the time part of ids from `clock`."""
        self._ids = _SortableIds(clock, _Stock().bits)
        self._random = random.SystemRandom()

    def new_id(self, prefix: str) -> str:
        """A fresh sortable id."""
        return self._ids.issue(prefix)

    def token(self) -> str:
        """A url-safe secret of 256 bits."""
        return new_token()

    def uniform(self, low: float, high: float) -> float:
        """A number in [low, high]."""
        return self._random.uniform(low, high)


class SeededEntropy:
    """The same values for the same seed and clock; for tests and simulation only."""

    def __init__(self, clock: Clock, seed: int) -> None:
        """Derive everything from `seed`."""
        self._random = random.Random(seed)  # reproducible on purpose, never a secret
        self._ids = _SortableIds(clock, self._random.getrandbits)

    def new_id(self, prefix: str) -> str:
        """A fresh sortable id, repeatable by seed."""
        return self._ids.issue(prefix)

    def token(self) -> str:
        """A string shaped like a secret, repeatable by seed."""
        raw = self._random.randbytes(_TOKEN_BYTES)
        return base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")

    def uniform(self, low: float, high: float) -> float:
        """A number in [low, high], repeatable by seed."""
        return self._random.uniform(low, high)
