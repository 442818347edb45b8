"""The engines of the agents: in the running daemon, and by the environment of this shell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from agentsup.cli.connect.client import DaemonClient
from agentsup.cli.connect.failure import CommandFailed
from agentsup.cli.connect.locate import DaemonLocation
from agentsup.cli.doctor.check import OK, WARN, Check
from agentsup.config import Home, load
from agentsup.daemon.runtime import DaemonEngines
from agentsup.engines.registry import EngineRegistry
from agentsup.model.agent import MAIN
from agentsup.model.errors import AgentsupError


@dataclass(frozen=True, slots=True)
class EngineCheck:
    """An engine, why ``auto`` chose it (empty if an entry names it), and why it is worse than what
    the files name (empty if it is not)."""

    name: str
    reason: str
    problem: str = ""

    @property
    def result(self) -> str:
        """A warning if it is worse than what the files name."""
        return WARN if self.problem else OK

    def is_like(self, other: EngineCheck) -> bool:
        """Whether it is the same engine for the same reason, which the daemon may tell with more."""
        if self.name == other.name and self.problem and other.problem:
            return self.problem in other.problem
        return self == other

    def __str__(self) -> str:
        return ": ".join(each for each in (self.name, self.problem or self.reason) if each)


def check_engines(location: DaemonLocation, environ: Mapping[str, str]) -> Iterator[Check]:
    """The engines in the running daemon, and main's by this shell if that is another one. If no
    daemon runs: main's by this shell alone."""
    here, there = _here(location.home, environ), _there(location)
    if there is None:
        if here is not None:
            yield Check("engine", here.result, f"main uses {here}")
        return
    for engine, agents in there.items():
        verb = "uses" if len(agents) == 1 else "use"
        yield Check("engine", engine.result, f"{', '.join(agents)} {verb} {engine}")
        if MAIN in agents and here is not None and not here.is_like(engine):
            yield Check(
                "engine",
                WARN,
                f"in the daemon main uses {engine.name}; in one that is started from this shell it "
                f"would use {here}",
                "put the variables that it needs into the file environment of the home, then "
                f"`{location.command('restart')}`",
            )


def _here(home: Home, environ: Mapping[str, str]) -> EngineCheck | None:
    """Main's engine in a daemon started from this shell; None if the files are wrong, which the
    check of the configuration reports."""
    try:
        spec = load(home, environ=environ).specs[MAIN]
        engines = DaemonEngines(EngineRegistry({}), home.root, environ)
        return EngineCheck(*engines.choice(spec), engines.shortfall(spec))
    except AgentsupError:
        return None


def _there(location: DaemonLocation) -> dict[EngineCheck, list[str]] | None:
    """The agents by their engine in the running daemon; None if no daemon answers."""
    try:
        answer = DaemonClient.to(location).ask("GET", "/agents", timeout_s=5.0)
    except CommandFailed:
        return None
    if answer.status != 200:
        return None
    found: dict[EngineCheck, list[str]] = {}
    for one in answer.document["agents"]:
        engine = EngineCheck(one["engine"], one["engine_reason"], one["engine_problem"])
        found.setdefault(engine, []).append(one["name"])
    return found
