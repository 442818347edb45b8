"""Removes incomplete uploads that an earlier run of the daemon left behind."""

from __future__ import annotations

import asyncio
from typing import Final

from agentsup.api.http.dependencies import ApiDependencies
from agentsup.channels.core.files import sweep_inbox
from agentsup.kit.tasks import TaskOwner

OWNER: Final = "web"
"""The channel whose incomplete files are removed; other channels remove their own."""
_AT_ONCE: Final = 4
"""Sweeps at the same time; fewer than the pool has threads."""
_LIMIT_S: Final = 2.0


class UploadSweeps:
    """Removes uploads that were incomplete when an earlier run was killed: several agents at the
    same time, each before its first upload. A complete file has another name."""

    def __init__(self, work: TaskOwner) -> None:
        self._work = work
        self._agents: dict[str, asyncio.Task[None]] = {}
        self._side_by_side = asyncio.Semaphore(_AT_ONCE)

    def start(self, deps: ApiDependencies) -> None:
        """Start. A sweep may take 2 s, so a workspace that does not answer delays others little."""
        for name in deps.directory.names():
            sweep = self._sweep(deps, name)
            self._agents[name] = self._work.spawn(sweep, name=f"sweep:{name}")

    async def over(self, agent: str) -> None:
        """Wait until the sweep of that agent is done."""
        if (task := self._agents.get(agent)) is not None:
            await asyncio.wait({task})

    async def _sweep(self, deps: ApiDependencies, name: str) -> None:
        async with self._side_by_side:
            workspace, files = deps.web.workspace(name), deps.web.files
            await sweep_inbox(workspace, owner=OWNER, files=files, limit_s=_LIMIT_S)
        del self._agents[name]
