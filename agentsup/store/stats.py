"""Statistics of the store, for health, metrics and ``/status``. Every container is bounded."""

from __future__ import annotations

from dataclasses import dataclass


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
    """Batches of which nothing was stored."""
    reads: int = 0
    refused: int = 0
    """Calls refused because a queue was full."""
    slow_functions: int = 0
    is_disk_low: bool = False
    """The disk reserve is used up or could not be made: only closing writes are accepted."""
