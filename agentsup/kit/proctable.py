"""Reading the kernel's table of processes (Linux ``/proc``), exit codes of our children, and the
boot of the machine.

Everything is a snapshot: a process may be gone, or a zombie, a moment later. Start times (in clock
ticks since boot) distinguish a process from a later one with the same number. On systems without
``/proc`` all results are empty.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_PF_EXITING = 0x4  # include/linux/sched.h
_LOST_EXIT_CODE = 255
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


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
    threads: int = 1
    flags: int = 0
    """The kernel's ``PF_`` flags of the first thread."""

    @property
    def is_alive(self) -> bool:
        """Whether it can still run; a zombie cannot, unless only its first thread has ended."""
        return self.state not in "ZX" or self.threads > 1


def _read(path: str, most: int | None = None) -> bytes:
    """A whole kernel file, or at least its first ``most`` bytes; pathlib would cost more than the
    reading."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts, size = [], 0
        while (most is None or size < most) and (part := os.read(descriptor, 65536)):
            parts.append(part)
            size += len(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)


def read_row(pid: int) -> ProcessRow | None:
    """The process ``pid``, or None if there is none."""
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
        threads=int(fields[17]),
        flags=int(fields[6]),
    )


def table() -> list[ProcessRow]:
    """Every process of the machine; costs about 15 µs for each."""
    try:
        pids = [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdecimal()]
    except OSError:
        return []
    return [row for row in map(read_row, pids) if row is not None]


def members(pgid: int) -> list[int]:
    """The live processes of the group or session ``pgid``, without zombies."""
    return [row.pid for row in table() if row.is_alive and pgid in {row.pgid, row.session}]


def programs_of(pgid: int) -> list[str]:
    """The names of the programs that run in the group or session ``pgid``. Blocks."""
    found = []
    for pid in members(pgid):
        with contextlib.suppress(OSError):  # else it has just ended
            found.append(_read(f"/proc/{pid}/comm").decode("utf-8", "replace").strip())
    return sorted(found)


def private_bytes(pid: int) -> int:
    """Resident memory of ``pid`` in bytes that belongs to no file; 0 if it is gone."""
    try:
        fields = _read(f"/proc/{pid}/statm").split()
    except OSError:
        return 0
    return (int(fields[1]) - int(fields[2])) * _PAGE_BYTES if len(fields) > 2 else 0


def child_pids(pid: int) -> list[int]:
    """The direct children of ``pid``, from the kernel's own list; empty without such a list."""
    found: list[int] = []
    for folder in _thread_folders(pid):
        try:
            text = _read(f"{folder}/children")
        except OSError:
            continue
        found.extend(map(int, text.split()))
    return found


@cache
def has_lists() -> bool:
    """Whether the kernel keeps a list of each thread's children."""
    return Path("/proc/thread-self/children").exists()


def adopted_pids(pid: int, most: int | None = None) -> list[int]:
    """The direct children of the main thread of ``pid``, to which the kernel gives orphans: all of
    them, the newest last, or the oldest ``most``. Reading a thousand takes about a millisecond."""
    try:
        # A number and its space have at most eight bytes; a number that is cut in two is left out.
        text = _read(f"/proc/{pid}/task/{pid}/children", None if most is None else 8 * most)
        return list(map(int, text[: text.rfind(b" ") + 1].split()[:most]))
    except OSError:  # a kernel without that list
        return [row.pid for row in table() if row.parent == pid]


def descendants(roots: Iterable[int]) -> list[ProcessRow]:
    """The children of ``roots``, their children and so on, with zombies, without the roots."""
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
    """Whether ``pid`` is in an ``exec``, during which its environment can't be read yet."""
    try:
        fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        return fields[0] not in b"ZX" and int(fields[48]) == 0 and _can_open(f"/proc/{pid}/environ")
    except (OSError, IndexError):
        return False


def _can_open(path: str) -> bool:
    os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    return True


def is_ending(row: ProcessRow) -> bool:
    """Whether the process is on its way out: none of its threads has memory any more, so that
    nothing of it runs and its environment is gone."""
    if not (row.is_alive and row.flags & _PF_EXITING):
        return False
    return row.threads <= 1 or not any(map(_has_memory, _thread_folders(row.pid)))


def _thread_folders(pid: int) -> list[str]:
    try:
        return [entry.path for entry in os.scandir(f"/proc/{pid}/task")]
    except OSError:
        return []


def _has_memory(folder: str) -> bool:
    try:
        return int(_read(f"{folder}/stat").rpartition(b")")[2].split()[20]) > 0
    except OSError:
        return False


def environ_value(pid: int, name: str) -> str | None:
    """The variable ``name`` in the environment with which ``pid`` was started; None if unreadable
    or not set. If the first thread has ended, another one shows it."""
    raw = _environ(f"/proc/{pid}")
    if not raw:
        raw = next(filter(None, map(_environ, _thread_folders(pid))), b"")
    prefix = name.encode() + b"="
    for entry in raw.split(b"\0"):
        if entry.startswith(prefix):
            return entry[len(prefix) :].decode("utf-8", "replace")
    return None


def _environ(folder: str) -> bytes:
    try:
        return _read(f"{folder}/environ")
    except OSError:
        return b""


# -- exit codes of our children ---------------------------------------------------------------------


def peek_exit(pid: int) -> int | None:
    """The exit code of a child that has ended; it stays a zombie if the system supports that."""
    if not hasattr(os, "waitid"):
        return collect(pid)
    try:
        found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return _LOST_EXIT_CODE
    if found is None:
        return None
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status


def collect(pid: int) -> int | None:
    """Collect one dead child (``-pgid``: of that group); its exit code, None if there is none."""
    try:
        found, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        # Not our child, or someone else collected it and its code is lost.
        return _LOST_EXIT_CODE if pid > 0 else None
    return os.waitstatus_to_exitcode(status) if found else None


def boot_id() -> str:
    """An id that differs with each boot of the machine; empty if the system has none."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
