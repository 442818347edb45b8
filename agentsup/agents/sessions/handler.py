"""Sessions whose turns are done by a persona, an agent other than the session's own.

Prompt, memory, model, role and tools are the persona's. Mailbox, slots, budget, workspace and
grants are those of the agent that owns the message. This widens no rights: a call must be allowed
to the persona and to every caller in the chain that started the work.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from agentsup.agents.mcp.servers import AgentServers
from agentsup.agents.persona.context import AgentContext
from agentsup.agents.recovery.decisions import PRIMARY
from agentsup.agents.recovery.tiers import ModelTier
from agentsup.agents.roles.limits import RoleLimits
from agentsup.agents.turn.ending import notify_person_tx
from agentsup.agents.turn.run import TurnRun
from agentsup.agents.turn.services import StoredTurn, TurnContext, TurnServices
from agentsup.agents.workspace.engine_setup import EngineMaker, EngineSetup
from agentsup.catalogue import words
from agentsup.kit.log import get_logger
from agentsup.mailbox.messages import ChosenModel, Completion, chat_models, segments
from agentsup.mailbox.work import Work
from agentsup.model.agent import AgentSpec
from agentsup.model.engine import Engine, EngineSpec
from agentsup.model.errors import AgentDown, AgentsupError, EngineFailed, Overloaded, StoreCorrupt
from agentsup.model.hook import Reach
from agentsup.model.ids import AgentId
from agentsup.model.message import Lease, Message, MessageOutcome
from agentsup.model.tool import ToolRegistry
from agentsup.store import Reader, Tx

_MOST = 8
"""Parent sessions that are read at most; runs are never nested so deep."""

_SQL = f"""
WITH RECURSIVE up(session_id, height) AS (
    SELECT ?, 0
    UNION ALL
    SELECT p.parent_session_id, up.height + 1 FROM up
    JOIN session_parents p ON p.session_id = up.session_id WHERE up.height < {_MOST}
)
SELECT coalesce(o.agent_id, s.agent_id, '') AS agent_id, o.agent_id AS persona, r.role,
    t.patterns, m.key, m.model, m.service, m.notified
FROM up
LEFT JOIN sessions s ON s.session_id = up.session_id
LEFT JOIN session_personas o ON o.session_id = up.session_id
LEFT JOIN session_roles r ON r.session_id = up.session_id
LEFT JOIN session_tools t ON t.session_id = up.session_id
LEFT JOIN chat_models m ON up.height = 0 AND m.agent_id = s.agent_id AND m.key = (
    SELECT max(key) FROM chat_models WHERE agent_id = s.agent_id AND key IN (?, ?)
)
ORDER BY up.height
"""  # noqa: S608 - a constant
_log = get_logger(__name__)

_GIVEN = "whoever started the run"


@dataclass(frozen=True, slots=True)
class SessionActor:
    """The agent that works in a session, and the session's role (empty: none; None: the agent's
    own)."""

    agent_id: str
    role: str | None = None
    tools: tuple[str, ...] | None = None
    """The tool patterns to which the session is limited, if it is."""


@dataclass(frozen=True, slots=True)
class SessionIdentity:
    """The recorded identity of a session. ``persona`` is the id of the agent that does its turns
    (empty: the session's own agent); ``callers`` had the work started, the nearest first."""

    persona: str = ""
    role: str | None = None
    tools: tuple[str, ...] | None = None
    callers: tuple[SessionActor, ...] = ()
    chosen: ChosenModel | None = None
    """The model that was chosen for the chat of the turn."""


def identity_of(
    reader: Reader, session_id: str, chat: tuple[str, str] = ("", "")
) -> SessionIdentity:
    """The current identity of a session.

    ``chat`` has the keys of the turn's chat (``chat_models.keys_of_turn``); a topic's key is longer
    than that of its chat, and goes first.
    """
    own, *above = reader.all(_SQL, (session_id, *chat))
    chosen = None
    if own["model"] is not None:
        chosen = ChosenModel(own["key"], own["model"], own["service"], notified=own["notified"])
    return SessionIdentity(
        own["persona"] or "",
        own["role"],
        _patterns(own["patterns"]),
        tuple(
            SessionActor(row["agent_id"], row["role"], _patterns(row["patterns"])) for row in above
        ),
        chosen,
    )


def limit_tools_tx(tx: Tx, session_id: str, tools: Sequence[str]) -> None:
    """Limit the session to these patterns of tool names. A later call does not change them."""
    tx.execute(
        "INSERT INTO session_tools VALUES (?, ?) ON CONFLICT DO NOTHING",
        (session_id, json.dumps(list(tools))),
    )


def _patterns(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(json.loads(text))


def stricter_mode(own: str | None, callers: list[str | None]) -> str | None:
    """The permission mode of work that is done for others: the strictest mode of all of them."""
    modes = [own, *callers]
    if "plan" in modes:
        return "plan"
    careful = [mode for mode in modes if mode != "bypassPermissions"]
    return own if not careful or own != "bypassPermissions" else careful[0]


class OtherAgents(Protocol):
    """The other agents, as declared now."""

    def spec(self, agent_id: str) -> AgentSpec | None:
        """An agent's entry; None for one that was removed."""

    def is_disabled(self, agent_id: str) -> bool:
        """Whether the agent is disabled, or an operator has stopped it."""

    def name_of(self, agent_id: str) -> str:
        """The agent's name, also of a removed agent."""

    def servers(self, agent_id: str) -> AgentServers | None:
        """The agent's tool servers, while it runs."""


class SessionOwner(AgentContext, Protocol):
    """The agent that owns the message."""

    def prompt_of(self, spec: AgentSpec, servers: AgentServers | None) -> str:
        """The system prompt for ``spec``, which is the agent's own or a persona's."""


@dataclass(slots=True, eq=False)
class WorkingAgent:
    """The part of ``persona.context.AgentContext`` that an agent and a persona share.

    Making one raises ``EngineFailed`` if the engine can't be made.
    """

    agent_id: AgentId
    spec: AgentSpec
    setup: EngineSetup
    engines: EngineMaker
    servers: AgentServers | None
    engine: Engine = field(init=False)
    options: Mapping[str, Any] = field(init=False, repr=False)
    """The options of the primary engine, with secrets resolved."""
    _primary: tuple[AgentSpec, ModelTier] | None = field(init=False, default=None)
    """The primary model, made for each version of the spec once, and the spec."""

    def __post_init__(self) -> None:
        self.engine, self.options = self.engines.make(self.spec)

    @property
    def workspace(self) -> Path:
        return self.setup.workspace

    @property
    def chat_model(self) -> str:
        return ""

    def engine_spec(self, token: str, person: str) -> EngineSpec:
        """The spec of the primary engine for one turn on work of ``person``; ``token`` is valid
        during the turn."""
        return self.setup.engine_spec(self.spec, self.engine, self.options, token, person)

    def tier(self, name: str) -> ModelTier:
        """One of the agent's models. Raises ``EngineFailed`` for a fallback that can't be made."""
        if name != PRIMARY:
            return self.setup.tier(name, self.spec, (self.engine, self.options), self.engines)
        made_of, known = self._primary or (None, None)
        if known is None or made_of is not self.spec or known.engine is not self.engine:
            known = self.setup.tier(name, self.spec, (self.engine, self.options), self.engines)
            known = replace(known, engine_spec=self.engine_spec)
            self._primary = self.spec, known
        return known

    async def own_tools(self, *, is_patient: bool) -> ToolRegistry | None:
        """The tools of the agent's own servers; see ``AgentServers.tried`` for the wait."""
        if self.servers is not None:
            await self.servers.wait_first_attempts(is_patient=is_patient)
        return self.servers


@dataclass(slots=True, eq=False)
class Persona(WorkingAgent):
    """Another agent at work on the owner's message. Implements ``persona.context.AgentContext``."""

    owner: SessionOwner

    @property
    def payer(self) -> AgentSpec:
        return self.owner.payer

    def system_prompt(self) -> str:
        return self.owner.prompt_of(self.spec, self.servers)


@dataclass(slots=True, eq=False)
class ChatModelAgent(Persona):
    """The owner itself, with the model that was chosen for the chat of the turn."""

    @property
    def chat_model(self) -> str:
        return self.spec.model or ""

    def system_prompt(self) -> str:
        return self.owner.system_prompt()


@dataclass(frozen=True, slots=True)
class SessionHandler:
    """The handler of a stack: the agent or the session's persona does each turn."""

    services: TurnServices
    owner: SessionOwner
    setup: EngineSetup
    engines: EngineMaker
    others: OtherAgents

    async def handle(self, work: Work) -> None:
        """Run the turn; see ``TurnRun.handle``. The turn fails if its persona was removed or
        stopped, or its engine can't be made."""
        identity, start = await self._read(work.lease)
        around: AgentContext = self.owner
        if identity.persona not in ("", self.owner.agent_id):
            try:
                around = self._as(identity)
            except (AgentDown, EngineFailed) as error:
                await self._fail(work, error)
                return
        elif identity.chosen is not None and self.owner.spec.model_tier == PRIMARY:
            around = await self._on_chat_model(work.lease.message, identity.chosen)
        bounds = partial(self._bounds, identity)
        turn = TurnContext(self.services, self.owner.agent_id, around, bounds, work)
        await TurnRun(turn).handle(start)

    def begin_tx(self, tx: Tx, lease: Lease) -> int | None:
        """Begin the first segment of a turn with its claim; returns its number."""
        if lease.resumed:
            return None
        return segments.begin_first_tx(
            tx, lease.message.message_id, lease.fence, self.services.clock.now_ms()
        )

    async def _read(self, lease: Lease) -> tuple[SessionIdentity, StoredTurn]:
        """The identity of the session, and what is stored for the turn; the memory only for a turn
        of the agent's own."""
        message, owner, services = lease.message, self.owner, self.services

        def look(reader: Reader) -> tuple[SessionIdentity, StoredTurn]:
            chat = chat_models.keys_of_turn(message)
            identity, memory = identity_of(reader, message.session_id, chat), None
            if not lease.resumed and identity.persona in ("", owner.agent_id):
                memory = services.before_turn.read_stored(
                    reader, owner.agent_id, owner.spec, message
                )
            run, budget = (
                services.brief.read_stored(reader, message),
                services.spending.read_stored(reader, message),
            )
            return identity, StoredTurn(memory, run, budget)

        try:
            return await services.database.read(look, name="turn.start")
        except (StoreCorrupt, Overloaded):
            return await services.database.read(
                lambda reader: (identity_of(reader, message.session_id), StoredTurn()),
                name="turn.identity",
            )

    def _as(self, identity: SessionIdentity) -> Persona:
        agent_id, others = identity.persona, self.others
        spec, name = others.spec(agent_id), others.name_of(agent_id)
        if spec is None or others.is_disabled(agent_id):
            how = "was removed from agents.json" if spec is None else "is disabled or was stopped"
            raise AgentDown(
                f"this was to be done in the place of {name}, which {how}; give it to another agent, "
                f"or bring {name} back and ask again",
                agent=name,
            )
        callers = [found for each in identity.callers if (found := others.spec(each.agent_id))]
        mode = stricter_mode(
            spec.permission_mode,
            [self.owner.payer.permission_mode, *(each.permission_mode for each in callers)],
        )
        spec = replace(spec, permission_mode=mode)
        return Persona(
            AgentId(agent_id),
            spec,
            self.setup,
            self.engines,
            others.servers(agent_id),
            self.owner,
        )

    async def _on_chat_model(
        self, message: Message, chosen: chat_models.ChosenModel
    ) -> AgentContext:
        """The owner with the model of the chat. If another service answers than the one for which that
        model was chosen, the owner keeps its own model and the chat gets one notice."""
        owner, services = self.owner, self.services
        options = {k: v for k, v in owner.spec.engine_options.items() if k != "model"}
        spec = replace(owner.spec, model=chosen.model, engine_options=options)
        servers = self.others.servers(owner.agent_id)
        try:
            agent = ChatModelAgent(
                owner.agent_id, spec, self.setup, self.engines, servers, owner=owner
            )
        except EngineFailed:  # so the owner's own model can't answer either, and says why
            return owner
        if agent.tier(PRIMARY).provider == chosen.service:
            return agent
        text = words(message.principal.language)(
            "model.here_not_used", model=chosen.model, name=spec.name, service=chosen.service
        )

        def tell(tx: Tx) -> None:
            if chat_models.note_notice_tx(tx, owner.agent_id, chosen.key):
                notify_person_tx(tx, message, text, services.clock.now_ms())

        if not chosen.notified:
            await services.database.write(tell, name="turn.model_not_used")
        return owner

    async def _bounds(self, identity: SessionIdentity, spec: AgentSpec) -> RoleLimits:
        """The limits of the agent of ``spec`` in a session with that identity."""

        async def of(whose: AgentSpec, role: str | None) -> RoleLimits:
            return await self.services.roles.in_role(
                whose, (whose.role or "") if role is None else role
            )

        own = await of(spec, identity.role)
        payer = self.owner.payer
        reaches = []
        if identity.persona:
            # If another turn started the work, the role of that turn applies instead.
            limits = RoleLimits(payer.tools) if identity.callers else await of(payer, None)
            reaches.append(limits.reach(payer.name))
        bounds = (identity.tools, *(caller.tools for caller in identity.callers))
        reaches += [Reach(_GIVEN, tools) for tools in bounds if tools is not None]
        for caller in identity.callers:
            known = self.others.spec(caller.agent_id)
            if known is None:  # the agent was removed, and with it what it might use
                reaches.append(Reach(self.others.name_of(caller.agent_id), ()))
            else:
                reaches.append((await of(known, caller.role)).reach(known.name))
        return replace(own, callers=tuple(reaches)) if reaches else own

    async def _fail(self, work: Work, error: AgentsupError) -> None:
        lease, code = work.lease, error.code
        text = self.services.redactor.text(error.message)
        end = Completion(MessageOutcome.FAILED, error_code=code, error_text=text, notice=text)
        services = self.services

        def commit(tx: Tx) -> None:
            services.mailbox.leases.complete_tx(tx, lease, end)
            if work.segment_no is not None:
                segments.withdraw_tx(tx, lease.message.message_id, work.segment_no)

        await services.database.write(commit, name="turn.refused", closing=True)
        _log.warning(
            "turn failed", message=lease.message.message_id, agent=error.facts.get("agent")
        )
