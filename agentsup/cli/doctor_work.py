"""What the doctor reads from the store: loops, timeouts, leaks and questions that are stuck."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agentsup.kit.clock import SystemClock
from agentsup.observe.traces.findings import Finding, examine
from agentsup.store.glance import glance
from agentsup.store.transaction import Reader

SUBJECTS = ("loops", "timeouts", "leaks", "questions")


def look(state_db: Path, *, is_running: bool) -> Sequence[Finding]:
    """Everything that is found there, beside whoever writes it.

    Raises `StoreUnavailable` or `StoreCorrupt` where it can't be read.
    """

    def read(reader: Reader) -> list[Finding]:
        boot = "SELECT boot_id FROM boots ORDER BY started_at DESC LIMIT 1"
        boot_id = reader.scalar(boot) if is_running else None
        return examine(reader, SystemClock().now_ms(), boot_id)

    return glance(state_db, read)
