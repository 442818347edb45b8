"""Sessions whose turns are done in the place of another agent.

Prompt, memory, model, role and tools are the other's; mailbox, slots, budget, workspace and the leave
that people gave are those of the agent whose message it is. Nothing is widened by it: a call must be
allowed to the one who works and to everyone up the chain who had it begun.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from agentsup.agents.mcp.servers import AgentServers
from agentsup.agents.place import EngineMaker, StackPlace
from agentsup.agents.recovery.tiers import Tier
from agentsup.agents.roles.bounds import Bounds
from agentsup.agents.standing import Standing, standing_of, stricter_mode
from agentsup.agents.surroundings import Surroundings
from agentsup.agents.turn import TurnHandler
from agentsup.agents.turn_services import TurnServices
from agentsup.mailbox.pump import Work
from agentsup.mailbox.values import Completion
from agentsup.model.agent import AgentSpec
from agentsup.model.engine import Engine, EngineSpec
from agentsup.model.errors import AgentDown, AgentsupError, EngineFailed
from agentsup.model.hook import Reach
from agentsup.model.ids import AgentId
from agentsup.model.message import Outcome
from agentsup.model.tool import ToolRegistry
from agentsup.observe.logging import get_logger

_log = get_logger(__name__)

_GIVEN = "whoever started the run"


class Others(Protocol):
    """The other agents, as they are declared now."""

    def spec(self, agent_id: str) -> AgentSpec | None:
        """An agent's entry; None for one that was removed."""

    def is_kept_down(self, agent_id: str) -> bool:
        """Whether it is disabled, or an operator has stopped it."""

    def name_of(self, agent_id: str) -> str:
        """What it is or was called."""

    def servers(self, agent_id: str) -> AgentServers | None:
        """Its tool servers, while it runs."""


class Owner(Surroundings, Protocol):
    """The agent whose message it is."""

    def prompt_of(self, spec: AgentSpec, servers: AgentServers | None) -> str:
        """The standing instructions of whoever works in its place."""


@dataclass(frozen=True, slots=True)
class Persona:
    """Another agent at work on an agent's message. Implements ``surroundings.Surroundings``."""

    agent_id: AgentId
    spec: AgentSpec
    owner: Owner
    place: StackPlace
    engines: EngineMaker
    made: tuple[Engine, Mapping[str, Any]]
    servers: AgentServers | None = None

    @property
    def payer(self) -> AgentSpec:
        return self.owner.payer

    @property
    def engine(self) -> Engine:
        return self.made[0]

    @property
    def workspace(self) -> Path:
        return self.place.workspace

    def engine_spec(self, token: str, person: str) -> EngineSpec:
        """What the primary engine gets for one turn, in the work of ``person``."""
        return self.place.engine_spec(self.spec, *self.made, token, person)

    def tier(self, name: str) -> Tier:
        """One of the persona's models. Raises ``EngineFailed`` for a fallback that can't be made."""
        return self.place.tier(name, self.spec, self.made, self.engines)

    def system_prompt(self) -> str:
        return self.owner.prompt_of(self.spec, self.servers)

    async def own_tools(self, *, is_patient: bool) -> ToolRegistry | None:
        """The tools of its own servers."""
        if self.servers is not None:
            await self.servers.tried(is_patient=is_patient)
        return self.servers


class SessionHandler:
    """The handler of a stack: has each turn done by whom its session says."""

    def __init__(
        self,
        services: TurnServices,
        owner: Owner,
        place: StackPlace,
        engines: EngineMaker,
        others: Others | None = None,
    ) -> None:
        """Without ``others`` every turn is the agent's own."""
        self._services = services
        self._owner = owner
        self._place = place
        self._engines = engines
        self._others = others
        self._own = TurnHandler(services, owner.agent_id, owner)

    async def handle(self, work: Work) -> None:
        """Run the turn; see ``TurnHandler.handle``. It fails where the one in whose place it is to
        be done is gone, down, or can't think."""
        if self._others is None:
            await self._own.handle(work)
            return
        session_id = work.lease.message.session_id
        standing = await self._services.database.read(
            lambda reader: standing_of(reader, session_id), name="turn.standing"
        )
        around: Surroundings = self._owner
        if standing.persona not in ("", self._owner.agent_id):
            try:
                around = self._as(standing, self._others)
            except (AgentDown, EngineFailed) as error:
                await self._fail(work, error)
                return
        bounds = partial(self._bounds, standing, self._others)
        handler = TurnHandler(self._services, self._owner.agent_id, around, bounds)
        await handler.handle(work)

    def _as(self, standing: Standing, others: Others) -> Persona:
        agent_id = standing.persona
        spec, name = others.spec(agent_id), others.name_of(agent_id)
        if spec is None or others.is_kept_down(agent_id):
            how = "was removed from agents.json" if spec is None else "is disabled or was stopped"
            raise AgentDown(
                f"this was to be done in the place of {name}, which {how}; give it to another agent, "
                f"or bring {name} back and ask again",
                agent=name,
            )
        callers = [found for each in standing.callers if (found := others.spec(each.agent_id))]
        mode = stricter_mode(
            spec.permission_mode,
            [self._owner.payer.permission_mode, *(each.permission_mode for each in callers)],
        )
        spec = replace(spec, permission_mode=mode)
        return Persona(
            AgentId(agent_id),
            spec,
            self._owner,
            self._place,
            self._engines,
            self._engines.make(spec),
            others.servers(agent_id),
        )

    async def _bounds(self, standing: Standing, others: Others, spec: AgentSpec) -> Bounds:
        """What may be used in a session of that standing by the one who works in it."""
        roles = self._services.roles

        async def of(whose: AgentSpec, role: str | None) -> Bounds:
            if roles is None:
                return Bounds(whose.tools)
            return await roles.in_role(whose, (whose.role or "") if role is None else role)

        own = await of(spec, standing.role)
        payer = self._owner.payer
        reaches = []
        if standing.persona:
            # Where a turn of the payer's had it begun, the role of that turn holds instead.
            held = Bounds(payer.tools) if standing.callers else await of(payer, None)
            reaches.append(held.reach(payer.name))
        bounds = (standing.tools, *(caller.tools for caller in standing.callers))
        reaches += [Reach(_GIVEN, tools) for tools in bounds if tools is not None]
        for caller in standing.callers:
            known = others.spec(caller.agent_id)
            if known is None:  # nobody can say any more what it might use
                reaches.append(Reach(others.name_of(caller.agent_id), ()))
            else:
                reaches.append((await of(known, caller.role)).reach(known.name))
        return replace(own, callers=tuple(reaches))

    async def _fail(self, work: Work, error: AgentsupError) -> None:
        lease, code = work.lease, error.code
        text = self._services.redactor.text(error.message)
        end = Completion(Outcome.FAILED, error_code=code, error_text=text, notice=text)
        await self._services.mailbox.complete(lease, end)
        _log.warning(
            "turn failed", message=lease.message.message_id, agent=error.facts.get("agent")
        )
