"""Figures about the store, for health, metrics and `/status`. Every container is bounded."""

from collections import Counter, deque
from dataclasses import dataclass, field

__all__ = ["SlowFunction", "StoreStats"]

_RECENT = 512
_SLOW_KEPT = 50


@dataclass(frozen=True, slots=True)
class SlowFunction:
    """A function that held a connection too long."""

    name: str
    elapsed_ms: float
    at: int


@dataclass(slots=True)
class StoreStats:
    """Counts since the store was opened; written by the loop's thread only."""

    commits: int = 0
    """Batches committed."""
    functions: int = 0
    """Functions whose change was committed."""
    rolled_back: int = 0
    """Functions that raised and were rolled back alone."""
    failed_commits: int = 0
    """Batches of which nothing stands."""
    reads: int = 0
    refused: int = 0
    """Calls refused because a queue was full."""
    callback_errors: int = 0
    slow_functions: int = 0
    last_commit_monotonic: float | None = None
    """Loop time of the last commit in seconds; what "the store wrote lately" is judged by."""
    last_failure: str = ""
    """The sentence of the last store-wide failure; empty again after the next commit."""
    is_disk_low: bool = False
    """The disk reserve is used up or could not be taken: only closing writes are accepted."""
    batch_sizes: Counter[int] = field(default_factory=Counter)
    """Batches by size, rounded up to a power of two."""
    recent_commit_ms: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    slow: deque[SlowFunction] = field(default_factory=lambda: deque(maxlen=_SLOW_KEPT))

    def committed(self, size: int, commit_ms: float, at_monotonic: float) -> None:
        """Count one committed batch of `size` functions."""
        self.commits += 1
        self.last_commit_monotonic = at_monotonic
        self.last_failure = ""
        self.batch_sizes[1 << max(0, size - 1).bit_length()] += 1
        self.recent_commit_ms.append(commit_ms)

    def commit_quantile_ms(self, fraction: float) -> float | None:
        """The `fraction` quantile (0..1) over the last few hundred commits, None before any."""
        if not self.recent_commit_ms:
            return None
        ordered = sorted(self.recent_commit_ms)
        return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))]
