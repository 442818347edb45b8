"""AgentStack: an agent in its running form, one supervised child.

A stack owns nothing that must survive it: the mailbox, transcript and journal are in the store, so
a crash costs a rebuild and no message (P1, P3). Live fields of the spec are swapped in place;
``model.agent.FIELDS`` says which those are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass
from operator import is_not

from agentsup.agents.mcp.servers import AgentServers
from agentsup.agents.mcp.services import McpServices, ServerLocation
from agentsup.agents.persona import prompt
from agentsup.agents.recovery.decisions import PRIMARY
from agentsup.agents.recovery.tiers import ModelTier
from agentsup.agents.sessions.handler import OtherAgents, SessionHandler, WorkingAgent
from agentsup.agents.turn.services import TurnServices
from agentsup.agents.workspace.engine_setup import EngineMaker, EngineSetup, UnableEngine
from agentsup.agents.workspace.shared_memory import SharedKnowledge
from agentsup.mailbox.mail import AgentDirectory, Asker
from agentsup.mailbox.work import EXIT_DRAIN_S, Handler, Pump, SharedSlots, Work
from agentsup.model.agent import AgentSpec
from agentsup.model.engine import EngineDone, RefusedTool
from agentsup.model.errors import EngineFailed
from agentsup.model.ids import AgentId, InstanceId
from agentsup.model.message import LaneName, Message


@dataclass(frozen=True, slots=True)
class StackServices:
    """What the stacks of all agents share."""

    turns: TurnServices
    engines: EngineMaker
    directory: AgentDirectory
    knowledge: SharedKnowledge
    others: OtherAgents
    """The possible personas of sessions."""
    mcp: McpServices | None = None
    """None: the agents' own tool servers are not opened."""
    background: SharedSlots | None = None
    """Limits the background work of all agents together."""
    drain_s: float = EXIT_DRAIN_S
    """How long the other turns may take after one has asked for its stack's end."""


class AgentStack(WorkingAgent):
    """One life of one agent. Implements ``persona.context.AgentContext``."""

    def __init__(
        self,
        spec: AgentSpec,
        agent_id: AgentId,
        instance_id: InstanceId,
        setup: EngineSetup,
        services: StackServices,
        handler: Handler | None = None,
    ) -> None:
        """``handler`` replaces the engine-driven one, for a host that works on messages itself.

        If the engine can't be made, turns fail with the reason until it can.
        """
        turns, mcp, shared = services.turns, services.mcp, services.background
        location = ServerLocation(agent_id, spec.name, setup.workspace)
        servers = None if mcp is None else AgentServers(location, mcp)
        super().__init__(agent_id, spec, setup, services.engines, servers)
        self.instance_id = instance_id
        self._services = turns
        self._directory = services.directory
        self._knowledge = services.knowledge
        own = SessionHandler(turns, self, setup, services.engines, services.others)
        self._peers: tuple[tuple[object, ...], tuple[str, ...]] | None = None
        """The peers in the last prompt, and what they were made of."""
        self._pump = Pump(
            mailbox=turns.mailbox,
            agent_id=agent_id,
            instance_id=instance_id,
            slots=_lanes(spec),
            handler=handler or own,
            begin=own.begin_tx if handler is None else None,
            exit_drain_s=services.drain_s,
            shared={LaneName.BACKGROUND: shared} if shared is not None else None,
        )

    def __post_init__(self) -> None:
        self.engine, self.options = UnableEngine.unless_made(self.spec, self.engines)

    # -- life --------------------------------------------------------------------------------------

    async def run(self, ready: Callable[[], None], draining: asyncio.Event) -> None:
        """Work on the agent's mailbox until drained. Raises ``OSError`` if the workspace can't be
        used, and the errors that end the stack."""
        await self._knowledge.make(self.setup.workspace)
        self._services.problems.begin(self.agent_id)
        if self.servers is not None:
            self.servers.open(self.spec.mcp)
        try:
            await self._find_model()
            await self._pump.run(ready, draining)
        finally:
            self._services.problems.forget(self.agent_id)
            if self.servers is not None:
                await self.servers.close()

    async def _find_model(self) -> None:
        """Ask for the model where none is named, so that its name, or what is missing, shows before
        the first message."""
        find = self.engine.caps.find_model
        if find is None:
            return
        try:
            await find(self.engine_spec("", ""))
        except EngineFailed as error:
            end = EngineDone("failed", code=error.code, permanent=error.permanent)
            self._services.problems.ended(self.agent_id, PRIMARY, end, error.message)

    def apply(self, spec: AgentSpec) -> None:
        """Apply the live fields of an edited spec, from the next turn on."""
        if spec != self.spec:  # the daemon's start applies the same spec once more
            self._services.problems.begin(self.agent_id)
        self.spec = spec
        self._pump.slots.resize(_lanes(spec))
        if self.servers is not None:
            self.servers.apply(spec.mcp)

    async def abort(
        self, wanted: Callable[[Message], bool], *, cancel_s: float
    ) -> tuple[int, list[str]]:
        """Cancel the wanted turns. Returns how many, and the names of the abandoned ones."""
        return await self._pump.abort(wanted, cancel_s=cancel_s)

    # -- what others see ---------------------------------------------------------------------------

    @property
    def in_flight(self) -> tuple[Work, ...]:
        return self._pump.in_flight

    def asker(self, message_id: str) -> Asker | None:
        """The running turn of a message, for a tool that asks on its behalf."""
        for work in self._pump.in_flight:
            if work.lease.message.message_id == message_id:
                return Asker(work.lease, work.slot)
        return None

    @property
    def abandoned(self) -> int:
        """Number of turns that did not obey a stop and were abandoned."""
        return self._pump.stats.abandoned

    @property
    def lost_wakes(self) -> int:
        return self._pump.stats.lost_wakes

    @property
    def engine_problem(self) -> str:
        """Why the agent's models can't answer, as far as it is known; empty if they can."""
        if isinstance(self.engine, UnableEngine):
            return self.engine.error.message
        return self._services.problems.of(self.agent_id)

    @property
    def only_model(self) -> str:
        """The model that answers though none is named; empty if it is not known."""
        return self.engine.caps.only_model(self.engine_spec("", ""))

    def keep_problems(self, chat_models: Collection[str]) -> None:
        """Forget the problems of models of chats, but for these."""
        self._services.problems.keep(self.agent_id, chat_models)

    def providers(self) -> dict[str, str]:
        """Providers that failed recently and the states of their breakers, for the whole daemon and
        not only this agent."""
        return {each["provider"]: each["state"] for each in self._services.breakers.documents()}

    def provider_notes(self) -> tuple[str, ...]:
        """Lines of text if the breaker of the agent's own provider is not closed, if it refuses tools,
        and if its model server serves too little context."""
        served = self.engine.caps.served(self.engine_spec("", ""))
        problem = (served.problem,) if served and served.problem else ()
        refused = (
            f"its provider refuses {each.name or 'all tools'}: {each.why}"
            for each in self.refused_tools()
            if not each.name.startswith("mcp:")  # shown with its server
        )
        return *self._services.breakers.notes(self.tier(PRIMARY).provider), *refused, *problem

    def refused_tools(self) -> tuple[RefusedTool, ...]:
        """The tools that the provider of the agent's model has refused since the daemon's start."""
        return tuple(self.engine.caps.refused(self.engine_spec("", "")))

    # -- what a turn reads ---------------------------------------------------------------------------

    def tier(self, name: str) -> ModelTier:
        """One of the agent's models. What kept its engine from being made may be mended by now, such
        as by the file of a key that came back. Raises ``EngineFailed``: see ``WorkingAgent``."""
        if name == PRIMARY and isinstance(self.engine, UnableEngine):
            made, options = UnableEngine.unless_made(self.spec, self.engines)
            self.engine, self.options = made, options
            if not isinstance(made, UnableEngine):
                self._services.problems.on_change(self.agent_id)
        return super().tier(name)

    @property
    def payer(self) -> AgentSpec:
        return self.spec

    def system_prompt(self) -> str:
        return self.prompt_of(self.spec, self.servers)

    def prompt_of(self, spec: AgentSpec, servers: AgentServers | None) -> str:
        """The system prompt for the agent itself or for a persona. A persona may ask only the
        agents that both may ask."""
        names = self._directory.names()
        key = (names, self.spec, spec)
        if self._peers is None or any(map(is_not, self._peers[0], key)):
            self._peers = key, peers_of(*key)
        peers = self._peers[1]
        servers_note = servers.note_for_model() if servers is not None else ""
        everyone = [self._directory.lookup(name) for name in names] if spec.team else ()
        known = prompt.system_prompt(
            spec,
            shared=self._knowledge.text,
            peers=peers,
            team=prompt.team_block(spec, everyone),
            skills=prompt.skill_texts(self.setup.home / prompt.SKILLS, spec.skills),
        )
        return f"{known}\n\n{servers_note}" if servers_note else known


def peers_of(names: tuple[str, ...], owner: AgentSpec, spec: AgentSpec) -> tuple[str, ...]:
    """The agents that ``spec`` may ask in a session of ``owner``."""
    return tuple(
        name
        for name in names
        if name not in (owner.name, spec.name)
        and owner.may_delegate_to(name)
        and spec.may_delegate_to(name)
    )


def _lanes(spec: AgentSpec) -> dict[LaneName, int]:
    return {lane: getattr(spec.slots, lane.value) for lane in LaneName}
