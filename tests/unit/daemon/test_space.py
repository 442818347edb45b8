"""A start that has had to wait for space."""

import asyncio
import errno
import os
import signal

import pytest

from agentsup.daemon import space

pytestmark = pytest.mark.asyncio


async def test_a_stop_during_the_step_that_succeeds_is_not_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(space, "FIRST_S", 0.001)
    tries, undone = 0, list[str]()

    async def step() -> str:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0)
        await asyncio.sleep(0.01)  # the loop hears of the signal in one of its next turns
        return "made"

    async def undo(made: str) -> None:
        undone.append(made)

    with pytest.raises(space.Stopped):
        await space.wait_in_loop(step, undo=undo)
    assert undone == ["made"]
    assert tries == 2
