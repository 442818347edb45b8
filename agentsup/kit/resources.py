"""Resources of this process: limits, and for each thread priority, processors and scheduling.

Another program of the same user can change them (``kit.seccomp`` prevents that for fenced
programs). Here everything is restored that needs no privilege: soft limits up to the hard ones,
processors, the disk priority.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

_LIMITS: Final = {
    name.removeprefix("RLIMIT_").lower(): getattr(resource, name)
    for name in sorted(dir(resource))
    if name.startswith("RLIMIT_") and name != "RLIMIT_OFILE"  # another name of NOFILE
}
_LIMIT: Final = "limit "
_IO_CALLS: Final = {"x86_64": (251, 252), "aarch64": (30, 31)}
"""Numbers of ioprio_set and ioprio_get, for which there are no functions."""
_IO_OF_PROCESS: Final = 1
_IO_CLASS_BITS: Final = 13
_IO_BEST_EFFORT: Final = 2
_IO_USUAL_LEVEL: Final = 4


class Share(NamedTuple):
    """Scheduling of one thread. ``io``: class and level of disk priority, in the kernel's single
    number."""

    nice: int
    cpus: frozenset[int]
    policy: int
    real_time: int
    io: int


@dataclass(frozen=True, slots=True)
class Resources:
    """Soft and hard limits by name (-1: none), and the scheduling of the main thread; None if the
    system can't tell."""

    limits: Mapping[str, tuple[int, int]]
    share: Share | None


@dataclass(frozen=True, slots=True)
class Change:
    """A resource that is lower than it was."""

    name: str
    was: str
    now: str
    is_restored: bool

    @property
    def is_limit(self) -> bool:
        """Whether it is a limit, and not a share of the processor or the disk."""
        return self.name.startswith(_LIMIT)

    def __str__(self) -> str:
        return f"{self.name} {self.was}, then {self.now}"


def granted() -> Resources:
    """The present resources."""
    limits = {name: resource.getrlimit(number) for name, number in _LIMITS.items()}
    return Resources(limits, _share(os.getpid()) if sys.platform == "linux" else None)


def restore(start: Resources) -> list[Change]:
    """Find what is lower than at the ``start``, and restore what can be restored. Blocks for less
    than a millisecond."""
    return [*_restored_limits(start.limits), *_restored_shares(start.share)]


def _restored_limits(start: Mapping[str, tuple[int, int]]) -> Iterator[Change]:
    for name, was in start.items():
        number = _LIMITS[name]
        now = resource.getrlimit(number)
        if not _is_lower(now, was):
            continue
        for wanted in (was, (_lesser(was[0], now[1]), now[1])):  # the hard one needs rights
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(number, wanted)
                break
        is_restored = not _is_lower(resource.getrlimit(number), was)
        yield Change(f"{_LIMIT}{name}", _shown(was), _shown(now), is_restored)


def _is_lower(now: tuple[int, int], was: tuple[int, int]) -> bool:
    return any(_lesser(new, old) != old for new, old in zip(now, was, strict=True))


def _lesser(one: int, other: int) -> int:
    return min((one, other), key=lambda each: float("inf") if each == -1 else each)


def _shown(limits: tuple[int, int]) -> str:
    return "/".join("unlimited" if each == -1 else str(each) for each in limits)


class _Attribute(NamedTuple):
    """One attribute of a thread's scheduling: whether it is worse than it was, how it is restored,
    and how it is shown."""

    name: str
    is_less: Callable[[Share, Share], bool]
    give: Callable[[int, Share], object]
    show: Callable[[Share], str]


def _io_rank(share: Share) -> tuple[int, int]:
    """A rank of disk priority; greater is worse. No class means the usual one."""
    kind, level = share.io >> _IO_CLASS_BITS, share.io & 0b111
    return (kind, level) if kind else (_IO_BEST_EFFORT, _IO_USUAL_LEVEL)


_CPUS: Final = "processors"
_ATTRIBUTES: Final = (
    _Attribute(
        "nice",
        lambda now, was: now.nice > was.nice,
        lambda thread, was: os.setpriority(os.PRIO_PROCESS, thread, was.nice),
        lambda share: str(share.nice),
    ),
    _Attribute(
        "scheduling policy",
        lambda now, was: (now.policy, now.real_time) != (was.policy, was.real_time),
        lambda thread, was: os.sched_setscheduler(
            thread, was.policy, os.sched_param(was.real_time)
        ),
        lambda share: str(share.policy),
    ),
    _Attribute(
        _CPUS,
        lambda now, was: not now.cpus >= was.cpus,
        lambda thread, was: os.sched_setaffinity(thread, was.cpus),
        lambda share: ",".join(map(str, sorted(share.cpus))),
    ),
    _Attribute(
        "priority for the disk",
        lambda now, was: _io_rank(now) > _io_rank(was),
        lambda thread, was: _io_call(0, thread, was.io),
        lambda share: "class {} level {}".format(*_io_rank(share)),
    ),
)


def _restored_shares(was: Share | None) -> Iterator[Change]:
    """Restore all threads; the same change of several threads is reported once."""
    if was is None:
        return
    found: dict[Change, None] = {}
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(ProcessLookupError):  # the thread has ended
            found.update(dict.fromkeys(_restored_share(int(task.name), was)))
    yield from found


def _restored_share(thread: int, was: Share) -> Iterator[Change]:
    for attribute in _ATTRIBUTES:
        now = _share(thread)
        if not attribute.is_less(now, was):
            continue
        with contextlib.suppress(OSError):
            attribute.give(thread, was)
        is_restored = not attribute.is_less(_share(thread), was)
        if attribute.name == _CPUS and not is_restored:
            continue  # removed by the machine or its administrator: no program of this user can
        yield Change(attribute.name, attribute.show(was), attribute.show(now), is_restored)


def _share(thread: int) -> Share:
    return Share(
        os.getpriority(os.PRIO_PROCESS, thread),
        frozenset(os.sched_getaffinity(thread)),
        os.sched_getscheduler(thread),
        os.sched_getparam(thread).sched_priority,
        _io_call(1, thread),
    )


def _io_call(which: int, thread: int, *more: int) -> int:
    numbers = _IO_CALLS.get(os.uname().machine)
    if numbers is None:
        return 0
    found = int(_libc().syscall(numbers[which], _IO_OF_PROCESS, thread, *more))
    if found < 0:
        raise OSError(ctypes.get_errno(), "the priority for the disk")
    return found


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
