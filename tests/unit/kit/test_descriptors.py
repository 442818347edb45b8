"""Limits of descriptors: raised for the daemon, usual for what it starts; and what lacks one."""

from __future__ import annotations

import errno
import json
import os
import resource
import sys

import pytest

from agentsup.kit.descriptors import is_shortage, limit, used
from agentsup.kit.pipes import Stdio
from agentsup.kit.procgroup import ProcessGroup


@pytest.mark.parametrize(
    "number, is_one",
    [(errno.EMFILE, True), (errno.ENFILE, True), (errno.ENOMEM, True), (errno.ENOENT, False)],
)
def test_a_shortage_is_told_from_a_fault_through_what_wraps_it(number: int, is_one: bool) -> None:
    inner, outer = OSError(number, os.strerror(number)), RuntimeError("a library's")
    assert is_shortage(inner) is is_one
    outer.__cause__ = inner
    assert is_shortage(outer) is is_one
    outer.__cause__, outer.__context__ = None, inner
    assert is_shortage(outer) is is_one
    inner.__context__ = outer
    assert is_shortage(inner) is is_one


def test_memory_is_one_and_nothing_is_none() -> None:
    assert is_shortage(MemoryError())
    assert not is_shortage(None)
    assert not is_shortage(ValueError())


def test_what_is_open_is_counted() -> None:
    before = used()
    ends = os.pipe()
    assert used() == before + 2
    for end in ends:
        os.close(end)


async def test_a_program_gets_the_usual_limit_though_ours_was_raised() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    code = "import json,resource;print(json.dumps(resource.getrlimit(resource.RLIMIT_NOFILE)))"
    if hard < 2048:
        pytest.skip("the hard limit leaves nothing to raise")
    resource.setrlimit(resource.RLIMIT_NOFILE, (2048, hard))
    try:
        assert limit() == 2048
        async with await ProcessGroup.spawn(
            [sys.executable, "-c", code], env={}, cwd="/", stdout=Stdio.PIPE
        ) as group:
            assert group.stdout is not None
            told = await group.stdout.read()
            assert json.loads(told) == [1024, hard]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
