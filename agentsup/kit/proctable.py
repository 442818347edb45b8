"""Reading the kernel's table of processes (Linux `/proc`).

Everything is a snapshot: a process may be gone, or a zombie, a moment later. Start times (in
clock ticks since boot) tell a process from another one that got its number later. On systems
without `/proc` every question is answered with "nothing known".
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = [
    "ProcessRow",
    "adopted_pids",
    "child_pids",
    "descendants",
    "environ_value",
    "is_being_executed",
    "members",
    "private_bytes",
    "read_row",
    "table",
]

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """One line of the process table."""

    pid: int
    state: str
    """The kernel's letter: R, S, D, T, Z (dead, not yet collected), X."""
    parent: int
    pgid: int
    session: int
    started_ticks: int

    @property
    def is_alive(self) -> bool:
        """Whether it can still run; a zombie cannot."""
        return self.state not in "ZX"


def _read(path: str) -> bytes:
    """A whole kernel file; pathlib would cost more than the reading."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(descriptor, 65536):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)


def read_row(pid: int) -> ProcessRow | None:
    """The process `pid`, or None if there is none."""
    try:
        raw = _read(f"/proc/{pid}/stat")
    except OSError:
        return None
    # The name in parentheses may itself hold spaces and parentheses: split after the last one.
    fields = raw[raw.rindex(b")") + 2 :].split()
    return ProcessRow(
        pid=pid,
        state=fields[0].decode("ascii"),
        parent=int(fields[1]),
        pgid=int(fields[2]),
        session=int(fields[3]),
        started_ticks=int(fields[19]),
    )


def table() -> list[ProcessRow]:
    """Every process of the machine; costs about 15 µs for each."""
    try:
        pids = [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdecimal()]
    except OSError:
        return []
    return [row for row in map(read_row, pids) if row is not None]


def members(pgid: int) -> list[int]:
    """The live processes of the group or session `pgid`, zombies left out."""
    return [row.pid for row in table() if row.is_alive and pgid in {row.pgid, row.session}]


def private_bytes(pid: int) -> int:
    """Resident memory of `pid` that belongs to no file; 0 if it is gone."""
    try:
        fields = _read(f"/proc/{pid}/statm").split()
    except OSError:
        return 0
    return (int(fields[1]) - int(fields[2])) * _PAGE_BYTES if len(fields) > 2 else 0


def child_pids(pid: int) -> list[int]:
    """The direct children of `pid`, from the kernel's own list where it keeps one."""
    found: list[int] = []
    try:
        threads = [entry.name for entry in os.scandir(f"/proc/{pid}/task")]
    except OSError:
        return found
    for thread in threads:
        try:
            text = _read(f"/proc/{pid}/task/{thread}/children")
        except OSError:
            continue
        found.extend(map(int, text.split()))
    return found


def adopted_pids(pid: int) -> list[int]:
    """The direct children of the main thread of `pid`, to which the kernel gives orphans."""
    try:
        return [int(word) for word in _read(f"/proc/{pid}/task/{pid}/children").split()]
    except OSError:  # a kernel without that list
        return [row.pid for row in table() if row.parent == pid]


def descendants(roots: Iterable[int]) -> list[ProcessRow]:
    """The children of `roots`, their children and so on, zombies included, roots left out."""
    rows: dict[int, ProcessRow] = {}
    waiting = list(roots)
    seen = set(waiting)
    while waiting:
        for child in child_pids(waiting.pop()):
            if child in seen:
                continue
            seen.add(child)
            row = read_row(child)
            if row is not None:
                rows[child] = row
                waiting.append(child)
    return list(rows.values())


def is_being_executed(pid: int) -> bool:
    """Whether `pid` is just exchanging its program, and its environment can't be read yet."""
    try:
        fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        return fields[0] not in b"ZX" and int(fields[48]) == 0 and _can_open(f"/proc/{pid}/environ")
    except (OSError, IndexError):
        return False


def _can_open(path: str) -> bool:
    os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    return True


def environ_value(pid: int, name: str) -> str | None:
    """The variable `name` in the environment `pid` was started with; None if unreadable."""
    try:
        raw = _read(f"/proc/{pid}/environ")
    except OSError:
        return None
    prefix = name.encode() + b"="
    for entry in raw.split(b"\0"):
        if entry.startswith(prefix):
            return entry[len(prefix) :].decode("utf-8", "replace")
    return None
