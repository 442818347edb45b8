"""The processes of tool servers: how many may run in all, and their records in the store."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from agentsup.agents.mcp.failures import ServerUnavailable
from agentsup.agents.workspace.processes import ProcessTable
from agentsup.kit.process_tracker import GroupRecord

MOST = 64


class ServerProcesses:
    """Counts and limits the programs of all agents' servers. ``most`` is read at each start."""

    def __init__(self, most: Callable[[], int] = lambda: MOST) -> None:
        self._most = most
        self.running = 0
        self.refused = 0
        """Starts that were refused since the daemon started."""

    @asynccontextmanager
    async def slot(self, server: str) -> AsyncGenerator[None]:
        """Reserve one program for the time of the block.

        Raises ``ServerUnavailable`` if all are in use. The supervisor opens the server again later.
        """
        most = self._most()
        if self.running >= most:
            self.refused += 1
            raise ServerUnavailable(
                f"{server} is not started: {self.running} programs of tool servers run already, the "
                "most that all agents may have (limits.mcp_processes); it is tried again by itself"
            )
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1

    def gauges(self) -> dict[str, float]:
        """The gauges for ``/metrics``."""
        return {"mcp_programs": self.running, "mcp_programs_refused": self.refused}


class ServerProcessRecords:
    """Records the process groups of a server's program, so that a sweep after a crash finds them.

    Implements ``model.tool.Children``.
    """

    def __init__(self, processes: ProcessTable, agent_id: str, key: str) -> None:
        self._processes, self._agent_id, self._key = processes, agent_id, key

    async def spawned(self, pgid: int, started_ticks: int, argv0: str) -> None:
        await self._processes.record(
            self._agent_id, self._key, GroupRecord(pgid, started_ticks, argv0)
        )

    async def reaped(self, pgid: int) -> None:
        await self._processes.forget(self._key, pgid)
