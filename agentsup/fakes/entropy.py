"""Randomness that can be repeated, for tests and simulation."""

from __future__ import annotations

import base64
import random

from agentsup.kit.clock import Clock
from agentsup.kit.entropy import SortableIds

_TOKEN_BYTES = 32


class SeededEntropy:
    """The same values for the same seed and clock."""

    def __init__(self, clock: Clock, seed: int) -> None:
        """Derive everything from ``seed``."""
        self._random = random.Random(seed)  # reproducible on purpose, never a secret
        self._ids = SortableIds(clock, self._random.getrandbits)

    def new_id(self, prefix: str) -> str:
        """A new sortable id, repeatable by seed."""
        return self._ids.issue(prefix)

    def token(self) -> str:
        """A string shaped like a secret, repeatable by seed."""
        raw = self._random.randbytes(_TOKEN_BYTES)
        return base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")

    def uniform(self, low: float, high: float) -> float:
        """A number in [low, high], repeatable by seed."""
        return self._random.uniform(low, high)
