"""P3: a workspace that does not answer holds up neither the listener nor another agent's files."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agentsup.api.http import connections
from agentsup.api.http.connections import OWNER, UploadSweeps
from agentsup.channels.core.files import FOLDER, InboxFolder
from agentsup.channels.core.files.inbox_files import sweep as real_sweep
from agentsup.kit.pool import BoundedPool
from agentsup.kit.tasks import TaskOwner
from tests.support.bound import BOUND_S

DEAD = [f"dead{number}" for number in range(6)]


async def test_each_agent_is_swept_beside_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()

    def sweep(workspace: Path, *, owner: str) -> int:
        if workspace.parent.name in DEAD:
            over.wait()
        return real_sweep(workspace, owner=owner)

    monkeypatch.setattr("agentsup.channels.core.files.inbox_files.sweep", sweep)
    monkeypatch.setattr(connections, "_SWEEP_S", 0.05)
    workspace = tmp_path / "well" / "workspace"
    workspace.mkdir(parents=True)
    half = InboxFolder(workspace, owner=OWNER, token="t")
    half.out.close()
    pool, work = BoundedPool("files"), TaskOwner("test")
    web = SimpleNamespace(workspace=lambda name: tmp_path / name / "workspace", files=pool)
    deps = SimpleNamespace(web=web, directory=SimpleNamespace(names=lambda: (*DEAD, "well")))
    swept = UploadSweeps(work)
    try:
        swept.start(cast(Any, deps))
        await swept.over("well")
        assert list((workspace / FOLDER).iterdir()) == []
        async with asyncio.timeout(BOUND_S):
            for name in (*DEAD, "another"):
                await swept.over(name)
        assert set(pool.stuck) == set(DEAD)
        assert await pool.run(lambda: 1, key="well") == 1
    finally:
        over.set()
        half.close()
        await work.close(1.0)
    async with asyncio.timeout(BOUND_S):
        while pool.stuck:
            await asyncio.get_running_loop().run_in_executor(None, lambda: None)
