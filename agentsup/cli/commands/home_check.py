"""All that is wrong in the files of a home, as ``agents validate`` reports it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from agentsup.agents.roles import read_roles
from agentsup.cli.commands.send import NOTHING_NAMED
from agentsup.config import (
    ConfigFinding,
    Home,
    LocateField,
    Severity,
    advice,
    finding_of,
    read_environment,
    validate,
)
from agentsup.daemon.runtime import DaemonEngines, ScriptCheck
from agentsup.engines.registry import EngineRegistry
from agentsup.model.agent import AgentSpec
from agentsup.model.errors import WHOLE_FILE


def check_home(home: Home) -> list[ConfigFinding]:
    """Every finding about agents.json, config.toml, scripts, roles and engines. Blocks."""
    environ = read_environment(home).beside(os.environ)
    checks = (ScriptCheck(), _EngineFindings(environ), partial(advice, environ=environ))
    found = validate(home, environ, checks=checks)
    name = home.agents_json.name
    if not home.agents_json.exists() and not any(one.path == name for one in found):
        missing = "there is no such file, so main is the only agent"
        how = "`agentsup agents add NAME` makes one, `agentsup init` one with examples"
        found.append(ConfigFinding(Severity.WARNING, missing, name, field=WHOLE_FILE, hint=how))
    return [*found, *map(finding_of, read_roles(home.roles).findings)]


class _EngineFindings:
    """Finds why engines would be worse than what the files name, each reason once for each line."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._known: set[ConfigFinding] = set()

    def __call__(self, spec: AgentSpec, locate: LocateField, home: Path) -> Iterator[ConfigFinding]:
        """Implements ``config.snapshot.Check``."""
        problem = DaemonEngines(EngineRegistry({}), home, self._environ).shortfall(spec)
        if not problem or problem.startswith(NOTHING_NAMED):
            return
        found = locate(spec.name, ("model" if spec.model else "engine",)).finding(problem)
        if found not in self._known:
            self._known.add(found)
            yield found
