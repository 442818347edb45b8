"""A start that has had to wait for space."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from collections.abc import Callable

import pytest

from agentsup.daemon.runtime import disk_space
from tests.support.bound import BOUND_S

pytestmark = pytest.mark.asyncio


async def test_a_stop_during_the_step_that_succeeds_is_not_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(disk_space, "FIRST_S", 0.001)
    tries, undone, heard = 0, list[str](), asyncio.Event()
    loop = asyncio.get_running_loop()
    add = loop.add_signal_handler

    def and_say(number: int, callback: Callable[[], None]) -> None:
        def both() -> None:
            callback()
            heard.set()

        add(number, both)

    monkeypatch.setattr(loop, "add_signal_handler", and_say)

    async def step() -> str:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(BOUND_S):
            await heard.wait()
        return "made"

    async def undo(made: str) -> None:
        undone.append(made)

    with pytest.raises(disk_space.StoppedWhileWaiting):
        await disk_space.wait_in_loop(step, undo=undo)
    assert undone == ["made"]
    assert tries == 2
