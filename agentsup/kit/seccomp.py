"""What fenced programs can't change of other processes: a filter of system calls.

Linux lets a process change limits, priority, processors and scheduling of every process of the same
user. It asks for no right to trace it, so the fence (``kit.fence``) does not cover that, and the
owner can't undo what was lowered. The filter (seccomp, see ``seccomp(2)``) refuses these calls with
``EPERM`` where they name another process than the caller. A filter sees numbers alone: the caller's
own number, and those of its threads and children, are refused too; 0, the caller itself, passes.

The filter knows the system calls of x86-64 and of 64-bit ARM, each with its 32-bit form. Calls of
any other form (x32) are refused. On other machines there is no filter.
"""

import ctypes
import os
import struct
import sys
from collections.abc import Callable, Mapping
from errno import EFAULT, EPERM
from functools import cache
from typing import Final, NamedTuple

__all__ = ["filter_of", "installer", "is_available"]

_PR_SET_SECCOMP: Final = 22
_MODE_FILTER: Final = 2

# linux/filter.h
_LOAD: Final = 0x20  # BPF_LD | BPF_W | BPF_ABS
_EQUAL: Final = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_AT_LEAST: Final = 0x35  # BPF_JMP | BPF_JGE | BPF_K
_RETURN: Final = 0x06  # BPF_RET | BPF_K
# linux/seccomp.h
_ALLOW: Final = 0x7FFF0000
_REFUSE: Final = 0x00050000 | EPERM
# struct seccomp_data
_NUMBER: Final = 0
_ARCH: Final = 4

_PRIO_USER: Final = 2
_IOPRIO_WHO_USER: Final = 3
_NO_CALL: Final = 0xFFFFFFFF
"""A tracer writes this number to skip a call."""


class _Abi(NamedTuple):
    """One form of system calls: its AUDIT_ARCH, numbers by the block that judges the call, and from
    which number on the calls of another form begin."""

    arch: int
    numbers: Mapping[int, str]
    end: int | None = None


# What judges each call; the arguments are the same on every machine.
_X86_64: Final = _Abi(
    0xC000003E,
    {
        141: "setpriority",
        142: "of itself",  # sched_setparam
        144: "of itself",  # sched_setscheduler
        203: "of itself",  # sched_setaffinity
        251: "ioprio_set",
        302: "prlimit64",
        314: "of itself",  # sched_setattr
    },
    end=0x40000000,
)
_I386: Final = _Abi(
    0x40000003,
    {
        97: "setpriority",
        154: "of itself",
        156: "of itself",
        241: "of itself",
        289: "ioprio_set",
        340: "prlimit64",
        351: "of itself",
    },
)
_AARCH64: Final = _Abi(
    0xC00000B7,
    {
        30: "ioprio_set",
        118: "of itself",
        119: "of itself",
        122: "of itself",
        140: "setpriority",
        261: "prlimit64",
        274: "of itself",
    },
)
_ARM: Final = _Abi(
    0x40000028,
    {
        97: "setpriority",
        154: "of itself",
        156: "of itself",
        241: "of itself",
        314: "ioprio_set",
        369: "prlimit64",
        380: "of itself",
    },
)
# A process can be told that its machine is a 32-bit one (``setarch``); the kernel is not.
_MACHINES: Final = {
    **dict.fromkeys(("x86_64", "i386", "i486", "i586", "i686"), (_X86_64, _I386)),
    **dict.fromkeys(("aarch64", "arm64", "armv6l", "armv7l", "armv8l"), (_AARCH64, _ARM)),
}


class _Step(NamedTuple):
    """An instruction; ``yes`` and ``no`` name the blocks where a comparison goes on (empty: at the
    next step)."""

    code: int
    value: int
    yes: str = ""
    no: str = ""


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def filter_of(machine: str) -> bytes | None:
    """The filter for a kernel of this ``machine`` (as ``os.uname`` says), in the kernel's form; None
    where we know no numbers."""
    abis = _MACHINES.get(machine)
    if abis is None or sys.byteorder != "little":
        return None
    blocks = {
        "start": [
            _Step(_LOAD, _ARCH),
            *(_Step(_EQUAL, abi.arch, yes=f"calls {abi.arch}") for abi in abis),
            _Step(_RETURN, _REFUSE),
        ],
        **{f"calls {abi.arch}": _calls(abi) for abi in abis},
        "other form": [_Step(_EQUAL, _NO_CALL, yes="allow", no="refuse")],
        "prlimit64": [
            *(_load(0), _Step(_EQUAL, 0, yes="allow")),
            # Only to read is allowed: no new limits. A pointer has two halves.
            *(_load(2), _Step(_EQUAL, 0, no="refuse")),
            *(_load(2, is_high=True), _Step(_EQUAL, 0, yes="allow", no="refuse")),
        ],
        "setpriority": _who(_PRIO_USER),
        "ioprio_set": _who(_IOPRIO_WHO_USER),
        "of itself": [_load(0), _Step(_EQUAL, 0, yes="allow", no="refuse")],
        "allow": [_Step(_RETURN, _ALLOW)],
        "refuse": [_Step(_RETURN, _REFUSE)],
    }
    return _assembled(blocks)


@cache
def is_available() -> bool:
    """Whether this system takes our filter: its machine is known, and its kernel has filters."""
    if sys.platform != "linux" or filter_of(os.uname().machine) is None:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    # Without a program the kernel says that it can't read it, if it takes filters at all.
    return libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, None, 0, 0) != 0 and (
        ctypes.get_errno() == EFAULT
    )


@cache
def installer() -> Callable[[], None] | None:
    """What filters this very process for good, and all it starts, by one system call; for the moment
    before ``exec``, after rights were given up. It raises ``OSError``. None: ``is_available`` says no.
    """
    if not is_available() or (steps := filter_of(os.uname().machine)) is None:
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    program = _Program(len(steps) // 8, steps)
    given = ctypes.byref(program)

    def install() -> None:
        if prctl(_PR_SET_SECCOMP, _MODE_FILTER, given, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "the filter of system calls can't be installed")

    return install


def _calls(abi: _Abi) -> list[_Step]:
    return [
        _Step(_LOAD, _NUMBER),
        *([_Step(_AT_LEAST, abi.end, yes="other form")] if abi.end is not None else []),
        *(_Step(_EQUAL, number, yes=judge) for number, judge in abi.numbers.items()),
        _Step(_RETURN, _ALLOW),
    ]


def _who(user: int) -> list[_Step]:
    """For (which, who, …): the caller, and its own group. ``user``: all processes of the user."""
    return [
        *(_load(0), _Step(_EQUAL, user, yes="refuse")),
        *(_load(1), _Step(_EQUAL, 0, yes="allow", no="refuse")),
    ]


def _load(argument: int, *, is_high: bool = False) -> _Step:
    """Half of an argument. The kernel takes numbers from the low half, whatever the high one says."""
    return _Step(_LOAD, 16 + 8 * argument + 4 * is_high)


def _assembled(blocks: Mapping[str, list[_Step]]) -> bytes:
    places: dict[str, int] = {}
    length = 0
    for name, steps in blocks.items():
        places[name] = length
        length += len(steps)
    return b"".join(
        # Jumps go forward, by a byte's worth of steps at most; another one raises here.
        struct.pack("=HBBI", step.code, *_jumps(step, places, at), step.value)
        for at, step in enumerate(step for steps in blocks.values() for step in steps)
    )


def _jumps(step: _Step, places: Mapping[str, int], at: int) -> tuple[int, int]:
    yes, no = (places[name] - at - 1 if name else 0 for name in (step.yes, step.no))
    return yes, no
