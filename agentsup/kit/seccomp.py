"""A filter of system calls, so that fenced programs can't change resources of other processes.

Linux lets a process change limits, priority, processors and scheduling of every process of the same
user. This needs no right to trace the other process, so the fence (``kit.fence``) does not cover
it, and the owner can't undo everything. The filter (seccomp, see ``seccomp(2)``) refuses these
calls with ``EPERM`` if they name another process than the caller. A filter sees only numbers: the
caller's own number, and those of its threads and children, are refused too; 0, the caller itself,
passes.

The filter knows the system calls of x86-64 and of 64-bit ARM, each with its 32-bit form. Calls of
any other form (x32) are refused. On other machines there is no filter.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Callable, Mapping
from errno import EFAULT, EPERM
from functools import cache
from typing import Final, NamedTuple

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
    """One form of system calls: its AUDIT_ARCH, and the number from which calls of another form
    begin."""

    arch: int
    end: int | None = None


_X86_64: Final = _Abi(0xC000003E, end=0x40000000)
_I386: Final = _Abi(0x40000003)
_AARCH64: Final = _Abi(0xC00000B7)
_ARM: Final = _Abi(0x40000028)
_CALLS: Final = (
    # The call, the block that decides about it, and its number in each form; the arguments are the
    # same everywhere.
    ("setpriority", "setpriority", {_X86_64: 141, _I386: 97, _AARCH64: 140, _ARM: 97}),
    ("sched_setparam", "of itself", {_X86_64: 142, _I386: 154, _AARCH64: 118, _ARM: 154}),
    ("sched_setscheduler", "of itself", {_X86_64: 144, _I386: 156, _AARCH64: 119, _ARM: 156}),
    ("sched_setaffinity", "of itself", {_X86_64: 203, _I386: 241, _AARCH64: 122, _ARM: 241}),
    ("ioprio_set", "ioprio_set", {_X86_64: 251, _I386: 289, _AARCH64: 30, _ARM: 314}),
    ("prlimit64", "prlimit64", {_X86_64: 302, _I386: 340, _AARCH64: 261, _ARM: 369}),
    ("sched_setattr", "of itself", {_X86_64: 314, _I386: 351, _AARCH64: 274, _ARM: 380}),
)
# A process can be told that its machine is a 32-bit one (``setarch``); the kernel still has 64
# bits.
_MACHINES: Final = {
    **dict.fromkeys(("x86_64", "i386", "i486", "i586", "i686"), (_X86_64, _I386)),
    **dict.fromkeys(("aarch64", "arm64", "armv6l", "armv7l", "armv8l"), (_AARCH64, _ARM)),
}


class _Step(NamedTuple):
    """An instruction; ``yes`` and ``no`` name the blocks to which a comparison jumps (empty: the
    next step)."""

    code: int
    value: int
    yes: str = ""
    no: str = ""


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def filter_of(machine: str) -> bytes | None:
    """The filter for a kernel of this ``machine`` (``os.uname``), in the kernel's form; None if we
    know no call numbers."""
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
            # Only reading is allowed: no new limits. A pointer has two halves.
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
    """Whether this system supports our filter: its machine is known, and its kernel has filters."""
    if sys.platform != "linux" or filter_of(os.uname().machine) is None:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    # Without a program the kernel reports an unreadable one (EFAULT), if it supports filters at
    # all.
    return libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, None, 0, 0) != 0 and (
        ctypes.get_errno() == EFAULT
    )


@cache
def installer() -> Callable[[], None] | None:
    """A function that filters this process and its descendants irrevocably, by one system call. For
    the moment before ``exec``, after rights were given up. It raises ``OSError``. None if
    ``is_available`` is false."""
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
        *(_Step(_EQUAL, numbers[abi], yes=judge) for _, judge, numbers in _CALLS),
        _Step(_RETURN, _ALLOW),
    ]


def _who(user: int) -> list[_Step]:
    """Rules for (which, who, …): allow the caller and its own group. ``user``: all processes of the
    user."""
    return [
        *(_load(0), _Step(_EQUAL, user, yes="refuse")),
        *(_load(1), _Step(_EQUAL, 0, yes="allow", no="refuse")),
    ]


def _load(argument: int, *, is_high: bool = False) -> _Step:
    """Load half of an argument. The kernel takes numbers from the low half and ignores the high
    one."""
    return _Step(_LOAD, 16 + 8 * argument + 4 * is_high)


def _assembled(blocks: Mapping[str, list[_Step]]) -> bytes:
    offsets: dict[str, int] = {}
    length = 0
    for name, steps in blocks.items():
        offsets[name] = length
        length += len(steps)
    return b"".join(
        # Jumps go forward, by 255 steps at most; a longer one raises here.
        struct.pack("=HBBI", step.code, *_jumps(step, offsets, at), step.value)
        for at, step in enumerate(step for steps in blocks.values() for step in steps)
    )


def _jumps(step: _Step, offsets: Mapping[str, int], at: int) -> tuple[int, int]:
    yes, no = (offsets[name] - at - 1 if name else 0 for name in (step.yes, step.no))
    return yes, no
