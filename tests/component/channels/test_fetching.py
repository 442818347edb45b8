"""A file on its way into a workspace leaves nothing behind when nobody waits for it any more."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from agentsup.catalogue import words
from agentsup.channels.core.files.inbox_files import InboxFolder, Opened
from agentsup.channels.core.receiving.downloads import Downloads, Fetched
from agentsup.channels.core.receiving.texts import Attachment
from agentsup.kit.clock import SystemClock
from agentsup.kit.entropy import SystemEntropy
from agentsup.kit.pool import IDLE, BoundedPool
from tests.support.bound import BOUND_S

PHOTO = Attachment("photo", "p1", "photo.jpg", 5)


class Platform:
    downloads = 1

    async def pull(self, sent: Attachment, opened: Opened) -> None:
        await (await opened())(b"pixel")


class Bot:
    channel, agent_id, max_file_bytes = "telegram", "test", 1_000
    clock = SystemClock()
    entropy = SystemEntropy(clock)

    def __init__(self, workspace: Path, files: BoundedPool | None) -> None:
        self.workspace, self.files = workspace, files or BoundedPool("files")


def fetching(workspace: Path, files: BoundedPool | None = None) -> asyncio.Task[Fetched]:
    downloads = Downloads(cast(Any, Bot(workspace, files)), cast(Any, Platform()))
    return asyncio.create_task(downloads.fetch(PHOTO, words("en")))


@pytest.mark.parametrize("step", ["__init__", "keep", "close"])
@pytest.mark.parametrize("cancels", [1, 3])
async def test_what_is_given_up_in_any_step_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, cancels: int
) -> None:
    reached, go_on = threading.Event(), threading.Event()
    real: Callable[..., Any] = getattr(InboxFolder, step)

    def slow(*args: Any, **kwargs: Any) -> Any:
        reached.set()
        assert go_on.wait(BOUND_S)
        return real(*args, **kwargs)

    monkeypatch.setattr(InboxFolder, step, slow)
    task = fetching(tmp_path)
    assert await asyncio.to_thread(reached.wait, BOUND_S)
    for _ in range(cancels):
        task.cancel()
        await asyncio.sleep(0)
    await asyncio.wait({task}, timeout=BOUND_S)
    assert task.cancelled(), "nobody waits for what may hang"
    go_on.set()

    def left() -> list[str]:
        return [path.name for path in tmp_path.rglob("*") if path.is_file()]

    async with asyncio.timeout(BOUND_S):
        while left() or not pool_threads_are_gone():
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("cancels", [1, 2, 3])
async def test_what_is_given_up_behind_other_steps_leaves_no_open_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cancels: int
) -> None:
    """The end of a life cancels what handles a message, and its download as well."""
    opened, go_on = asyncio.Event(), threading.Event()
    made: list[InboxFolder] = []

    async def pull(self: Platform, sent: Attachment, open_file: Opened) -> None:
        await open_file()
        opened.set()
        await asyncio.Event().wait()

    real = InboxFolder.__init__

    def noted(landing: InboxFolder, *args: Any, **kwargs: Any) -> None:
        real(landing, *args, **kwargs)
        made.append(landing)

    monkeypatch.setattr(Platform, "pull", pull)
    monkeypatch.setattr(InboxFolder, "__init__", noted)
    pool = BoundedPool("files", per_key=1)
    task = fetching(tmp_path, pool)
    await opened.wait()
    other = asyncio.create_task(
        pool.run(lambda: go_on.wait(BOUND_S), key=tmp_path.parent.name, limit_s=BOUND_S)
    )
    await asyncio.sleep(0)
    for _ in range(cancels):
        task.cancel()
        await asyncio.sleep(0)
    go_on.set()
    await asyncio.wait({task, other}, timeout=BOUND_S)
    assert task.cancelled()
    async with asyncio.timeout(BOUND_S):
        while not made[0].out.closed or not pool_threads_are_gone():
            await asyncio.sleep(0.005)


def pool_threads_are_gone() -> bool:
    names = [thread.name for thread in threading.enumerate()]
    return not any(name.startswith("pool:") and not name.endswith(IDLE) for name in names)


async def test_what_is_waited_for_is_kept(tmp_path: Path) -> None:
    got = await fetching(tmp_path)
    assert got.part is not None
    assert got.part.path is not None
    assert (tmp_path / got.part.path).read_bytes() == b"pixel"


async def test_a_workspace_that_stops_answering_takes_threads_of_its_pool_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over, at_it = threading.Event(), list[str]()
    real = InboxFolder.__init__

    class Hanging:
        def __init__(self, out: Any) -> None:
            self.close = out.close

        def write(self, piece: bytes) -> None:
            at_it.append(threading.current_thread().name)
            over.wait()

    def made(landing: InboxFolder, *args: Any, **kwargs: Any) -> None:
        real(landing, *args, **kwargs)
        landing.out = cast(Any, Hanging(landing.out))

    monkeypatch.setattr(InboxFolder, "__init__", made)
    pool = BoundedPool("files", limit_s=0.05)
    try:
        got = await fetching(tmp_path, pool)
        assert "no answer" in got.problem
        assert at_it == ["pool:files"]
        assert pool.stuck == {tmp_path.parent.name: 1}
    finally:
        over.set()
    async with asyncio.timeout(BOUND_S):
        while pool.stuck:
            await asyncio.get_running_loop().run_in_executor(None, lambda: None)
