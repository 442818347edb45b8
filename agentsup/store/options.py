"""The limits of the store."""

from dataclasses import dataclass

__all__ = ["StoreOptions"]


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Limits of the store. The defaults are measured for one daemon on a small machine."""

    batch_max: int = 128
    """Most functions in one commit."""
    batch_hold_ms: int = 20
    """A batch takes no further function after this long; the rest goes into the next one."""
    gather_ms: int = 1
    """How long a batch waits at most for callers that were here a moment ago; 0 never waits."""
    gather_from: int = 5
    """Fewest callers at once for which waiting pays; PostgreSQL's `commit_siblings` is 5 too."""
    slow_ms: int = 50
    """A function that holds its connection longer is logged by name."""
    write_queue_max: int = 10_000
    """Most functions waiting to be written, counted for urgent and ordinary ones apart."""
    read_queue_max: int = 2_000
    """Most reads running or waiting."""
    readers: int = 2
    """Reading connections of the runner that `open` makes by itself."""
    busy_timeout_ms: int = 5_000
    """How long to wait for a lock of another program."""
    reserve_bytes: int = 16 * 1024 * 1024
    """Disk space held back for closing writes; 0 switches the reserve off."""
    backups_kept: int = 7
    check_at_once_bytes: int = 64 * 1024 * 1024
    """A file that was not closed in order is checked before it is used up to this size, and beside
    the first work above it: the check reads all of it, about 500 MB a second."""
