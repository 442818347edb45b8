"""The watcher on real files: quick, complete, and never blind."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from agentsup.config import Home, WatchedDirectory, load, watch
from agentsup.kit import inotify
from agentsup.kit.clock import SystemClock
from agentsup.kit.files import write_atomic
from agentsup.kit.tasks import TaskOwner, stop_task
from tests.support.bound import BOUND_S

FAR_S = 60.0
"""A re-read that never comes within a test, so that only events can tell."""


class Told:
    """Collects what the watcher tells, and lets a test wait for it."""

    def __init__(self) -> None:
        self.changes: list[set[str]] = []
        self._news = asyncio.Condition()

    async def __call__(self, names: set[str]) -> None:
        async with self._news:
            self.changes.append(names)
            self._news.notify_all()

    @property
    def names(self) -> set[str]:
        return set().union(*self.changes)

    async def until(self, holds: Callable[[], bool], timeout_s: float = BOUND_S) -> None:
        async with asyncio.timeout(timeout_s), self._news:
            await self._news.wait_for(holds)


@pytest.fixture(params=["inotify", "watchfiles"], autouse=True)
def means(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What tells of changes: where the system is no Linux, the library does."""
    if request.param == "watchfiles":
        monkeypatch.setattr(inotify, "is_here", lambda: False)
    return str(request.param)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.root.mkdir()
    made.agents_json.write_text("[]")
    return made


@asynccontextmanager
async def watching(
    home: Home, told: Told, *, reread_s: float = FAR_S, known: dict[str, str | None] | None = None
) -> AsyncIterator[asyncio.Event]:
    """A watcher that has seen its first event, so that every later edit is an event too."""
    stop = asyncio.Event()
    owner = TaskOwner("test")
    task = owner.spawn(
        watch(
            home.watched,
            on_change=told,
            stop=stop,
            clock=SystemClock(),
            known=known,
            reread_s=reread_s,
        ),
        name="watch:config",
    )
    if known is None:
        # The kernel's watch is set up in a thread that tells nobody. Time enough between two saves
        # that the first is told before the second is made: each is then told once.
        await asyncio.wait({task}, timeout=0.05)
        while not told.changes:
            home.shared_memory.write_text(str(time.perf_counter_ns()))
            with suppress(TimeoutError):
                await told.until(lambda: bool(told.changes), timeout_s=0.5)
        told.changes.clear()
    try:
        yield stop
        assert not task.done() or stop.is_set()
    finally:
        stop.set()
        await asyncio.wait({task}, timeout=BOUND_S)
        assert task.done()
        assert await owner.close(BOUND_S) == []
    await task


async def settled(told: Told, name: str = "agents.json") -> None:
    await told.until(lambda: name in told.names)


async def test_each_kind_of_save_is_told_with_its_file(home: Home) -> None:
    told = Told()
    async with watching(home, told):
        home.agents_json.write_text('[{"name": "a"}]')
        await settled(told)
        told.changes.clear()
        write_atomic(home.agents_json, b'[{"name": "b"}]')
        await settled(told)
        told.changes.clear()
        write_atomic(home.agents_json, b'[{"name": "c"}]')  # the second replace is seen as well
        await settled(told)
        told.changes.clear()
        home.config_toml.write_text("[api]")
        await settled(told, "config.toml")
        told.changes.clear()
        home.agents_json.unlink()
        await settled(told)
        assert told.names == {"agents.json"}


async def test_a_touch_or_the_same_content_is_no_change(home: Home) -> None:
    told = Told()
    async with watching(home, told):
        os.utime(home.agents_json)
        home.agents_json.write_text("[]")
        (home.root / "state.db-wal").write_text("x")
        (home.root / "agents.json.swp").write_text("x")
        home.config_toml.write_text("last")
        await settled(told, "config.toml")
        assert told.changes == [{"config.toml"}]


async def test_many_saves_in_a_row_end_at_the_last_content(home: Home) -> None:
    told = Told()
    seen: list[str] = []

    async def on_change(names: set[str]) -> None:
        seen.append(home.agents_json.read_text())
        await told(names)

    stop = asyncio.Event()
    owner = TaskOwner("test")
    owner.spawn(
        watch(home.watched, on_change=on_change, stop=stop, clock=SystemClock()),
        name="watch:config",
    )
    for index in range(10):
        home.agents_json.write_text(f"[{index}]")
        await SystemClock().sleep(0.01)
    await told.until(lambda: bool(seen) and seen[-1] == "[9]")
    assert len(seen) < 10
    stop.set()
    assert await owner.close(BOUND_S) == []


async def test_an_edit_in_the_gap_of_a_restart_is_told_at_the_start(home: Home) -> None:
    before = dict(load(home).file_hashes)
    told = Told()
    async with watching(home, told, known=before):
        home.config_toml.write_text("[api]")  # an event or the first look, whichever is earlier
        await settled(told, "config.toml")
    home.agents_json.write_text("[ ]")
    told = Told()
    async with watching(
        home, told, known=dict(load(home).file_hashes) | {"agents.json": before["agents.json"]}
    ):
        await settled(told)
        assert told.changes == [{"agents.json"}]


async def test_a_replaced_directory_is_watched_again(home: Home) -> None:
    told = Told()
    async with watching(home, told, reread_s=0.2):
        home.root.rename(home.root.with_name("old"))
        home.root.mkdir()
        home.agents_json.write_text('[{"name": "new"}]')
        await settled(told)
        told.changes.clear()
        home.agents_json.write_text("[2]")
        await settled(told)
        shutil.rmtree(home.root)  # the next one may well get the same inode
        told.changes.clear()
        home.root.mkdir()
        home.agents_json.write_text("[3]")
        await settled(told)


async def test_the_slow_look_finds_what_no_event_told_also_under_noise(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events about our files are lost here, as on a network mount; the store writes all the time."""
    told = Told()
    noise = TaskOwner("noise")

    async def write_store() -> None:
        while True:
            (home.root / "state.db-wal").write_text(str(time.perf_counter_ns()))
            await SystemClock().sleep(0.01)

    async with watching(home, told, reread_s=0.3):
        monkeypatch.setattr(WatchedDirectory, "_is_of_ours", lambda self, change: False)
        monkeypatch.setattr(
            WatchedDirectory,
            "_concerns",
            lambda self, is_gone, path: (
                "state.db" in path and self._clock.monotonic() >= self._due_at
            ),
        )
        noise.spawn(write_store(), name="noise:store")
        home.agents_json.write_text("[4]")
        await settled(told)
        assert await noise.close(BOUND_S) == []


async def test_writes_of_the_store_wake_nobody(
    home: Home, means: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if means != "inotify":
        pytest.skip("the library tells of each write")
    told, read = list[str](), inotify.DirectoryChanges.read

    def noted(changes: inotify.DirectoryChanges) -> list[inotify.Change]:
        found = read(changes)
        told.extend(change.name for change in found)
        return found

    monkeypatch.setattr(inotify.DirectoryChanges, "read", noted)

    async def heard_of(path: Path) -> None:
        async with asyncio.timeout(BOUND_S):
            while path.name not in told:
                path.write_text(str(time.perf_counter_ns()))
                await SystemClock().sleep(0.02)

    with (home.root / "state.db-wal").open("w") as store:
        async with watching(home, Told()):
            await heard_of(home.shared_memory)  # a first look may come before there are events
            for _ in range(5):
                store.write("x")
                store.flush()
                store.seek(0)
            await heard_of(home.agents_json)  # events come in their order
            assert set(told) == {"SHAREDMEMORY.md", "agents.json"}


async def test_an_edit_while_the_watch_is_set_up_is_told(
    home: Home, means: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if means != "inotify":
        pytest.skip("the library does not say when it watches")
    watched = inotify.DirectoryChanges

    def edited_before(directory: Path) -> inotify.DirectoryChanges:
        home.config_toml.write_text("[api]")
        return watched(directory)

    monkeypatch.setattr(inotify, "DirectoryChanges", edited_before)
    monkeypatch.setattr(edited_before, "close", watched.close, raising=False)
    changed = Told()
    known = dict(load(home).file_hashes)
    async with watching(home, changed, known=known):
        await settled(changed, "config.toml")


async def test_what_the_callback_raises_ends_the_watcher(home: Home) -> None:
    async def on_change(names: set[str]) -> None:
        raise RuntimeError("apply failed")

    with pytest.raises(RuntimeError, match="apply failed"):
        async with asyncio.timeout(BOUND_S):
            await watch(
                home.watched,
                on_change=on_change,
                stop=asyncio.Event(),
                clock=SystemClock(),
                known={"agents.json": "older"},
            )


async def test_cancelling_ends_it_and_leaves_the_stop_event_alone(home: Home) -> None:
    stop = asyncio.Event()
    owner = TaskOwner("test")
    task = owner.spawn(
        watch(home.watched, on_change=Told(), stop=stop, clock=SystemClock()), name="watch:config"
    )
    await SystemClock().sleep(0.2)
    assert await stop_task(task, timeout_s=BOUND_S)
    assert task.cancelled()
    assert not stop.is_set()
