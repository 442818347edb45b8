"""The input of the doctor's checks, and the result of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Self

from agentsup.cli.connect.client import DaemonClient
from agentsup.cli.connect.failure import CommandFailed
from agentsup.cli.connect.locate import DaemonLocation, holder_of
from agentsup.config import Home, Settings, environment_of, load, parse_settings
from agentsup.model.agent import AgentSpec
from agentsup.model.errors import AgentsupError, ConfigErrors

OK: Final = "ok"
WARN: Final = "warn"
FAIL: Final = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report: what was checked, its result, and what to do about it."""

    name: str
    result: str
    text: str
    advice: str = ""

    @classmethod
    def of(cls, name: str, result: str, text: str, advice: str) -> Self:
        """A check with ``advice`` for the case that it is not well."""
        return cls(name, result, text, "" if result == OK else advice)


@dataclass(frozen=True)
class Examined:
    """A home with its daemon, of which each part is read once. What is wrong in the files reads as
    if it were not there: the check of the configuration reports it."""

    location: DaemonLocation
    environ: Mapping[str, str]

    @classmethod
    def at(cls, location: DaemonLocation) -> Self:
        """With the environment of this shell and of the home."""
        return cls(location, environment_of(location.home))

    @property
    def home(self) -> Home:
        """The home."""
        return self.location.home

    @cached_property
    def settings(self) -> Settings | None:
        """The settings of config.toml; None if it is wrong."""
        try:
            path = self.home.config_toml
            return parse_settings(path.read_bytes() if path.exists() else None).settings
        except (ConfigErrors, OSError):
            return None

    @cached_property
    def specs(self) -> Mapping[str, AgentSpec]:
        """The agents by name; none if a file is wrong."""
        try:
            return load(self.home, environ=self.environ).specs
        except AgentsupError:
            return {}

    @cached_property
    def agents(self) -> list[dict[str, Any]] | None:
        """The agents in the running daemon; None if none answers."""
        found = self.ask("/agents")
        return None if found is None else list(found["agents"])

    @property
    def is_running(self) -> bool:
        """Whether a daemon holds the home."""
        return holder_of(self.home) is not None

    def ask(self, path: str) -> Any | None:
        """The document of the running daemon at ``path``; None if there is none."""
        try:
            answer = DaemonClient.to(self.location).ask("GET", path, timeout_s=5.0)
        except CommandFailed:
            return None
        return answer.document if answer.status == 200 else None
