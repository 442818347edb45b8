"""The programs behind tool servers: how many run in all, where they live, and their record."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from agentsup.agents.mcp.failures import ServerAway
from agentsup.agents.processes import ProcessTable
from agentsup.kit.procgroup import GroupRecord

MOST = 64


class Programs:
    """Counts the programs of all agents' servers. ``most`` is asked at each start."""

    def __init__(self, most: Callable[[], int] = lambda: MOST) -> None:
        self._most = most
        self.running = 0
        self.refused = 0
        """Starts that found no place, since the daemon began."""

    @asynccontextmanager
    async def place(self, server: str) -> AsyncGenerator[None]:
        """A place for one program inside the block. Raises ``ServerAway`` where there is none: a
        server that is opened again and again takes the next one that is free."""
        most = self._most()
        if self.running >= most:
            self.refused += 1
            raise ServerAway(
                f"{server} is not started: {self.running} programs of tool servers run already, the "
                "most that all agents may have (limits.mcp_processes); it is tried again by itself"
            )
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1

    def gauges(self) -> dict[str, float]:
        """For ``/metrics``."""
        return {"mcp_programs": self.running, "mcp_programs_refused": self.refused}


class Book:
    """Records the groups of a server's program for the sweep. Implements ``model.tool.Children``."""

    def __init__(self, processes: ProcessTable, agent_id: str, key: str) -> None:
        self._processes, self._agent_id, self._key = processes, agent_id, key

    async def spawned(self, pgid: int, started_ticks: int, argv0: str) -> None:
        await self._processes.record(
            self._agent_id, self._key, GroupRecord(pgid, started_ticks, argv0)
        )

    async def reaped(self, pgid: int) -> None:
        await self._processes.forget(self._key, pgid)
