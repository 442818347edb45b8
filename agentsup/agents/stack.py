"""AgentStack: an agent in its running form, one supervised child.

A stack owns nothing that must survive it: the mailbox, transcript and journal are in the store, so
a crash costs a rebuild and no message (P1, P3). Live fields of the spec are swapped in place;
``model.agent.FIELDS`` says which those are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from agentsup.agents import profile, prompt
from agentsup.agents.knowledge import SharedKnowledge
from agentsup.agents.mcp.server import McpServices, ServerPlace
from agentsup.agents.mcp.servers import AgentServers
from agentsup.agents.personas import Others, SessionHandler
from agentsup.agents.place import EngineMaker, StackPlace
from agentsup.agents.recovery.tiers import PRIMARY, Tier
from agentsup.agents.turn_services import TurnServices
from agentsup.mailbox.bus import AgentDirectory, Asker
from agentsup.mailbox.pump import EXIT_DRAIN_S, Handler, Pump, Work
from agentsup.mailbox.slots import SharedLane
from agentsup.model.agent import AgentSpec
from agentsup.model.engine import Engine, EngineSpec
from agentsup.model.ids import AgentId, InstanceId
from agentsup.model.message import Lane, Message
from agentsup.model.tool import ToolRegistry

__all__ = ["AgentStack", "EngineMaker", "StackPlace"]


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
        others: Others | None = None,
        background: SharedLane | None = None,
    ) -> None:
        """``handler`` replaces the engine-driven one, for a host that works on messages itself;
        ``drain_s`` bounds the turns beside one that asked for the stack's end;
        without ``mcp`` the agent's own tool servers are not opened; ``others`` are those in whose
        place it may work; ``background`` bounds the background work of all agents together.

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
            handler=handler or SessionHandler(services, self, place, engines, others),
            exit_drain_s=drain_s,
            shared={Lane.BACKGROUND: background} if background is not None else None,
        )

    # -- life --------------------------------------------------------------------------------------

    async def run(self, ready: Callable[[], None], draining: asyncio.Event) -> None:
        """Work on the agent's mailbox until drained. Raises what ends the stack,
        ``OSError`` where its workspace can't be used."""
        await self._knowledge.make(self._place.workspace)
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
    def payer(self) -> AgentSpec:
        return self._spec

    @property
    def engine(self) -> Engine:
        return self._engine

    @property
    def workspace(self) -> Path:
        return self._place.workspace

    def tier(self, name: str) -> Tier:
        """One of the agent's models. Raises ``EngineFailed`` for a fallback that can't be made."""
        made = (self._engine, self._options)
        found = self._place.tier(name, self._spec, made, self._engines)
        return replace(found, engine_spec=self.engine_spec) if name == PRIMARY else found

    def engine_spec(self, token: str, person: str) -> EngineSpec:
        """What the primary engine gets for one turn, in the work of ``person``; ``token`` dies with
        it."""
        return self._place.engine_spec(self._spec, self._engine, self._options, token, person)

    async def own_tools(self, *, is_patient: bool) -> ToolRegistry | None:
        """The tools of the agent's own servers; see ``AgentServers.tried`` for the wait."""
        if self.servers is not None:
            await self.servers.tried(is_patient=is_patient)
        return self.servers

    def system_prompt(self) -> str:
        return self.prompt_of(self._spec, self.servers)

    def prompt_of(self, spec: AgentSpec, servers: AgentServers | None) -> str:
        """The standing instructions of whoever works here: the agent, or one in whose place it
        works and who may turn only to those that both may."""
        peers = tuple(
            name
            for name in self._directory.names()
            if name not in (self._spec.name, spec.name)
            and self._spec.may_delegate_to(name)
            and spec.may_delegate_to(name)
        )
        told = servers.told() if servers is not None else ""
        everyone = [self._directory.lookup(name) for name in self._directory.names()]
        known = prompt.system_prompt(
            spec,
            shared=self._knowledge.text,
            peers=peers,
            team=profile.team_block(spec, everyone),
            skills=profile.skill_texts(self._place.home / profile.SKILLS, spec.skills),
        )
        return f"{known}\n\n{told}" if told else known


def _lanes(spec: AgentSpec) -> dict[Lane, int]:
    return {
        Lane.INTERACTIVE: spec.slots.interactive,
        Lane.PEER: spec.slots.peer,
        Lane.BACKGROUND: spec.slots.background,
    }
