"""Files from people that an earlier life of the daemon left unfinished are removed."""

from __future__ import annotations

import asyncio
from typing import Final

from agentsup.api.ports import ApiDeps
from agentsup.channels.received import swept
from agentsup.kit.tasks import TaskOwner

OWNER: Final = "web"
"""Whose unfinished files they are, among those of all channels."""
_AT_ONCE: Final = 4
"""Less than the pool has threads."""
_LIMIT_S: Final = 2.0


class UploadSweeps:
    """Removes the halves of files that were on their way when an earlier life was killed: agents
    side by side, each before anybody can send it one. What came whole has another name."""

    def __init__(self, work: TaskOwner) -> None:
        self._work = work
        self._agents: dict[str, asyncio.Task[None]] = {}
        self._side_by_side = asyncio.Semaphore(_AT_ONCE)

    def start(self, deps: ApiDeps) -> None:
        """Begin; a workspace that does not answer holds up no other for long."""
        for name in deps.directory.names():
            sweep = self._sweep(deps, name)
            self._agents[name] = self._work.spawn(sweep, name=f"sweep:{name}")

    async def over(self, agent: str) -> None:
        """Wait until that agent's is done."""
        if (task := self._agents.get(agent)) is not None:
            await asyncio.wait({task})

    async def _sweep(self, deps: ApiDeps, name: str) -> None:
        async with self._side_by_side:
            workspace, files = deps.web.workspace(name), deps.web.files
            await swept(workspace, owner=OWNER, files=files, limit_s=_LIMIT_S)
        del self._agents[name]
