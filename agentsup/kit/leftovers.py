"""What an earlier run of the daemon left running, found again by what was stored about it."""

import contextlib
import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass

from agentsup.kit import proctable

__all__ = ["LEADER", "MARK", "GroupRecord", "sweep"]

MARK = "AGENTSUP_GROUP"
"""The environment variable that marks every process started by a daemon, and its descendants."""
LEADER = "AGENTSUP_LEADER"
"""The environment variable by which a program and its descendants name the leader of its group,
where whoever starts it sees to that; so those that left the group are found again."""


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """What must be stored to find this very group again after a restart of the daemon."""

    pgid: int
    started_ticks: int
    """Kernel start time of the leader in clock ticks since boot; tells a reused number."""
    argv0: str


def sweep(records: Iterable[GroupRecord], strays: Iterable[GroupRecord] = ()) -> list[GroupRecord]:
    """SIGKILL what an earlier run of the daemon left behind; returns those that were alive.

    `records` are groups; `strays` single processes that had left theirs, ended with what descends
    from them and what is still in their sessions.

    A number that now belongs to someone else is recognised by its start time and left alone. If
    the leader is gone, only members that carry our mark are killed. Descendants that left the group
    are found by the leader that their environment names. Blocks for some milliseconds.
    """
    records, strays = list(records), list(strays)
    if not records and not strays:
        return []
    rows = [row for row in proctable.table() if row.pid != os.getpid()]
    living = {(row.pid, row.started_ticks) for row in rows if row.is_alive}
    leaders = {row.pid: proctable.environ_value(row.pid, LEADER) for row in rows}
    swept = []
    for record in records:
        group = [row for row in rows if record.pgid in {row.pgid, row.session} and row.is_alive]
        leader = next((row for row in rows if row.pid == record.pgid), None)
        if leader is not None and leader.started_ticks != record.started_ticks:
            continue
        if leader is None or not leader.is_alive:
            group = [
                row
                for row in group
                if row.started_ticks >= record.started_ticks
                and proctable.environ_value(row.pid, MARK) is not None
            ]
        group += [
            row
            for row in rows
            if leaders[row.pid] == str(record.pgid)
            and row.is_alive
            and row.started_ticks >= record.started_ticks
            and row not in group
        ]
        if group:
            swept.append(record)
        _kill(row.pid for row in group)
    for record in strays:
        if (record.pgid, record.started_ticks) in living:
            swept.append(record)
            sessions = [row.pid for row in rows if row.session == record.pgid and row.is_alive]
            below = [row.pid for row in proctable.descendants([record.pgid])]
            _kill({record.pgid, *sessions, *below})
    return swept


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
