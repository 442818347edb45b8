"""Services and records that the tool servers of all agents share, and the document of a server that
is not opened."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentsup.agents.mcp.failures import ServerUnavailable
from agentsup.agents.mcp.offered import clean
from agentsup.agents.workspace.processes import ProcessTable
from agentsup.config import McpServer, OpenedServer
from agentsup.engines.process import (
    Fencing,
    ProcessLimits,
    Program,
    ProgramHome,
    home_variables,
)
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.kit.pool import BoundedPool
from agentsup.kit.process_tracker import GroupRecord
from agentsup.model.engine import EngineSpec
from agentsup.model.tool import Tool

MOST = 64
_LIMITS = ProcessLimits(line_bytes=4 * 1024 * 1024, line_values=100_000)


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


@dataclass(frozen=True, slots=True)
class McpServices:
    """Services that the tool servers of all agents share."""

    clock: Clock
    entropy: Entropy
    processes: ProcessTable
    home: Path
    """The directory to which ``file:`` references are relative."""
    environ: Mapping[str, str]
    child_env: Callable[[], dict[str, str]]
    redact: Callable[[str], str] = str
    memory_mb: Callable[[], int] = lambda: 4096
    after_imports: Callable[[], None] = lambda: None
    fencing: Callable[[], Fencing] = Fencing
    programs: ServerProcesses = field(default_factory=ServerProcesses)
    """The count of server programs over all agents."""
    files: BoundedPool = field(default_factory=lambda: BoundedPool("files"))
    """The pool in which homes of programs are prepared."""
    in_use: dict[str, Callable[[], tuple[Tool, ...]]] = field(default_factory=dict)
    """The tools of the agents that have servers, by agent id: few agents have any."""


@dataclass(frozen=True, slots=True)
class ServerLocation:
    """The agent that has a server, and the directory in which its program works."""

    agent_id: str
    agent: str
    workspace: Path

    @property
    def spec(self) -> EngineSpec:
        """The facts of the agent that count for a program."""
        return EngineSpec("mcp", workspace=str(self.workspace), agent=self.agent)

    def program(self, declared: McpServer, opened: OpenedServer, env: Mapping[str, str]) -> Program:
        """The program of a server, whose home is beside the workspace."""
        home = self.workspace.parent / "mcp" / declared.name
        return Program(
            [declared.command, *declared.args],
            {**env, **home_variables(home), **opened.env},
            ProgramHome(home),
            secrets=opened.secrets,
            limits=_LIMITS,
            remedy=declared.remedy,
            cwd=declared.cwd,
        )


_ERROR_LINE_CHARS = 600


def idle(server: McpServer, state: str, since_at: int | None) -> dict[str, Any]:
    """The document of a server that is not opened."""
    return {
        "name": server.name,
        "type": server.kind,
        "target": server.shown,
        "state": state,
        "since": since_at,
        "tools": [],
        "error": "",
        "next_retry_at": None,
        "restarts": 0,
        "notes": [],
    }


def error_line(text: str) -> str:
    """An error in one line, without its middle if it is long."""
    line, half = " ".join(clean(text).split()), _ERROR_LINE_CHARS // 2
    return line if len(line) <= 2 * half else f"{line[:half]} … {line[-half:]}"
