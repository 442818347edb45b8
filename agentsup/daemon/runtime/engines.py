"""From an agent's spec to its engine: the choice for ``auto``, resolved options, the models of its
provider, and the fence of its programs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentsup.config import (
    FenceSettings,
    bypass_problem,
    fence_paths,
    resolve_options,
)
from agentsup.daemon.runtime.boot_context import BootContext
from agentsup.engines import NotConfigured, Prices
from agentsup.engines.process import (
    Fencing,
    ProcessLauncher,
    ProcessSlotLimits,
    coding_agent_folders,
)
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
from agentsup.model.control import ModelPrice, OfferedModels
from agentsup.model.engine import Engine, EngineSpec
from agentsup.model.errors import ConfigError, Conflict, EngineFailed

if TYPE_CHECKING:
    from agentsup.engines.providers import ProviderClient

_log = get_logger(__name__)
_LIST_S = 6.0
"""Seconds that a person waits for a list in a chat."""


def engines_of(boot_context: BootContext) -> EngineRegistry:
    """The engines of this daemon. The limits of their processes are the current settings."""
    current = boot_context.current

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
        fencing=fencing_of(boot_context),
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
        found = unable(_engine_spec(spec, name, options), self.environ)
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
        return _engine_spec(spec, LLM, self._options(spec))

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
        return _engine_spec(spec, engine, options)

    def _options(self, spec: AgentSpec) -> dict[str, Any]:
        try:
            return resolve_options(spec.engine_options, base=self.home, environ=self.environ)
        except ConfigError as error:
            raise NotConfigured(str(error)) from error


def _engine_spec(spec: AgentSpec, engine: str, options: dict[str, Any]) -> EngineSpec:
    return EngineSpec(
        engine=engine, model=spec.model or "", provider=spec.provider or "", options=options
    )


@dataclass(frozen=True, slots=True)
class ProviderModels:
    """Asks providers with the keys of agents. The models of coding agents are known to them alone."""

    engines: DaemonEngines
    prices: Prices = field(default_factory=Prices)

    async def offered(self, spec: AgentSpec) -> OfferedModels:
        """The models of the provider of ``spec``. Raises ``Conflict`` and ``EngineFailed``."""
        client, _ = self._client(spec)
        return OfferedModels(client.address, await client.models(limit_s=_LIST_S))

    async def check(self, spec: AgentSpec, model: str) -> str:
        """Raise ``Conflict``, with names like it, if the provider does not know ``model``. Returns
        why that could not be found out, or an empty string."""
        try:
            client, bare = self._client(replace(spec, model=model))
            known = await client.models(limit_s=_LIST_S)
        except Conflict:
            return ""
        except EngineFailed as error:
            _log.warning("model not checked", agent=spec.name, model=model, reason=error.message)
            return error.message
        from agentsup.engines.providers import has_model, unknown_model  # noqa: PLC0415 - see _client

        if known and not has_model(bare, known):
            refusal = unknown_model(bare, known, client.address).message
            raise Conflict(
                f"model of {spec.name} is not changed: {refusal}", agent=spec.name, field="model"
            )
        return ""

    async def prices_of(
        self, spec: AgentSpec, models: Sequence[str]
    ) -> tuple[ModelPrice | None, ...]:
        """The prices of these models at the provider of ``spec``; None where one is not known."""
        try:
            provider = self._client(spec)[0].provider
        except (Conflict, EngineFailed):
            return (None,) * len(models)
        if not provider.prices:
            free = None if provider.name == "compatible" else ModelPrice(0.0, 0.0)
            return (free,) * len(models)
        found = [await self.prices.of(provider.prices, each) for each in models]
        return tuple(ModelPrice(each.input, each.output) if each else None for each in found)

    # The client is loaded by its first use: with it comes what most homes never need.
    def _client(self, spec: AgentSpec) -> tuple[ProviderClient, str]:
        from agentsup.engines.providers import ProviderClient  # noqa: PLC0415 - see above

        return ProviderClient.by_settings(self.engines.of_provider(spec), self.engines.environ)


def fencing_of(boot_context: BootContext) -> Callable[[], Fencing]:
    """The fence of this daemon, by the current configuration."""
    home, environ = boot_context.home.root, boot_context.environ
    return lambda: fencing_by(home, environ, boot_context.current().settings.fence)


def fencing_by(home: Path, environ: Mapping[str, str], settings: FenceSettings) -> Fencing:
    """The fence by ``settings``.

    Closed are ``home``, which holds all secrets and the data of other agents, other locations of
    keys and sign-ins, and the paths that ``settings`` name. Outside their own part of the home
    programs write temporary files, and where ``settings`` let them.
    """
    if settings.mode == "off":
        return Fencing()
    keys = fence_paths.key_folders(environ, os.getuid())
    return Fencing(
        (str(home), *keys, *coding_agent_folders(environ), *settings.paths(environ)),
        is_required=settings.mode == "required",
        writable=settings.writable_paths(environ),
        sockets=(*fence_paths.NAME_SERVICES, *settings.socket_paths(environ)),
    )
