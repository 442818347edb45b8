"""The home directory: the paths of one daemon's files, and how the home is found."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from agentsup.model.errors import ConfigError
from agentsup.model.name import name_problem

HOME_VARIABLE = "AGENTSUP_HOME"
TEMPORARY_MARK = ".temporary"
"""A file that marks a temporary home: the home is removed after its starter has ended."""


class _Below:
    """A path in the home, by its name there."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, home: Home, owner: type[Home]) -> Path:
        return home.root / self._name


@dataclass(frozen=True, slots=True)
class Home:
    """The paths of one home. Building it accesses no file; ``create`` makes the directories."""

    root: Path

    @classmethod
    def resolve(
        cls, given: str | os.PathLike[str] | None = None, environ: Mapping[str, str] | None = None
    ) -> Self:
        """Find the home: ``given`` (``--home``), else ``AGENTSUP_HOME``, else ``~/.agentsup``."""
        environ = os.environ if environ is None else environ
        chosen = os.fspath(given) if given else environ.get(HOME_VARIABLE) or "~/.agentsup"
        return cls(Path(os.path.abspath(os.path.expanduser(chosen))))  # noqa: PTH100, PTH111 - resolve() would follow links

    config_toml = _Below("config.toml")
    """Settings of the daemon and of main."""
    agents_json = _Below("agents.json")
    """The declared agents."""
    applied = _Below("applied")
    """Copies of config.toml and agents.json as they were applied last, under the same names."""
    environment = _Below("environment")
    """Variables for ``env:NAME`` beside those of the process (0600)."""
    secrets = _Below("secrets")
    """Keys and tokens, one in each file, that agents.json and config.toml name as ``file:``."""
    shared_memory = _Below("SHAREDMEMORY.md")
    """The shared memory of all agents."""
    state_db = _Below("state.db")
    """The store."""
    backups = _Below("backups")
    """Daily backups of the store, and copies of files from before a command changed them."""
    api_token = _Below("api.token")
    """The operator's token (0600)."""
    daemon_json = _Below("daemon.json")
    """Address and process id of the running daemon, for the CLI."""
    lock = _Below("agentsup.lock")
    """The lock file, held by the one daemon process of this home."""
    keeper = _Below("agentsup.keeper")
    """The state file of the small parent that ``up`` leaves."""
    logs = _Below("logs")
    """Log files."""
    agents = _Below("agents")
    """One directory per agent."""
    tasks = _Below("tasks")
    """One directory per task."""
    roles = _Below("roles")
    """Roles (AGENT.md files) that people wrote."""

    @property
    def watched(self) -> tuple[Path, ...]:
        """The files whose edits apply live."""
        return (self.agents_json, self.config_toml, self.shared_memory)

    def agent_dir(self, name: str) -> Path:
        """The directory of one agent. Raises ``ConfigError`` for a name that is no safe path
        segment."""
        if problem := name_problem(name):
            raise ConfigError(f"{name!r} is not an agent's name: {problem}")
        return self.agents / name

    def workspace(self, name: str) -> Path:
        """The workspace of the agent called ``name``."""
        return self.agent_dir(name) / "workspace"

    def memory(self, name: str) -> Path:
        """The agent's own MEMORY.md."""
        return self.agent_dir(name) / "MEMORY.md"

    def task_dir(self, task_id: str) -> Path:
        """The directory of one task. Raises ``ConfigError`` for an id that is no safe path."""
        if problem := name_problem(task_id):
            raise ConfigError(f"{task_id!r} is not a task id: {problem}")
        return self.tasks / task_id

    def create(self) -> None:
        """Make the home and its directories, readable only by their owner. Blocks on the disk."""
        for path in (self.root, self.logs, self.agents, self.tasks):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)


class AppliedHome(Home):
    """A home whose declared files are the copies that were applied last."""

    config_toml = _Below("applied/config.toml")
    agents_json = _Below("applied/agents.json")
