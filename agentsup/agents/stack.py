"""AgentStack: an agent in its running form, one supervised child.

A stack owns nothing that must survive it: the mailbox, transcript and journal are in the store, so
a crash costs a rebuild and no message (P1, P3). Live fields of the spec are swapped in place;
``model.agent.FIELDS`` says which those are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from agentsup.agents import prompt
from agentsup.agents.knowledge import SharedKnowledge
from agentsup.agents.mcp.server import McpServices, ServerPlace
from agentsup.agents.mcp.servers import AgentServers
from agentsup.agents.recovery.breaker import provider_of
from agentsup.agents.recovery.tiers import FALLBACK, PRIMARY, Tier, fallback_spec
from agentsup.agents.turn import TurnHandler
from agentsup.agents.turn_services import TurnServices
from agentsup.mailbox.bus import AgentDirectory, Asker
from agentsup.mailbox.pump import EXIT_DRAIN_S, Handler, Pump, Work
from agentsup.model.agent import AgentSpec
from agentsup.model.engine import Engine, EngineSpec
from agentsup.model.ids import AgentId, InstanceId
from agentsup.model.message import Lane, Message
from agentsup.model.tool import OUR_MCP_SERVER, ToolRegistry


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


class AgentStack:
    """One life of one agent. Implements ``surroundings.Surroundings``."""

    def __init__(
        self,
        *,
        spec: AgentSpec,
        agent_id: AgentId,
        instance_id: InstanceId,
        place: StackPlace,
        services: TurnServices,
        engines: EngineMaker,
        directory: AgentDirectory,
        knowledge: SharedKnowledge,
        handler: Handler | None = None,
        drain_s: float = EXIT_DRAIN_S,
        mcp: McpServices | None = None,
    ) -> None:
        """``handler`` replaces the engine-driven one, for a host that works on messages itself;
        ``drain_s`` bounds the turns beside one that asked for the stack's end;
        without ``mcp`` the agent's own tool servers are not opened.

        Raises ``EngineFailed`` when the engine can't be made.
        """
        self._spec = spec
        self.agent_id = agent_id
        self.instance_id = instance_id
        self._place = place
        self._services = services
        self._directory = directory
        self._knowledge = knowledge
        self._engines = engines
        self._engine, self._options = engines.make(spec)
        self.servers: AgentServers | None = None
        if mcp is not None:
            self.servers = AgentServers(ServerPlace(agent_id, spec.name, place.workspace), mcp)
        self._pump = Pump(
            mailbox=services.mailbox,
            database=services.database,
            clock=services.clock,
            agent_id=agent_id,
            instance_id=instance_id,
            slots=_lanes(spec),
            handler=handler or TurnHandler(services, agent_id, self),
            exit_drain_s=drain_s,
        )

    # -- life --------------------------------------------------------------------------------------

    async def run(self, ready: Callable[[], None], draining: asyncio.Event) -> None:
        """Work on the agent's mailbox until drained. Raises what ends the stack."""
        await asyncio.to_thread(self._place.workspace.mkdir, parents=True, exist_ok=True)
        await self._knowledge.copy_to(self._place.workspace)
        if self.servers is None:
            await self._pump.run(ready, draining)
            return
        self.servers.open(self._spec.mcp)
        try:
            await self._pump.run(ready, draining)
        finally:
            await self.servers.close()

    def apply(self, spec: AgentSpec) -> None:
        """Take over the live fields of an edited spec, from the next turn on."""
        self._spec = spec
        self._pump.slots.resize(_lanes(spec))
        if self.servers is not None:
            self.servers.apply(spec.mcp)

    async def abort(
        self, wanted: Callable[[Message], bool], *, cancel_s: float
    ) -> tuple[int, list[str]]:
        """Cancel the wanted turns: how many, and the names of those left behind."""
        return await self._pump.abort(wanted, cancel_s=cancel_s)

    # -- what others see ---------------------------------------------------------------------------

    @property
    def in_flight(self) -> tuple[Work, ...]:
        return self._pump.in_flight

    def asker(self, message_id: str) -> Asker | None:
        """The running turn of a message, for a tool that asks in its name."""
        for work in self._pump.in_flight:
            if work.lease.message.message_id == message_id:
                return Asker(work.lease, work.slot)
        return None

    @property
    def abandoned(self) -> int:
        """Turns that did not obey a stop and were left behind."""
        return self._pump.stats.abandoned

    @property
    def lost_wakes(self) -> int:
        return self._pump.stats.lost_wakes

    def providers(self) -> dict[str, str]:
        """Providers that failed of late, and the states of their breakers; the daemon's, not only
        this agent's."""
        return {each["provider"]: each["state"] for each in self._services.breakers.documents()}

    def provider_notes(self) -> tuple[str, ...]:
        """A line where the agent's own provider is left alone."""
        return self._services.breakers.notes(self.tier(PRIMARY).provider)

    # -- what a turn reads ---------------------------------------------------------------------------

    @property
    def spec(self) -> AgentSpec:
        return self._spec

    @property
    def engine(self) -> Engine:
        return self._engine

    @property
    def workspace(self) -> Path:
        return self._place.workspace

    def tier(self, name: str) -> Tier:
        """One of the agent's models. Raises ``EngineFailed`` for a fallback that can't be made."""
        spec, engine, options = self._spec, self._engine, self._options
        given = self.engine_spec
        if name == FALLBACK:
            spec = fallback_spec(spec)
            engine, options = self._engines.make(spec)
            given = partial(self._engine_spec, spec, engine, options)
        model = spec.model or ""
        provider = provider_of(engine.name, spec.provider or "", model, options)
        return Tier(name, engine, model, provider, given)

    def engine_spec(self, token: str) -> EngineSpec:
        """What the primary engine gets for one turn; ``token`` dies with it."""
        return self._engine_spec(self._spec, self._engine, self._options, token)

    def _engine_spec(
        self, spec: AgentSpec, engine: Engine, options: Mapping[str, Any], token: str
    ) -> EngineSpec:
        return EngineSpec(
            engine=engine.name,
            model=spec.model or "",
            provider=spec.provider or "",
            options=dict(options),
            home=str(self._place.home),
            workspace=str(self._place.workspace),
            env={
                **self._place.child_env(),
                "AGENTSUP_URL": self._place.url(),
                "AGENTSUP_TOKEN": token,
                "AGENTSUP_AGENT": self._spec.name,
            },
            agent=self._spec.name,
            permission_mode=self._spec.permission_mode or "",
            reasoning_effort=self._spec.reasoning_effort or "",
            max_steps=self._spec.max_steps,
            max_usd=self._spec.budget.per_turn_usd,
            mcp_servers=self._mcp_servers(token),
        )

    async def own_tools(self, *, is_patient: bool) -> ToolRegistry | None:
        """The tools of the agent's own servers; see ``AgentServers.tried`` for the wait."""
        if self.servers is not None:
            await self.servers.tried(is_patient=is_patient)
        return self.servers

    def _mcp_servers(self, token: str) -> dict[str, dict[str, Any]]:
        """Our tools, for programs that speak MCP; the token stands in a header, in no address."""
        if not token or self._spec.tools == ():
            return {}
        headers = {"Authorization": f"Bearer {token}"}
        url = f"{self._place.url()}/mcp"
        return {OUR_MCP_SERVER: {"type": "http", "url": url, "headers": headers}}

    def system_prompt(self) -> str:
        peers = tuple(
            name
            for name in self._directory.names()
            if name != self._spec.name and self._spec.may_delegate_to(name)
        )
        told = self.servers.told() if self.servers is not None else ""
        known = prompt.system_prompt(self._spec, shared=self._knowledge.text, peers=peers)
        return f"{known}\n\n{told}" if told else known


def _lanes(spec: AgentSpec) -> dict[Lane, int]:
    return {
        Lane.INTERACTIVE: spec.slots.interactive,
        Lane.PEER: spec.slots.peer,
        Lane.BACKGROUND: spec.slots.background,
    }
