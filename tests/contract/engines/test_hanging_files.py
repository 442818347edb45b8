"""P3, P5: what an agent's files cost or withhold when its program is started is its own affair."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest

from agentsup.engines.failures import EnginesBusy, NotConfigured
from agentsup.engines.process import (
    EngineHome,
    Fencing,
    ProcessLauncher,
    Program,
    ProgramHome,
    fencing,
    homes,
    preparing,
)
from agentsup.engines.programs.cli_agent_policies import CLAUDE, KINDS, AgentSettings
from agentsup.kit.clock import SystemClock
from agentsup.kit.fence import Fence
from agentsup.kit.safe_files import GuardedFolder
from agentsup.model.engine import EngineSpec
from tests.support.bound import BOUND_S
from tests.support.engine_host import MemoryHost

MANY: Final = 60_000 if os.environ.get("TEST_PLANTED") == "all" else 500
ENV: Final = {"PATH": "/usr/bin:/bin"}


class NoExecutor(ThreadPoolExecutor):
    """The threads that everybody shares, which nothing here may take."""

    def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
        raise AssertionError(f"the threads that all share are used for {args[0]}")


@pytest.fixture
async def children(
    tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[ProcessLauncher]:
    asyncio.get_running_loop().set_default_executor(NoExecutor())
    closed = tmp_path / "closed"
    closed.mkdir()
    has_fence = getattr(request, "param", True)
    made = ProcessLauncher(
        SystemClock(), fencing=lambda: Fencing((str(closed),) if has_fence else ())
    )
    yield made
    await made.close()
    await settled(made)


async def settled(children: ProcessLauncher) -> None:
    """No step of its pool is left."""
    async with asyncio.timeout(BOUND_S):
        while children.files._keys:
            await asyncio.sleep(0.01)


async def ended(children: ProcessLauncher, agent: str, workspace: Path) -> int:
    """The exit code of an agent's program, which has nothing to do."""
    spec = EngineSpec("command", workspace=str(workspace), agent=agent)
    home = ProgramHome(workspace.parent / "home")
    async with children.open(Program(["true"], ENV, home), spec, MemoryHost()) as child:
        return await child.wait()


def workspace_of(tmp_path: Path, agent: str) -> Path:
    workspace = tmp_path / agent / "workspace"
    workspace.mkdir(parents=True)
    return workspace


@contextmanager
def hanging(
    monkeypatch: pytest.MonkeyPatch, where: Any, names: tuple[str, ...], about: Callable[..., bool]
) -> Iterator[threading.Event]:
    """These functions answer nobody inside the block when asked ``about`` something; set is that
    one of them was asked."""
    begun, over = threading.Event(), threading.Event()

    def slow(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(first: Any, *args: Any, **kwargs: Any) -> Any:
            if about(first):
                begun.set()
                assert threading.current_thread() is not threading.main_thread(), "the loop hangs"
                over.wait(60)
            return original(first, *args, **kwargs)

        return call

    with monkeypatch.context() as patch:
        for name in names:
            patch.setattr(where, name, slow(getattr(where, name)))
        try:
            yield begun
        finally:
            over.set()


# -- a disk that does not answer -------------------------------------------------------------------


async def others_go_on(
    children: ProcessLauncher, tmp_path: Path, bad: Path, begun: threading.Event
) -> None:
    """A program of another agent starts meanwhile, and a stop ends the turn that waits."""
    good = workspace_of(tmp_path, "ben")
    waiting = asyncio.ensure_future(ended(children, "ada", bad))
    async with asyncio.timeout(BOUND_S):
        while not begun.is_set():
            await asyncio.sleep(0.01)
        assert await ended(children, "ben", good) == 0
    waiting.cancel()
    _, pending = await asyncio.wait({waiting}, timeout=BOUND_S)
    assert not pending, "a stop waits for no disk"
    assert waiting.cancelled()


@pytest.mark.parametrize("children", [True, False], indirect=True, ids=["fence", "no fence"])
async def test_a_workspace_on_a_dead_disk_keeps_no_other_agents_program(
    children: ProcessLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = workspace_of(tmp_path, "ada")

    def about(path: Any) -> bool:
        return isinstance(path, str | os.PathLike) and str(path).startswith(str(bad))

    with hanging(monkeypatch, os, ("lstat", "stat", "scandir", "open"), about) as begun:
        await others_go_on(children, tmp_path, bad, begun)


async def test_a_disk_that_dies_before_the_fence_is_made_keeps_no_other_agents_program(
    children: ProcessLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = workspace_of(tmp_path, "ada")

    def about(fence: Fence) -> bool:
        return str(bad) in fence.opened

    with hanging(monkeypatch, fencing, ("rules_of",), about) as begun:
        await others_go_on(children, tmp_path, bad, begun)


# -- very many files where settings are taken away -------------------------------------------------


def home_of(tmp_path: Path, settings: AgentSettings) -> EngineHome:
    workspace = tmp_path / settings.kind / "workspace"
    workspace.mkdir(parents=True, exist_ok=True)
    return EngineHome.of(EngineSpec("x", workspace=str(workspace), agent="ada"), "x", settings)


def fill(folder: Path, number: int) -> None:
    """A tree that is deep, wide, and closed in places."""
    deep = folder / "a" / "b" / "c"
    deep.mkdir(parents=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        for each in range(number):
            os.close(os.open(f"f{each}", os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))
    finally:
        os.close(descriptor)
    (deep / "file").touch()
    deep.chmod(0)
    folder.chmod(0o500)


@pytest.mark.parametrize("settings", list(KINDS.values()), ids=lambda each: each.kind)
async def test_very_many_files_in_place_of_settings_delay_nobody(
    children: ProcessLauncher,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: AgentSettings,
) -> None:
    home = home_of(tmp_path, settings)
    per_name = MANY // len(settings.unwanted)
    for name in settings.unwanted:
        fill(home.path / name, per_name)
    removed: list[str] = []
    unlink = os.unlink

    def noted(path: str, **kwargs: Any) -> None:
        removed.append(path)
        unlink(path, **kwargs)

    monkeypatch.setattr(os, "unlink", noted)
    monkeypatch.setattr(preparing, "_REMOVED_AT_ONCE", 50)
    async with asyncio.timeout(BOUND_S + MANY / 1000):
        told = await children.homes.prepare(home, "It")
        assert len(told) == len(settings.unwanted)
        assert removed == [], "what is taken away is not removed first"
        assert not any((home.path / name).exists() for name in settings.unwanted)
        while children.homes._owner.tasks:
            # Another agent's steps, and this one's, are done in between.
            await children.files.run(bool, key="ben")
            await children.files.run(bool, key="ada")
    assert len(removed) > per_name
    assert home.removed.is_empty()
    assert await children.homes.prepare(home, "It") == []


async def test_what_was_not_removed_any_more_is_removed_after_the_next_turn(
    children: ProcessLauncher, tmp_path: Path
) -> None:
    home = home_of(tmp_path, CLAUDE)
    fill(home.removed.path / "1", 10)
    assert await children.homes.prepare(home, "It") == []
    async with asyncio.timeout(BOUND_S):
        await asyncio.gather(*children.homes._owner.tasks)
    assert home.removed.is_empty()


async def test_a_home_on_another_disk_keeps_what_is_taken_away_under_another_name(
    children: ProcessLauncher, tmp_path: Path
) -> None:
    home = home_of(tmp_path, CLAUDE)
    with TemporaryDirectory(dir="/dev/shm") as elsewhere:
        home.path.parent.symlink_to(elsewhere)
        fill(home.path / ".claude" / "hooks", 10)
        told = await children.homes.prepare(home, "It")
        assert len(told) == 1
        assert not (home.path / ".claude" / "hooks").exists()
        assert (home.path / ".claude" / "hooks.set-aside-1").exists()


async def test_turns_that_begin_at_once_do_not_take_each_others_files(
    children: ProcessLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = home_of(tmp_path, CLAUDE)
    for name in CLAUDE.unwanted:
        fill(home.path / name, 10)
    taken = homes._taken

    def slowly(folder: GuardedFolder, name: str) -> str:
        found = taken(folder, name)
        threading.Event().wait(0.005)  # what is seen there is taken a moment later
        return found

    monkeypatch.setattr(homes, "_taken", slowly)
    told = await asyncio.gather(*(children.homes.prepare(home, "It") for _ in range(6)))
    assert sorted(map(len, told)) == [0] * 5 + [len(CLAUDE.unwanted)]


async def test_a_home_that_does_not_answer_is_its_own_agents_trouble(
    children: ProcessLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = home_of(tmp_path, CLAUDE)
    with hanging(monkeypatch, EngineHome, ("lay",), lambda each: each == home) as begun:
        turns = [asyncio.ensure_future(children.homes.prepare(home, "It")) for _ in range(5)]
        async with asyncio.timeout(BOUND_S):
            while not begun.is_set():
                await asyncio.sleep(0.01)
            assert await children.files.run(lambda: "well", key="ben") == "well"
            for turn in turns:
                turn.cancel()
            await asyncio.wait(turns)
        assert all(turn.cancelled() for turn in turns)
    await settled(children)


async def test_settings_that_can_not_be_taken_away_keep_the_program_from_running(
    children: ProcessLauncher, tmp_path: Path
) -> None:
    home = home_of(tmp_path, CLAUDE)
    (home.path / CLAUDE.unwanted[0]).mkdir(parents=True)
    home.removed.path.touch()  # it is no folder
    with pytest.raises(NotConfigured, match=r"can't be put in order: .* remove that"):
        await children.homes.prepare(home, "It")


async def test_a_disk_that_takes_nothing_is_tried_again(
    children: ProcessLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(home: EngineHome) -> list[str]:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(EngineHome, "lay", full)
    with pytest.raises(EnginesBusy, match="can't be put in order"):
        await children.homes.prepare(home_of(tmp_path, CLAUDE), "It")
