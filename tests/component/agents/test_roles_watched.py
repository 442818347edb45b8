"""Edits of roles on a real disk: seen by events, also where the directory comes and goes."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from agentsup.agents.roles import registry
from agentsup.agents.roles.registry import LiveRoleRegistry, RoleRegistry, watch_roles
from agentsup.kit.clock import SystemClock
from agentsup.kit.tasks import TaskOwner
from tests.support.bound import BOUND_S


class WatchedRoleRegistry(LiveRoleRegistry):
    """Lets a test wait for the next look."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, tuple)
        self.looked = asyncio.Event()

    async def refresh(self) -> RoleRegistry:
        found = await super().refresh()
        self.looked.set()
        return found

    async def until(self, words: str | None) -> None:
        """Wait until the role ``mine`` is described so; None: until it is gone."""
        async with asyncio.timeout(BOUND_S):
            while self.known is None or self._told(self.known) != words:
                self.looked.clear()
                await self.looked.wait()

    def _told(self, book: RoleRegistry) -> str | None:
        role = book.find("mine")
        return role.description if role is not None else None


def put(directory: Path, words: str) -> None:
    path = directory / "mine" / "AGENT.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\nname: mine\ndescription: {words}\n---\n", encoding="utf-8")


async def test_a_directory_of_roles_may_come_change_and_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "MISSING_S", 0.05)
    directory = tmp_path / "roles"
    shelf = WatchedRoleRegistry(directory)
    stop, owner = asyncio.Event(), TaskOwner("test")
    owner.spawn(watch_roles(shelf, stop=stop, clock=SystemClock()), name="watch:roles")
    for words in ("one", "two"):
        put(directory, words)
        await shelf.until(words)
    shutil.rmtree(directory)
    await shelf.until(None)
    put(directory, "three")
    await shelf.until("three")
    stop.set()
    assert await owner.close(5) == []


async def test_roles_nobody_has_and_nobody_asked_for_are_not_read(tmp_path: Path) -> None:
    shelf = LiveRoleRegistry(tmp_path / "roles", tuple)
    await shelf.follow()
    assert shelf.known is None
    asked = await shelf.registry()
    assert asked.all(), "the shipped ones, for whoever asks"
    put(shelf.directory, "mine")
    await shelf.follow()
    assert shelf.known is not asked
    other = LiveRoleRegistry(tmp_path / "roles", tuple)
    await other.follow()
    assert other.known is not None
