"""The home directory: where everything of one daemon lies, and how it is found."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from agentsup.model.errors import ConfigError
from agentsup.model.name import name_problem

HOME_VARIABLE = "AGENTSUP_HOME"


@dataclass(frozen=True, slots=True)
class Home:
    """The paths of one home. Building it touches no file; `create` makes the directories."""

    root: Path

    @classmethod
    def resolve(
        cls, given: str | os.PathLike[str] | None = None, environ: Mapping[str, str] | None = None
    ) -> Self:
        """Find the home: `given` (`--home`), else `AGENTSUP_HOME`, else `~/.agentsup`."""
        environ = os.environ if environ is None else environ
        chosen = os.fspath(given) if given else environ.get(HOME_VARIABLE) or "~/.agentsup"
        return cls(Path(os.path.abspath(os.path.expanduser(chosen))))  # noqa: PTH100, PTH111 - resolve() would follow links

    @property
    def config_toml(self) -> Path:
        """Settings of the daemon and of main."""
        return self.root / "config.toml"

    @property
    def agents_json(self) -> Path:
        """The declared agents."""
        return self.root / "agents.json"

    @property
    def shared_memory(self) -> Path:
        """What every agent knows."""
        return self.root / "SHAREDMEMORY.md"

    @property
    def state_db(self) -> Path:
        """The store."""
        return self.root / "state.db"

    @property
    def backups(self) -> Path:
        """Daily copies of the store and copies of files before a command changed them."""
        return self.root / "backups"

    @property
    def api_token(self) -> Path:
        """The operator's token (0600)."""
        return self.root / "api.token"

    @property
    def daemon_json(self) -> Path:
        """Address and process id of the running daemon, for the CLI."""
        return self.root / "daemon.json"

    @property
    def lock(self) -> Path:
        """Held by the one process of this home."""
        return self.root / "agentsup.lock"

    @property
    def logs(self) -> Path:
        """Log files."""
        return self.root / "logs"

    @property
    def agents(self) -> Path:
        """One directory per agent."""
        return self.root / "agents"

    @property
    def tasks(self) -> Path:
        """One directory per task."""
        return self.root / "tasks"

    @property
    def roles(self) -> Path:
        """Roles (AGENT.md files) that people wrote."""
        return self.root / "roles"

    @property
    def watched(self) -> tuple[Path, ...]:
        """The files whose edits apply live."""
        return (self.agents_json, self.config_toml, self.shared_memory)

    def agent_dir(self, name: str) -> Path:
        """Directory of one agent. Raises `ConfigError` for a name that is no safe path segment."""
        if problem := name_problem(name):
            raise ConfigError(f"{name!r} is not an agent's name: {problem}")
        return self.agents / name

    def workspace(self, name: str) -> Path:
        """Where the agent called `name` works."""
        return self.agent_dir(name) / "workspace"

    def memory(self, name: str) -> Path:
        """The agent's own MEMORY.md."""
        return self.agent_dir(name) / "MEMORY.md"

    def task_dir(self, task_id: str) -> Path:
        """Directory of one task. Raises `ConfigError` for an id that is no safe path segment."""
        if problem := name_problem(task_id):
            raise ConfigError(f"{task_id!r} is not a task id: {problem}")
        return self.tasks / task_id

    def create(self) -> None:
        """Make the home and its directories, readable by their owner alone. Blocks on the disk."""
        for path in (self.root, self.logs, self.agents, self.tasks):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
