"""A file on its way into a workspace leaves nothing behind when nobody waits for it any more."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentsup.catalogue import words
from agentsup.channels.fetching import Fetched, Opened, fetch
from agentsup.channels.received import Landing
from agentsup.kit.clock import SystemClock
from agentsup.kit.entropy import SystemEntropy


class Photo:
    name = "photo.jpg"
    size = 5


async def pull(opened: Opened) -> None:
    (await opened()).write(b"pixel")


def fetching(workspace: Path) -> asyncio.Task[Fetched]:
    return asyncio.create_task(
        fetch(
            pull,
            Photo(),
            workspace,
            owner="test",
            clock=SystemClock(),
            entropy=SystemEntropy(SystemClock()),
            max_bytes=1_000,
            say=words("en"),
        )
    )


@pytest.mark.parametrize("step", ["__init__", "keep", "close"])
@pytest.mark.parametrize("cancels", [1, 3])
async def test_what_is_given_up_in_any_step_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, cancels: int
) -> None:
    reached, go_on = threading.Event(), threading.Event()
    real: Callable[..., Any] = getattr(Landing, step)

    def slow(*args: Any, **kwargs: Any) -> Any:
        reached.set()
        assert go_on.wait(5)
        return real(*args, **kwargs)

    monkeypatch.setattr(Landing, step, slow)
    task = fetching(tmp_path)
    assert await asyncio.to_thread(reached.wait, 5)
    for _ in range(cancels):
        task.cancel()
        await asyncio.sleep(0)
    await asyncio.wait({task}, timeout=1)
    assert task.cancelled(), "nobody waits for what may hang"
    go_on.set()

    def left() -> list[str]:
        return [path.name for path in tmp_path.rglob("*") if path.is_file()]

    async with asyncio.timeout(5):
        while left() or not pool_threads_are_gone():
            await asyncio.sleep(0.005)


def pool_threads_are_gone() -> bool:
    return not any(thread.name.startswith("pool:") for thread in threading.enumerate())


async def test_what_is_waited_for_is_kept(tmp_path: Path) -> None:
    got = await fetching(tmp_path)
    assert got.part is not None
    assert got.part.path is not None
    assert (tmp_path / got.part.path).read_bytes() == b"pixel"
