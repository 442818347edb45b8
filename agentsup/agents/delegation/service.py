"""Delegation: who may delegate to whom; runs are checked, started, waited for and reported.

Work done in the persona of another agent is done for the caller, on the caller's budget. Across
roles this must be granted. A call that is repeated after a crash has the same keys, so it finds the
runs that it had started. A wait releases the caller's slot. A wait that times out neither fails nor
ends the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from agentsup.agents.delegation.run_ends import RunEnds
from agentsup.agents.memory import transcript
from agentsup.agents.pipeline.pipeline import Hooks
from agentsup.agents.roles.limits import usable
from agentsup.agents.roles.registry import LiveRoleRegistry
from agentsup.agents.sessions.handler import OtherAgents, identity_of, limit_tools_tx
from agentsup.kit.tasks import OwnerClosed, TaskOwner, time_limit
from agentsup.mailbox.mail import AgentDirectory, Asker, DirectoryEntry, to_asker
from agentsup.mailbox.messages import AgentLoads, current_rights, find_message, state_of
from agentsup.mailbox.queue import waits
from agentsup.model.agent import AgentSpec
from agentsup.model.errors import BadRequest, Conflict, Forbidden, LeaseLost, NotFound, Refused
from agentsup.model.hook import SubagentFacts
from agentsup.model.ids import AgentId
from agentsup.model.message import Message, MessageState
from agentsup.model.principal import NOBODY, SYSTEM, Principal, PrincipalKind
from agentsup.model.task import Run, RunKind
from agentsup.model.tool import ToolContext
from agentsup.store import Database, Reader, Tx
from agentsup.tasks import NewRun, RunReport, Runs, lineage, report_of, session_targets

MAX_WAIT_S = 3600.0
_STOPPED_S = 10.0
"""Seconds to wait until a stop of the caller is recorded in the store."""


def why_not_agent(caller: AgentSpec, role: str, target: AgentSpec) -> str:
    """Why ``caller`` may not have work done in the persona of ``target``; empty if it may.

    ``role`` is the role in which the caller works, or empty.
    """
    theirs = target.role or ""
    if caller.can_delegate_to is None:
        if not theirs or theirs.casefold() == role.casefold():
            return ""
        return (
            f"{caller.name} {_is_in(role)}, {target.name} is in the role {theirs}, and work is "
            f"handed across roles only where that is granted: {_grant(caller, target.name)}"
        )
    return "" if caller.may_delegate_to(target.name) else _not_listed(caller, target.name)


def why_not_role(caller: AgentSpec, role: str, wanted: str) -> str:
    """Why ``caller``, working in ``role``, may not have work done in the role ``wanted``.

    Empty if it may. A caller in no role may use every role.
    """
    listed = caller.can_delegate_to is not None and caller.may_delegate_to(wanted)
    if listed or not role or role.casefold() == wanted.casefold():
        return ""
    return (
        f"{caller.name} is in the role {role} and may not have work done in the role {wanted}: "
        f"{_grant(caller, wanted)}"
    )


def why_not_ask(caller: AgentSpec, name: str) -> str:
    """Why ``caller`` may not send work to the mailbox of the agent ``name``; empty if it may."""
    return "" if caller.may_delegate_to(name) else _not_listed(caller, name)


def _not_listed(caller: AgentSpec, name: str) -> str:
    listed = ", ".join(caller.can_delegate_to or ()) or "nobody"
    return (
        f"{caller.name} may not hand work to {name}: its can_delegate_to lists {listed}; "
        f"{_grant(caller, name)}"
    )


def _grant(caller: AgentSpec, name: str) -> str:
    names = ", ".join(f'"{each}"' for each in (*(caller.can_delegate_to or ()), name))
    return f'write "can_delegate_to": [{names}] into the entry of {caller.name} in agents.json'


def _is_in(role: str) -> str:
    return f"is in the role {role}" if role else "is in no role"


@dataclass(frozen=True, slots=True)
class DelegatingTurn:
    """The turn that delegates work.

    ``owner`` is the agent whose message the turn works on, ``spec`` the agent that does the work
    (the owner, or the persona), ``role`` its role, or empty.
    """

    asker: Asker
    owner: AgentSpec
    spec: AgentSpec
    role: str
    principal: Principal
    call_id: str
    persona: str = ""
    """The id of the turn's persona, if that is not the owner."""

    @property
    def message(self) -> Message:
        """The message that the turn works on."""
        return self.asker.lease.message

    @property
    def specs(self) -> tuple[AgentSpec, ...]:
        """The agents that must both be allowed what the turn does."""
        return (self.spec,) if self.spec is self.owner else (self.spec, self.owner)

    def key(self, part: object) -> str:
        """The key of one run of the call."""
        return f"{self.call_id}:{part}"

    def new_run(self, kind: RunKind, prompt: str, *, agent_id: str = "", **facts: Any) -> NewRun:
        """A run for the turn, in the mailbox of that agent or its owner; ``facts``: see ``NewRun``."""
        return NewRun(
            kind,
            AgentId(agent_id or self.message.agent_id),
            prompt,
            self.principal,
            self.message.deliver_to,
            parent=self.message,
            **facts,
        )


@dataclass(frozen=True, slots=True)
class RequestedRun:
    """One run that a fan-out asks for, with its name, or why there can be none."""

    name: str
    new: NewRun | Refused


@dataclass(frozen=True, slots=True)
class DelegationServices:
    """The dependencies of delegation. ``fan_out`` is the largest number of runs that one call may
    start."""

    runs: Runs
    database: Database
    directory: AgentDirectory
    others: OtherAgents
    roles: Callable[[], LiveRoleRegistry]
    hooks: Callable[[], Hooks]
    fan_out: Callable[[], int]
    loads: AgentLoads
    redact: Callable[[str], str] = str


class DelegationService:
    """Delegates work for the tools of every agent."""

    def __init__(self, services: DelegationServices, tasks: TaskOwner) -> None:
        """``tasks`` owns the asyncio tasks that watch for the ends of runs and that stop runs."""
        self.s = services
        self._tasks = tasks
        self.ends = RunEnds(services.database, services.runs, services.hooks, tasks)

    # -- who calls ---------------------------------------------------------------------------------

    async def caller(self, context: ToolContext) -> DelegatingTurn:
        """The turn behind a tool call.

        Raises ``LeaseLost`` if its agent was removed.
        """
        message = context.lease.message
        identity, asked_by = await self.s.database.read(
            lambda reader: (
                identity_of(reader, message.session_id),
                current_rights.asker_of(
                    reader, message.principal, message.message_id, message.root_id
                ),
            ),
            name="delegation.caller",
        )
        owner = self.s.others.spec(context.agent_id)
        spec = self.s.others.spec(identity.persona) if identity.persona else owner
        if owner is None or spec is None:
            raise LeaseLost("the agent that asks was removed", message_id=context.message_id)
        role = (spec.role or "") if identity.role is None else identity.role
        principal = Principal(
            PrincipalKind.AGENT,
            context.agent_id,
            owner.name,
            behalf=context.person or NOBODY,
            asker=asked_by,
        )
        return DelegatingTurn(
            Asker(context.lease, context.slot),
            owner,
            spec,
            role,
            principal,
            context.call_id,
            identity.persona,
        )

    # -- whom it may call ----------------------------------------------------------------------------

    async def target(self, caller: DelegatingTurn, *, agent: str = "", role: str = "") -> str:
        """The agent or role that does a run (empty: the caller itself).

        Raises ``NotFound`` and ``Gone`` for an unknown or removed one, ``Forbidden`` if the caller
        may not have work done by it, and ``BadRequest`` if both are named.
        """
        if agent and role:
            raise BadRequest("name an agent or a role, not both", field="role")
        if role:
            registry = await self.s.roles().registry()
            found, problem = usable(role, registry)
            if found is None:
                raise NotFound(problem, role=role)
            for spec in caller.specs:
                _allow(why_not_role(spec, _role_of(caller, spec), found.name))
            return lineage.role_target(found.name)
        if not agent:
            return ""
        entry = self.s.directory.lookup(agent)
        other = self.s.others.spec(entry.agent_id)
        if other is None:
            raise NotFound(f"agent {entry.name} has no entry any more", agent=entry.name)
        if entry.agent_id == caller.message.agent_id and caller.spec is caller.owner:
            return ""
        for spec in caller.specs:
            _allow(why_not_agent(spec, _role_of(caller, spec), other))
        return lineage.agent_target(entry.agent_id)

    def is_itself(self, caller: DelegatingTurn, name: str) -> bool:
        """Whether ``name`` is the agent that does the turn's work (the persona, if there is one).

        Raises ``NotFound`` and ``Gone``.
        """
        at_it = caller.persona or caller.message.agent_id
        return self.s.directory.lookup(name).agent_id == at_it

    async def target_named(self, caller: DelegatingTurn, name: str) -> str:
        """Like ``target``, for the name of an agent or, if no agent has it, of a role."""
        if not name:
            return ""
        try:
            return await self.target(caller, agent=name)
        except NotFound as error:
            if usable(name, await self.s.roles().registry())[0] is None:
                raise error from None
        return await self.target(caller, role=name)

    def allow_ask(self, caller: DelegatingTurn, entry: DirectoryEntry) -> None:
        """Raise ``Forbidden`` if the caller may not send work to that agent's own mailbox."""
        for spec in caller.specs:
            _allow(why_not_ask(spec, entry.name))

    # -- runs ----------------------------------------------------------------------------------------

    async def start(
        self,
        caller: DelegatingTurn,
        new: NewRun,
        *,
        is_waited: bool,
        tools: Sequence[str] | None = None,
        inherit_last: int = 0,
    ) -> Run:
        """Start a run, or return the one that the same call has started.

        ``is_waited``: the caller waits for the run; else its result comes as a message. ``tools``
        are the patterns to which the run is limited; ``inherit_last`` is how many of the latest
        entries of the caller's session the run's session begins with. Raises what ``Runs.start_tx``
        raises, and ``Forbidden`` if a hook refuses the run.
        """
        prompt = self.s.redact(new.prompt)
        back = to_asker(caller.message, waited=is_waited)
        new = replace(new, prompt=prompt, deliver_to=back)
        facts = await self.admit(caller, prompt, new.target, tools)

        def write(tx: Tx) -> Run:
            run = self.s.runs.start_tx(tx, new, waiter=caller.asker.lease if is_waited else None)
            if tools is not None:
                limit_tools_tx(tx, run.session_id, tools)
            if inherit_last:
                transcript.fork_tx(tx, caller.message.session_id, run.session_id, inherit_last)
            is_own = run.agent_id == caller.message.agent_id
            if caller.persona and is_own and not lineage.subject_of(new.target)[0]:
                # The persona delegates to itself, perhaps in a role: the run gets the same persona.
                session_targets.set_persona_tx(tx, run.session_id, caller.persona)
            return run

        run = await self.s.database.write(write, name="delegation.start")
        self.ends.attend(replace(facts, run_id=run.run_id))
        return run

    async def admit(
        self, caller: DelegatingTurn, prompt: str, target: str, tools: Sequence[str] | None = None
    ) -> SubagentFacts:
        """Ask the hooks that may refuse a run, and return its facts. Raises ``Forbidden``."""
        facts = SubagentFacts(
            run_id="",
            parent=caller.message.message_id,
            role=target,
            instruction=prompt,
            tools=None if tools is None else tuple(tools),
        )
        denied = await self.s.hooks().subagent_spawning(facts)
        if denied is not None:
            raise Forbidden(f"this work can't be handed on: {denied.reason}")
        return facts

    async def wait(self, caller: DelegatingTurn, run_id: str, timeout_s: float) -> RunReport:
        """Wait for a run that was started with ``is_waited``; see ``Runs.wait``.

        The run is stopped with the caller, since nobody else needs its result.
        """
        try:
            return await self.s.runs.wait(run_id, timeout_s, asker=caller.asker)
        except asyncio.CancelledError:
            with suppress(OwnerClosed):  # the daemon ends: nothing was stopped
                self._tasks.spawn(
                    self._stop_with(caller.message.message_id, run_id), name=f"run-stop:{run_id}"
                )
            raise

    async def _stop_with(self, message_id: str, run_id: str) -> None:
        """Stop the run if the caller's message was cancelled, but not if its turn only pauses."""
        changed = asyncio.Event()
        unlisten = self.s.database.listen(f"done:{message_id}", changed.set)
        try:
            with suppress(TimeoutError):
                async with time_limit(_STOPPED_S):
                    while await self._state_of(message_id) is MessageState.LEASED:
                        await changed.wait()
                        changed.clear()
            if await self._state_of(message_id) is not MessageState.CANCELLED:
                return
            # The result of the run is delivered to nobody: the turn that asked is gone.
            await self.s.database.write(waits.expect_tx, run_id, name="delegation.expect")
            with suppress(Conflict, NotFound):  # it was cancelled with its caller
                await self.s.runs.stop(run_id, SYSTEM)
            await self.s.runs.end_turns(run_id)
        finally:
            unlisten()

    async def _state_of(self, message_id: str) -> MessageState:
        state = await self.s.database.read(state_of, message_id, name="delegation.state")
        return state or MessageState.DONE

    async def known(self, caller: DelegatingTurn, run_id: str) -> RunReport:
        """The report of a run of the caller's root or session.

        Raises ``NotFound``, also for others.
        """
        message = caller.message

        def look(reader: Reader) -> RunReport:
            report = report_of(reader, run_id)
            if report.run.root_id != message.root_id:
                parent = find_message(reader, report.run.parent_message_id)
                if parent is None or parent.session_id != message.session_id:
                    raise NotFound(f"run {run_id} not found", run_id=run_id)
            return report

        return await self.s.database.read(look, name="delegation.known")

    def check_fan_out(self, count: int, most: int) -> None:
        """Raise ``BadRequest`` if one call asks for no run, or for more than both limits allow."""
        limit = min(most, self.s.fan_out())
        if not 1 <= count <= limit:
            raise BadRequest(f"one call sets 1 to {limit} to work, and this one {count}")


def _allow(why_not: str) -> None:
    if why_not:
        raise Forbidden(why_not)


def _role_of(caller: DelegatingTurn, spec: AgentSpec) -> str:
    return caller.role if spec is caller.spec else spec.role or ""
