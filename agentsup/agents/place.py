"""Where an agent lives, and what an engine that works there is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from agentsup.agents.recovery.breaker import provider_of
from agentsup.agents.recovery.tiers import FALLBACK, Tier, fallback_spec
from agentsup.model.agent import AgentSpec
from agentsup.model.engine import Engine, EngineSpec
from agentsup.model.tool import OUR_MCP_SERVER


class EngineMaker(Protocol):
    """Turns the engine fields of a spec into an engine; raises ``EngineFailed`` with the remedy."""

    def make(self, spec: AgentSpec) -> tuple[Engine, Mapping[str, Any]]:
        """The engine, and its options with secrets resolved."""


@dataclass(frozen=True, slots=True)
class StackPlace:
    """Where an agent lives, and how its engine's children reach the daemon."""

    home: Path
    workspace: Path
    url: Callable[[], str]
    child_env: Callable[[], dict[str, str]]

    def engine_spec(
        self,
        spec: AgentSpec,
        engine: Engine,
        options: Mapping[str, Any],
        token: str,
        person: str,
    ) -> EngineSpec:
        """What an engine gets for one turn of that agent here, in the work of ``person``; ``token``
        dies with it."""
        return EngineSpec(
            engine=engine.name,
            model=spec.model or "",
            provider=spec.provider or "",
            options=dict(options),
            home=str(self.home),
            workspace=str(self.workspace),
            env={
                **self.child_env(),
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
    ) -> Tier:
        """One of an agent's models; ``made`` is its primary engine with its options. Raises
        ``EngineFailed`` for a fallback that can't be made."""
        engine, options = made
        if name == FALLBACK:
            spec = fallback_spec(spec)
            engine, options = engines.make(spec)
        model = spec.model or ""
        provider = provider_of(engine.name, spec.provider or "", model, options)
        return Tier(name, engine, model, provider, partial(self.engine_spec, spec, engine, options))

    def _mcp_servers(self, spec: AgentSpec, token: str) -> dict[str, dict[str, Any]]:
        """Our tools, for programs that speak MCP; the token stands in a header, in no address."""
        if not token or spec.tools == ():
            return {}
        headers = {"Authorization": f"Bearer {token}"}
        return {OUR_MCP_SERVER: {"type": "http", "url": f"{self.url()}/mcp", "headers": headers}}
