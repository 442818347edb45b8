"""Which system calls of a fenced program are refused, for each form of calls that a machine has.

The program is run here as the kernel runs it, so that machines that are not this one are proved too.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsup.kit.seccomp import filter_of

ALLOW, REFUSE = 0x7FFF0000, 0x00050001  # SECCOMP_RET_ERRNO | EPERM
X86_64, I386, AARCH64, ARM = 0xC000003E, 0x40000003, 0xC00000B7, 0x40000028
RISCV64 = 0xC00000F3
# From the kernel's tables of each machine.
CALLS = {
    X86_64: {
        "setpriority": 141,
        "sched_setparam": 142,
        "sched_setscheduler": 144,
        "sched_setaffinity": 203,
        "ioprio_set": 251,
        "prlimit64": 302,
        "sched_setattr": 314,
    },
    I386: {
        "setpriority": 97,
        "sched_setparam": 154,
        "sched_setscheduler": 156,
        "sched_setaffinity": 241,
        "ioprio_set": 289,
        "prlimit64": 340,
        "sched_setattr": 351,
    },
    AARCH64: {
        "setpriority": 140,
        "sched_setparam": 118,
        "sched_setscheduler": 119,
        "sched_setaffinity": 122,
        "ioprio_set": 30,
        "prlimit64": 261,
        "sched_setattr": 274,
    },
    ARM: {
        "setpriority": 97,
        "sched_setparam": 154,
        "sched_setscheduler": 156,
        "sched_setaffinity": 241,
        "ioprio_set": 314,
        "prlimit64": 369,
        "sched_setattr": 380,
    },
}
MACHINES = {X86_64: "x86_64", I386: "x86_64", AARCH64: "aarch64", ARM: "aarch64"}
X32 = 0x40000000
HEADERS = {X86_64: "unistd_64.h", I386: "unistd_32.h"}


def decided(machine: str, number: int, arch: int, *args: int) -> int:
    """What the machine's filter answers to a call: the few instructions of BPF that it is made of."""
    program = filter_of(machine)
    assert program is not None
    data = struct.pack("<iIQ6Q", signed(number), arch, 0, *args, *[0] * (6 - len(args)))
    steps = list(struct.iter_unpack("=HBBI", program))
    at = value = 0
    while True:
        code, yes, no, operand = steps[at]
        at += 1
        if code == 0x20:
            (value,) = struct.unpack_from("<I", data, operand)
        elif code == 0x15:
            at += yes if value == operand else no
        elif code == 0x35:
            at += yes if value >= operand else no
        else:
            assert code == 0x06
            return int(operand)


def signed(number: int) -> int:
    return number - (1 << 32) if number >= 1 << 31 else number


def touches_others(name: str, args: tuple[int, ...]) -> bool:
    """The rule in words: which calls are about another process, or all of the user's."""
    first, second = args[0] & 0xFFFFFFFF, args[1] & 0xFFFFFFFF
    if name == "prlimit64":
        return first != 0 and args[2] != 0
    if name == "setpriority":
        return second != 0 or first == 2
    if name == "ioprio_set":
        return second != 0 or first == 3
    return first != 0


WORDS = st.one_of(
    st.sampled_from([0, 1, 2, 3, 1 << 32, (1 << 32) + 2, (7 << 32) + 3, 0xFFFFFFFF, (1 << 64) - 1]),
    st.integers(0, (1 << 64) - 1),
)
FORMS = st.sampled_from(sorted(CALLS))


@given(FORMS, st.sampled_from(sorted(CALLS[ARM])), st.tuples(*[WORDS] * 6))
def test_calls_about_another_process_are_refused_and_no_others(
    arch: int, name: str, args: tuple[int, ...]
) -> None:
    answer = decided(MACHINES[arch], CALLS[arch][name], arch, *args)
    assert answer == (REFUSE if touches_others(name, args) else ALLOW), (name, args)


@given(FORMS, st.integers(0, X32 - 1), st.tuples(*[WORDS] * 6))
def test_every_other_call_passes(arch: int, number: int, args: tuple[int, ...]) -> None:
    if number not in CALLS[arch].values():
        assert decided(MACHINES[arch], number, arch, *args) == ALLOW


@given(st.integers(X32, 0xFFFFFFFE))
def test_another_form_of_calls_is_refused(number: int) -> None:
    assert decided("x86_64", number, X86_64) == REFUSE  # x32


def test_a_call_that_a_tracer_skips_passes() -> None:
    assert decided("x86_64", 0xFFFFFFFF, X86_64) == ALLOW


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_calls_of_a_machine_that_this_can_not_be_are_refused(machine: str) -> None:
    foreign = {arch for arch, known in MACHINES.items() if known != machine}
    for arch in (RISCV64, *foreign):
        assert decided(machine, 0, arch) == REFUSE


@pytest.mark.parametrize("told, real", [("i686", "x86_64"), ("armv8l", "aarch64")])
def test_a_process_that_is_told_of_a_smaller_machine_has_the_same_filter(
    told: str, real: str
) -> None:
    assert filter_of(told) == filter_of(real)


def test_an_unknown_machine_has_none() -> None:
    assert filter_of("ppc64le") is None


@pytest.mark.parametrize("arch", sorted(HEADERS))
def test_the_numbers_are_the_kernels(arch: int) -> None:
    places = [Path("/usr/include", way, "asm", HEADERS[arch]) for way in ("x86_64-linux-gnu", "")]
    header = next((path for path in places if path.exists()), None)
    if header is None:
        pytest.skip("no headers of the kernel for x86 here")
    found = dict(re.findall(r"#define __NR_(\w+) (\d+)", header.read_text()))
    assert {name: int(found[name]) for name in CALLS[arch]} == CALLS[arch]
