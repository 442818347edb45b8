"""The directories of an agent, and the specs of the engines that work in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from agentsup.agents.recovery.breakers import provider_of
from agentsup.agents.recovery.decisions import FALLBACK
from agentsup.agents.recovery.tiers import ModelTier, fallback_spec
from agentsup.model.agent import AgentSpec
from agentsup.model.engine import Engine, EngineCaps, EngineHost, EngineSession, EngineSpec
from agentsup.model.errors import EngineFailed
from agentsup.model.tool import OUR_MCP_SERVER


class EngineMaker(Protocol):
    """Turns the engine fields of a spec into an engine; raises ``EngineFailed`` with the remedy."""

    def make(self, spec: AgentSpec) -> tuple[Engine, Mapping[str, Any]]:
        """The engine, and its options with secrets resolved."""


@dataclass(slots=True, eq=False)
class UnableEngine:
    """Replaces an engine that can't be made, so that its agent runs and reports the reason."""

    name: str
    error: EngineFailed
    caps: EngineCaps = field(default_factory=EngineCaps)

    @classmethod
    def unless_made(cls, spec: AgentSpec, engines: EngineMaker) -> tuple[Engine, Mapping[str, Any]]:
        """The engine of ``spec`` with its options, or one that fails each turn with the reason."""
        try:
            return engines.make(spec)
        except EngineFailed as error:
            return cls(spec.engine, error), {}

    async def open(self, spec: EngineSpec, host: EngineHost) -> EngineSession:
        """Raise the reason."""
        raise self.error.with_traceback(None)


@dataclass(frozen=True, slots=True)
class EngineSetup:
    """The directories of an agent, and how its engine's processes reach the daemon."""

    home: Path
    workspace: Path
    url: Callable[[], str]
    child_env: Mapping[str, str]

    def engine_spec(
        self,
        spec: AgentSpec,
        engine: Engine,
        options: Mapping[str, Any],
        token: str,
        person: str,
    ) -> EngineSpec:
        """The spec of an engine for one turn of that agent on work of ``person``. ``token`` is
        valid during the turn."""
        return EngineSpec(
            engine=engine.name,
            model=spec.model or "",
            provider=spec.provider or "",
            options=dict(options),
            home=str(self.home),
            workspace=str(self.workspace),
            env={
                **self.child_env,
                "AGENTSUP_URL": self.url(),
                "AGENTSUP_TOKEN": token,
                "AGENTSUP_AGENT": spec.name,
            },
            agent=spec.name,
            person=person,
            permission_mode=spec.permission_mode or "",
            reasoning_effort=spec.reasoning_effort or "",
            max_steps=spec.max_steps,
            max_usd=spec.budget.per_turn_usd,
            mcp_servers=self._mcp_servers(spec, token),
        )

    def tier(
        self,
        name: str,
        spec: AgentSpec,
        made: tuple[Engine, Mapping[str, Any]],
        engines: EngineMaker,
    ) -> ModelTier:
        """One of an agent's models; ``made`` is its primary engine with its options. Raises
        ``EngineFailed`` for a fallback that can't be made."""
        engine, options = made
        if name == FALLBACK:
            spec = fallback_spec(spec)
            engine, options = engines.make(spec)
        model = spec.named_model
        provider = provider_of(engine.name, spec.provider or "", model, options)
        return ModelTier(
            name, engine, model, provider, partial(self.engine_spec, spec, engine, options)
        )

    def _mcp_servers(self, spec: AgentSpec, token: str) -> dict[str, dict[str, Any]]:
        """Our tools, for programs that speak MCP. The token is in a header, never in the URL."""
        if not token or spec.tools == ():
            return {}
        headers = {"Authorization": f"Bearer {token}"}
        return {OUR_MCP_SERVER: {"type": "http", "url": f"{self.url()}/mcp", "headers": headers}}
