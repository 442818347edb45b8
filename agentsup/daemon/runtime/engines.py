"""From an agent's spec to its engine: the choice for ``auto``, and resolved options."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentsup.config import ConfigSnapshot, bypass_problem, resolve_options
from agentsup.daemon.runtime.boot_context import BootContext
from agentsup.daemon.runtime.fencing import fencing_of
from agentsup.engines import NotConfigured
from agentsup.engines.process import ProcessLauncher, ProcessSlotLimits
from agentsup.engines.registry import (
    AUTO,
    LLM,
    EngineRegistry,
    best_available,
    default_registry,
    needs_users_home,
    unable,
    why_ignored,
)
from agentsup.kit.log import get_logger
from agentsup.model.agent import OFFLINE, AgentSpec
from agentsup.model.engine import Engine, EngineSpec
from agentsup.model.errors import ConfigError, Conflict, EngineFailed

_log = get_logger(__name__)


def engines_of(boot_context: BootContext, current: Callable[[], ConfigSnapshot]) -> EngineRegistry:
    """The engines of this daemon. The limits of their processes are the current settings."""

    def slot_limits() -> ProcessSlotLimits:
        limits = current().settings.limits
        return ProcessSlotLimits(
            total=limits.processes,
            per_agent=limits.processes_per_agent,
            paused=limits.held_processes,
        )

    children = ProcessLauncher(
        boot_context.clock,
        limits=slot_limits,
        memory_mb=lambda: current().settings.limits.process_memory_mb,
        redact=boot_context.redactor.text,
        fencing=fencing_of(boot_context.home.root, boot_context.environ, current),
        files=boot_context.files,
    )
    return default_registry(boot_context.clock, boot_context.environ, children)


@dataclass(frozen=True, slots=True, eq=False)
class DaemonEngines:
    """Implements ``agents.stack.EngineMaker``."""

    registry: EngineRegistry
    home: Path
    environ: Mapping[str, str]

    def choice(self, spec: AgentSpec) -> tuple[str, str]:
        """The name of the engine for ``spec``, and for ``auto`` the reason in one line."""
        if spec.engine != AUTO:
            return spec.engine, ""
        try:
            self._options(spec)
        except EngineFailed as error:  # such as for the file of a key that is gone
            return LLM, error.message
        return best_available(self.environ, self._wanted(spec, AUTO))

    def refusal(self, spec: AgentSpec, field: str) -> str:
        """Why ``field`` of ``spec`` would have no effect, or would keep the engine from working.

        Empty if no reason is known. The value need not be in effect yet.
        """
        name = self.choice(spec)[0]
        wanted = self._wanted(spec, name)
        decides = field == "engine" or (field == "model" and spec.engine == AUTO)
        if decides and (problem := unable(wanted, self.environ)):
            return problem
        if field in ("engine", "permission_mode") and (problem := self.problem(spec)):
            return problem
        is_open = spec.engine == AUTO and field == "provider"  # it may bring another engine
        return "" if is_open else why_ignored(field, wanted)

    def problem(self, spec: AgentSpec) -> str:
        """Why the engine can't start as declared; empty if no reason is known."""
        return bypass_problem(self.choice(spec)[0], spec.permission_mode or "", self.environ)

    def shortfall(self, spec: AgentSpec) -> str:
        """Why the engine is worse than what the files name, with the cure; empty if it is not, as
        far as can be known without a request.

        Blocks for a look at the PATH.
        """
        name, why = self.choice(spec)
        if spec.engine == AUTO and (name == OFFLINE or (spec.model and "can't use model" in why)):
            return why
        if problem := self.problem(spec):
            return problem
        try:
            options = self._options(spec)
        except EngineFailed as error:
            return error.message
        wanted = EngineSpec(
            engine=name, model=spec.model or "", provider=spec.provider or "", options=options
        )
        found = unable(wanted, self.environ)
        return why if found and why.startswith(found) else found  # it names what is near

    async def log_shortfalls(self, specs: Iterable[AgentSpec]) -> None:
        """Log which agents have no model that can answer, and why; each reason once."""
        names: dict[str, list[str]] = {}
        for spec in specs:
            if problem := await asyncio.to_thread(self.shortfall, spec):
                names.setdefault(problem, []).append(spec.name)
        for problem, agents in names.items():
            _log.warning("no model answers", agents=agents, reason=problem)

    def of_provider(self, spec: AgentSpec) -> EngineSpec:
        """The spec of the engine llm for ``spec``, which need not name a model yet.

        Raises ``Conflict`` for agents of other engines, and ``EngineFailed`` for a secret that can't
        be resolved.
        """
        name, _ = self.choice(spec)
        if name != LLM and (spec.engine != AUTO or name != OFFLINE):
            raise Conflict(
                f"{spec.name} thinks with the engine {name}, which chooses among models of its own",
                agent=spec.name,
            )
        return EngineSpec(
            engine=LLM,
            model=spec.model or "",
            provider=spec.provider or "",
            options=self._options(spec),
        )

    def make(self, spec: AgentSpec) -> tuple[Engine, Mapping[str, Any]]:
        """The engine and its options with secrets resolved.

        Raises ``EngineFailed`` for a secret that can't be resolved or an engine that is not
        installed.
        """
        name, _ = self.choice(spec)
        options = self._options(spec)
        if spec.engine == AUTO and needs_users_home(name, self.environ):
            # It was chosen because the user is signed in, and an agent's own home lacks that
            # sign-in.
            options = {"home": "user", **options}
        return self.registry.get(name), options

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
            return resolve_options(spec.engine_options, base=self.home, environ=self.environ)
        except ConfigError as error:
            raise NotConfigured(str(error)) from error
