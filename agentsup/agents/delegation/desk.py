"""Where agents hand work on: checked, started under the call's own key, waited for, and told.

A call that is made again after a crash has the same keys, so it meets the runs it had started. Waits
give the caller's slot back and neither fail nor end anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from agentsup.agents.delegation import permits
from agentsup.agents.delegation.ends import RunEnds
from agentsup.agents.delegation.together import together
from agentsup.agents.personas import Others
from agentsup.agents.pipeline.hooks import Hooks
from agentsup.agents.roles.book import RoleShelf
from agentsup.agents.roles.bounds import usable
from agentsup.agents.standing import bound_tx, stand_in_tx, standing_of
from agentsup.agents.tools.peers import Askers
from agentsup.kit.tasks import OwnerClosed, TaskOwner
from agentsup.mailbox import waits
from agentsup.mailbox.bus import AgentDirectory, Asker, DirectoryEntry
from agentsup.model.agent import AgentSpec
from agentsup.model.errors import BadRequest, Conflict, Forbidden, LeaseLost, NotFound
from agentsup.model.hook import SubagentFacts
from agentsup.model.message import Message, State
from agentsup.model.principal import NOBODY, SYSTEM, Principal, PrincipalKind
from agentsup.model.task import Run
from agentsup.model.tool import ToolContext
from agentsup.model.trace import UNTRACED, Tracer
from agentsup.store.database import Database, Reader, Tx
from agentsup.tasks import lineage
from agentsup.tasks.reports import RunReport
from agentsup.tasks.runs import NewRun, Runs, to_asker

MAX_WAIT_S = 3600.0
_STOPPED_S = 10.0
"""How long it may take until a stop of the caller is on record."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The turn that hands work on. ``owner`` is whose message it is, ``spec`` who works on it (the
    same, or one in whose place it works), ``role`` the role it works in, or empty."""

    asker: Asker
    owner: AgentSpec
    spec: AgentSpec
    role: str
    principal: Principal
    call_id: str
    persona: str = ""
    """The id of the one in whose place it works, if that is another."""

    @property
    def message(self) -> Message:
        """What it works on."""
        return self.asker.lease.message

    @property
    def specs(self) -> tuple[AgentSpec, ...]:
        """Those who both must be allowed what it does."""
        return (self.spec,) if self.spec is self.owner else (self.spec, self.owner)

    def key(self, part: object) -> str:
        """The key of one run of the call."""
        return f"{self.call_id}:{part}"


@dataclass(frozen=True, slots=True)
class Wanted:
    """One run of a fan-out, and what it is called."""

    name: str
    new: NewRun
    tools: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class DelegationServices:
    """What handing work on rests on. ``fan_out`` is how many may be set to work by one call."""

    runs: Runs
    database: Database
    directory: AgentDirectory
    askers: Askers
    others: Others
    roles: Callable[[], RoleShelf]
    hooks: Callable[[], Hooks]
    fan_out: Callable[[], int]
    redact: Callable[[str], str] = str
    tracer: Tracer = UNTRACED


class DelegationDesk:
    """Serves the tools of every agent."""

    def __init__(self, services: DelegationServices, tasks: TaskOwner) -> None:
        """``tasks`` keeps those that listen for the ends of runs."""
        self.s = services
        self._tasks = tasks
        self.ends = RunEnds(services.database, services.runs, services.hooks, tasks)

    # -- who calls ---------------------------------------------------------------------------------

    async def caller(self, context: ToolContext) -> Caller:
        """The turn behind a tool call. Raises ``LeaseLost`` if it is over."""
        asker = self.s.askers.asker(context.message_id)
        if asker is None or asker.lease.fence != context.fence:
            raise LeaseLost("the turn that asks is over", message_id=context.message_id)
        session_id = asker.lease.message.session_id
        standing = await self.s.database.read(
            lambda reader: standing_of(reader, session_id), name="delegation.caller"
        )
        owner = self.s.others.spec(context.agent_id)
        spec = self.s.others.spec(standing.persona) if standing.persona else owner
        if owner is None or spec is None:
            raise LeaseLost("the agent that asks was removed", message_id=context.message_id)
        role = (spec.role or "") if standing.role is None else standing.role
        principal = Principal(
            PrincipalKind.AGENT, context.agent_id, owner.name, behalf=context.person or NOBODY
        )
        return Caller(asker, owner, spec, role, principal, context.call_id, standing.persona)

    # -- whom it may call ----------------------------------------------------------------------------

    async def target(self, caller: Caller, *, agent: str = "", role: str = "") -> str:
        """In whose place a run is done (empty: the caller's own). Raises ``NotFound``, ``Gone``,
        ``Forbidden`` and ``BadRequest``."""
        if agent and role:
            raise BadRequest("name an agent or a role, not both", field="role")
        if role:
            book = await self.s.roles().book()
            found, problem = usable(role, book)
            if found is None:
                raise NotFound(problem, role=role)
            for spec in caller.specs:
                _allow(permits.why_not_role(spec, _role_of(caller, spec), found.name))
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
            _allow(permits.why_not_agent(spec, _role_of(caller, spec), other))
        return lineage.agent_target(entry.agent_id)

    def is_itself(self, caller: Caller, name: str) -> bool:
        """Whether the name is that of the one who works. Raises ``NotFound`` and ``Gone``."""
        at_it = caller.persona or caller.message.agent_id
        return self.s.directory.lookup(name).agent_id == at_it

    async def place(self, caller: Caller, name: str) -> str:
        """As ``target``, for a name that means an agent or, where there is none, a role."""
        if not name:
            return ""
        try:
            return await self.target(caller, agent=name)
        except NotFound as error:
            if usable(name, await self.s.roles().book())[0] is None:
                raise error from None
        return await self.target(caller, role=name)

    def allow_ask(self, caller: Caller, entry: DirectoryEntry) -> None:
        """Raise ``Forbidden`` where the caller may not give work to that agent itself."""
        for spec in caller.specs:
            _allow(permits.why_not_ask(spec, entry.name))

    # -- runs ----------------------------------------------------------------------------------------

    async def start(
        self,
        caller: Caller,
        new: NewRun,
        *,
        is_waited: bool,
        tools: Sequence[str] | None = None,
    ) -> Run:
        """Start a run, or meet the one that the same call has started. ``is_waited``: the caller waits
        for it; else its result comes as a message. Raises what ``Runs.start`` raises, and
        ``Forbidden`` where a check refuses it."""
        prompt = self.s.redact(new.prompt)
        new = replace(
            new,
            prompt=prompt,
            parent=caller.message,
            principal=caller.principal,
            deliver_to=to_asker(caller.message, waited=is_waited),
        )
        facts = await self.admit(caller, prompt, new.target, tools)

        def write(tx: Tx) -> Run:
            run = self.s.runs.start_tx(tx, new, waiter=caller.asker.lease if is_waited else None)
            if tools is not None:
                bound_tx(tx, run.session_id, tools)
            is_own = run.agent_id == caller.message.agent_id
            if caller.persona and is_own and not lineage.subject_of(new.target)[0]:
                # It has its own work done, perhaps in a role: as itself, not as whom it works for.
                stand_in_tx(tx, run.session_id, caller.persona)
            return run

        run = await self.s.database.write(write, name="delegation.start")
        self.ends.attend(replace(facts, run_id=run.run_id))
        return run

    async def admit(
        self, caller: Caller, prompt: str, target: str, tools: Sequence[str] | None = None
    ) -> SubagentFacts:
        """Ask those who may refuse a run. Raises ``Forbidden``."""
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

    async def look(self, caller: Caller, run_id: str, timeout_s: float) -> RunReport:
        """Until it has ended, at most that long, for a run that goes on without the caller; see
        ``Runs.wait``."""
        return await self.s.runs.wait(run_id, timeout_s, asker=caller.asker)

    async def wait(self, caller: Caller, run_id: str, timeout_s: float) -> RunReport:
        """The same, for a run that was started to be waited for: it is stopped when the caller is,
        since nobody is left who wants it."""
        try:
            return await self.look(caller, run_id, timeout_s)
        except asyncio.CancelledError:
            with suppress(OwnerClosed):  # the daemon ends: nothing was stopped
                self._tasks.spawn(
                    self._stop_with(caller.message.message_id, run_id), name=f"run-stop:{run_id}"
                )
            raise

    async def _stop_with(self, message_id: str, run_id: str) -> None:
        """End the run if the message it was for was stopped; not if its turn only pauses."""
        changed = asyncio.Event()
        unlisten = self.s.database.listen(f"done:{message_id}", changed.set)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_STOPPED_S):
                    while await self._state_of(message_id) is State.LEASED:
                        await changed.wait()
                        changed.clear()
            if await self._state_of(message_id) is not State.CANCELLED:
                return
            # Nobody is told: whoever asked is gone.
            await self.s.database.write(
                lambda tx: waits.expect_tx(tx, run_id), name="delegation.expect"
            )
            with suppress(Conflict, NotFound):  # it was cancelled with its caller
                await self.s.runs.stop(run_id, SYSTEM)
            await self.s.runs.end_turns(run_id)
        finally:
            unlisten()

    async def _state_of(self, message_id: str) -> State:
        row = await self.s.database.read(
            lambda reader: reader.scalar(
                "SELECT state FROM messages WHERE message_id = ?", (message_id,)
            ),
            name="delegation.state",
        )
        return State(row) if row else State.DONE

    async def wait_all(
        self, caller: Caller, run_ids: Iterable[str], timeout_s: float
    ) -> list[RunReport]:
        """All of them at once: at the deadline those that have not ended are reported as they are."""
        return await together(
            (f"wait:{run_id}", self.wait(caller, run_id, timeout_s)) for run_id in run_ids
        )

    async def known(self, caller: Caller, run_id: str) -> RunReport:
        """A run of this conversation. Raises ``NotFound``, also for one of another."""
        report = await self.s.runs.report(run_id)
        run, message = report.run, caller.message

        def session_of_parent(reader: Reader) -> str:
            found = reader.scalar(
                "SELECT session_id FROM messages WHERE message_id = ?", (run.parent_message_id,)
            )
            return str(found or "")

        if run.root_id != message.root_id and message.session_id != await self.s.database.read(
            session_of_parent, name="delegation.known"
        ):
            raise NotFound(f"run {run_id} not found", run_id=run_id)
        return report

    def check_fan_out(self, count: int, most: int) -> None:
        """Raise ``BadRequest`` where one call asks for too many."""
        limit = min(most, self.s.fan_out())
        if not 1 <= count <= limit:
            raise BadRequest(f"one call sets 1 to {limit} to work, and this one {count}")


def _allow(why_not: str) -> None:
    if why_not:
        raise Forbidden(why_not)


def _role_of(caller: Caller, spec: AgentSpec) -> str:
    return caller.role if spec is caller.spec else spec.role or ""
