"""Services that the tool servers of all agents share, and the folders of one agent's servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agentsup.agents.mcp.programs import ServerProcesses
from agentsup.agents.workspace.processes import ProcessTable
from agentsup.engines.process import Fencing
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.kit.pool import BoundedPool
from agentsup.model.tool import Tool


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

    def home_of(self, server: str) -> Path:
        """The home directory of the server's program, beside the workspace."""
        return self.workspace.parent / "mcp" / server
