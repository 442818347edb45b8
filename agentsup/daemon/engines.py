"""From an agent's spec to its engine: the best one found for ``auto``, options with secrets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from agentsup.config.crosscheck import bypass_problem
from agentsup.config.secrets import resolve_options
from agentsup.config.snapshot import ConfigSnapshot
from agentsup.daemon.fencing import fencing_of
from agentsup.daemon.ground import Ground
from agentsup.engines.child import BerthLimits, ChildManager
from agentsup.engines.reach import unable, unheard
from agentsup.engines.registry import (
    AUTO,
    EngineRegistry,
    best_available,
    default_registry,
    needs_users_home,
)
from agentsup.model.agent import OFFLINE, AgentSpec
from agentsup.model.engine import Engine, EngineSpec
from agentsup.model.errors import ConfigError, EngineFailed


def engines_of(ground: Ground, current: Callable[[], ConfigSnapshot]) -> EngineRegistry:
    """The engines of this daemon; their programs keep to the limits as they are set now."""

    def berths() -> BerthLimits:
        limits = current().settings.limits
        return BerthLimits(
            total=limits.processes,
            per_agent=limits.processes_per_agent,
            held=limits.held_processes,
        )

    children = ChildManager(
        ground.clock,
        limits=berths,
        memory_mb=lambda: current().settings.limits.process_memory_mb,
        redact=ground.redactor.text,
        fencing=fencing_of(ground.home.root, ground.environ, current),
        files=ground.files,
    )
    return default_registry(ground.clock, ground.environ, children)


class DaemonEngines:
    """Implements ``agents.stack.EngineMaker``."""

    def __init__(self, registry: EngineRegistry, home: Path, environ: Mapping[str, str]) -> None:
        self._registry = registry
        self._home = home
        self._environ = environ

    def choice(self, spec: AgentSpec) -> tuple[str, str]:
        """The engine's name for ``spec``, and for ``auto`` one plain line saying why."""
        if spec.engine != AUTO:
            return spec.engine, ""
        return best_available(self._environ, self._wanted(spec, AUTO))

    def refusal(self, spec: AgentSpec, field: str) -> str:
        """Why ``field`` of ``spec`` would have no effect, or keep its engine from working; empty where
        nothing is known. The value need not be in effect yet."""
        name, why = self.choice(spec)
        if spec.engine == AUTO and field in ("model", "reasoning_effort") and name == OFFLINE:
            return why
        wanted = self._wanted(spec, name)
        if field == "engine" and (problem := unable(wanted, self._environ)):
            return problem
        if field in ("engine", "permission_mode") and (problem := self.problem(spec)):
            return problem
        is_open = spec.engine == AUTO and field == "provider"  # it may bring another engine
        return "" if is_open else unheard(field, wanted)

    def problem(self, spec: AgentSpec) -> str:
        """Why its engine can't start as it is declared; empty where nothing is known."""
        return bypass_problem(self.choice(spec)[0], spec.permission_mode or "", self._environ)

    def make(self, spec: AgentSpec) -> tuple[Engine, Mapping[str, Any]]:
        """Raises ``EngineFailed`` for a secret that can't be resolved or an engine not installed."""
        options = self._options(spec)
        name, _ = self.choice(spec)
        if spec.engine == AUTO and needs_users_home(name, self._environ):
            # It was chosen for this sign-in, which a home of the agent's own would not have.
            options = {"home": "user", **options}
        return self._registry.get(name), options

    def _wanted(self, spec: AgentSpec, engine: str) -> EngineSpec:
        try:
            options = self._options(spec)
        except EngineFailed:
            options = {}
        return EngineSpec(
            engine=engine, model=spec.model or "", provider=spec.provider or "", options=options
        )

    def _options(self, spec: AgentSpec) -> dict[str, Any]:
        try:
            return resolve_options(spec.engine_options, base=self._home, environ=self._environ)
        except ConfigError as error:
            raise EngineFailed(f"engine_options of {spec.name}: {error}") from error
