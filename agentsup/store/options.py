"""The limits of the store, and its statistics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Limits of the store. The defaults are measured for one daemon on a small machine."""

    batch_max: int = 128
    """Most functions in one commit."""
    batch_hold_ms: int = 20
    """A batch takes no further function after this time; the rest goes into the next one."""
    gather_ms: int = 1
    """The longest wait of a batch for callers that wrote a moment ago; 0 never waits."""
    gather_from: int = 5
    """The fewest concurrent callers for which a wait pays; PostgreSQL's ``commit_siblings`` is 5
    too."""
    slow_ms: int = 50
    """A function that holds its connection longer is logged by name."""
    write_queue_max: int = 10_000
    """Most functions queued for the writer; urgent and ordinary ones are counted separately."""
    read_queue_max: int = 2_000
    """Most reads running or waiting."""
    readers: int = 2
    """Reading connections of the runner that ``open`` creates by default."""
    busy_timeout_ms: int = 5_000
    """Milliseconds to wait for a lock of another program."""
    reserve_bytes: int = 16 * 1024 * 1024
    """Disk space reserved for closing writes; 0 switches the reserve off."""
    check_at_once_bytes: int = 64 * 1024 * 1024
    """The size up to which a file that was not cleanly closed is checked before use. A larger file
    is checked beside the first work: the check reads all of it, about 500 MB a second."""


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
