"""``route_to_agent``, ``dispatch_team``, ``broadcast_to_agents`` and ``list_team``.

They give work to other agents, in the mailboxes of these and with their tools and sessions.
Attempts are keyed by call and target, so no agent works twice for one call. An agent that still
works when the wait ends is not replaced by another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import Field, model_validator

from agentsup.agents.delegation import texts
from agentsup.agents.delegation.fan_out import RunOutcome, outcome_text, refusal, run_all, wait_all
from agentsup.agents.delegation.ranking import Match, Ranking
from agentsup.agents.delegation.routes import Router
from agentsup.agents.delegation.service import (
    MAX_WAIT_S,
    DelegatingTurn,
    DelegationService,
    RequestedRun,
)
from agentsup.agents.tools.declaring import (
    Arguments,
    Check,
    Flag,
    Needed,
    Text,
    between,
    choice,
    missing,
    strings,
    tool,
    tools_of,
    whole,
)
from agentsup.mailbox.mail import (
    DirectoryEntry,
    Dispatcher,
    check_up,
    entries_of,
    members_of,
    new_mail,
)
from agentsup.mailbox.messages import peer_key
from agentsup.model.errors import BadRequest, EngineFailed, NobodyThere, NotFound, Refused
from agentsup.model.ids import AgentId
from agentsup.model.message import LaneName
from agentsup.model.task import RunKind
from agentsup.model.tool import Effect, Safety, Tool, ToolContext
from agentsup.tasks import NewRun

MAX_TASKS = 12
MAX_RETRIES, RETRIES = 5, 2
WAIT_S = 3600.0

_wait: Callable[[Any], float] = between(0, MAX_WAIT_S, f"must be 0 to {MAX_WAIT_S:.0f} seconds").run
_Seconds = Annotated[float, Check(lambda value: max(1.0, _wait(value)), {"type": "number"})]
_WAITS = "Seconds to wait at most; default 3600."
MAX_FAN_OUT = 200
"""These tools set no limit of their own; the one in the settings counts."""


def _words(value: Any) -> tuple[str, ...]:
    listed = (value,) if isinstance(value, str) else strings(value)
    return tuple(word.strip() for text in listed for word in text.split(",") if word.strip())


class TeamTask(Arguments):
    """One of the tasks of ``dispatch_team``."""

    capability: Annotated[tuple[str, ...], Check(_words, {"type": "string"})] = Field(
        (),
        description="What it takes, as list_team shows it; several with commas between them. "
        "Without it, whoever has least to do.",
    )
    required_capabilities: Annotated[
        tuple[str, ...], Check(_words, {"type": ["array", "string"], "items": {"type": "string"}})
    ] = Field((), description="Another name of capability; a list.")
    prompt: Needed
    timeout_s: _Seconds = Field(WAIT_S, description=_WAITS)
    retries: Annotated[int, whole(0, MAX_RETRIES)] = Field(
        RETRIES, description="How many others are asked after a failure; 0 to 5."
    )


class Route(TeamTask):
    """The arguments of ``route_to_agent``."""

    match: Annotated[str, choice("any", "all")] = Field("any", description="Of several.")
    fresh: Flag = Field(False, description="In a new session with that agent.")
    background: Flag = Field(False, description="Don't wait for the answer.")


class Dispatch(Arguments):
    """The arguments of ``dispatch_team``. The prompt and the time also hold for its tasks."""

    team: Text = Field("", description="Everyone of this team gets the prompt.")
    prompt: Text = ""
    tasks: list[TeamTask] = Field([], description=f"Or 1 to {MAX_TASKS} tasks.")
    timeout_s: _Seconds = Field(WAIT_S, description=_WAITS)

    @model_validator(mode="before")
    @classmethod
    def _shared(cls, value: Any) -> Any:
        tasks = value.get("tasks") if isinstance(value, dict) else None
        if not isinstance(tasks, list) or not all(isinstance(each, dict) for each in tasks):
            return value
        shared = {name: value[name] for name in ("prompt", "timeout_s") if name in value}
        return {**value, "tasks": [{**shared, **each} for each in tasks]}


class Broadcast(Arguments):
    """The arguments of ``broadcast_to_agents``."""

    prompt: Needed
    mode: Annotated[str, choice("notify", "ask")] = Field(
        "notify", description="notify tells them and goes on; ask waits for their answers."
    )
    team: Text = Field("", description="Only this team; else everyone.")
    timeout_s: _Seconds = Field(WAIT_S, description=_WAITS)


class ListTeam(Arguments):
    """The arguments of ``list_team``."""

    include_self: Flag = False


def team_tools(ctx: DelegationService, router: Router, dispatcher: Dispatcher) -> tuple[Tool, ...]:
    """The tools, all of them only for agents whose ``tools`` name them."""
    return tools_of(_Teams(ctx, router, dispatcher))


@dataclass(frozen=True, slots=True)
class _Order:
    """Work for one agent that fits: ``new`` is the run without its agent."""

    call: str
    new: NewRun
    needs: tuple[str, ...] = ()
    timeout_s: float = 0.0
    retries: int = 0

    def run_of(self, agent_id: str) -> NewRun:
        """The run that gives the work to that agent."""
        return replace(self.new, agent_id=AgentId(agent_id), key=f"{self.call}:{agent_id}")


@dataclass(frozen=True, slots=True)
class _Teams:
    service: DelegationService
    router: Router
    dispatcher: Dispatcher

    # -- work for one agent ------------------------------------------------------------------------

    @tool("route_to_agent", Effect.KEYED, Safety.MODERATE, is_optional=True, is_wait=True)
    async def route(self, context: ToolContext, args: Route) -> str:
        """Give work to the agent that fits it best, in that agent's own session."""
        caller = await self.service.caller(context)
        session_key = peer_key(caller.owner.name, context.person)
        facts = {"session_key": session_key, "new_session": args.fresh}
        order = _order(caller, args, caller.call_id, RunKind.ROUTE, **facts)
        try:
            ranking = await self.router.choose(caller, order.call, order.needs, Match(args.match))
            if args.background:
                return await self._in_background(caller, order, ranking)
            found = await self._attempts(caller, order, ranking)
        finally:
            self.router.placed(order.call)
        last = found[-1]
        if last.ok:
            return f"[{last.name}]\n\n{last.text}"
        if last.report is not None and not last.report.is_ended:
            return f"{last.name} is {last.text}."
        raise EngineFailed(
            f"nobody could do it after {len(found)} attempts: "
            + "; ".join(each.why for each in found)
        )

    async def _attempts(
        self, caller: DelegatingTurn, order: _Order, ranking: Ranking
    ) -> list[RunOutcome]:
        """Ask one agent after the other until one has done the work or still works on it."""
        found: list[RunOutcome] = []
        for candidate in ranking.ranked[: order.retries + 1]:
            new = order.run_of(candidate.agent_id)
            with self.router.breakers.visit(self.router.breaker(candidate.agent_id)) as visit:
                try:
                    self._check_up(caller, candidate.agent_id)
                    run = await self.service.start(caller, new, is_waited=True)
                except Refused as error:
                    found.append(refusal(candidate.agent, error))
                    continue
                finally:
                    self.router.placed(order.call)
                report = await self.service.wait(caller, run.run_id, order.timeout_s)
                if report.is_ended and report.status != "cancelled":
                    visit.well = report.status == "done"
            found.append(outcome_text(candidate.agent, report))
            if report.status != "failed":
                break
        return found

    async def _in_background(self, caller: DelegatingTurn, order: _Order, ranking: Ranking) -> str:
        first = ranking.ranked[0]
        self._check_up(caller, first.agent_id)
        run = await self.service.start(caller, order.run_of(first.agent_id), is_waited=False)
        return texts.as_json(
            {
                "run_id": run.run_id,
                "jobId": run.run_id,
                "remotePeer": first.agent,
                "remoteJobId": run.run_id,
                "status": "running",
            }
        )

    def _check_up(self, caller: DelegatingTurn, agent_id: str) -> None:
        entry = self.service.s.directory.by_id(agent_id)
        if entry is None:
            raise NotFound("the agent was removed meanwhile", agent=agent_id)
        check_up(entry, caller.principal)

    # -- work for several agents -------------------------------------------------------------------

    @tool("dispatch_team", Effect.KEYED, Safety.MODERATE, is_optional=True, is_wait=True)
    async def dispatch(self, context: ToolContext, args: Dispatch) -> str:
        """Give everyone of a team one prompt, or several tasks to whoever fits each, at once."""
        tasks, team = args.tasks, args.team
        if bool(tasks) == bool(team):
            raise BadRequest("give either a team with a prompt, or tasks", field="tasks")
        caller = await self.service.caller(context)
        if tasks:
            self.service.check_fan_out(len(tasks), MAX_TASKS)
            return await self._tasks(caller, tasks)
        if not args.prompt.strip():
            raise missing("prompt")
        members = self._members(caller, team)
        found = await self._ask_all(caller, members, args.prompt, RunKind.DISPATCH, args.timeout_s)
        most = texts.FAN_OUT_CHARS // max(1, len(found)) - 200
        return texts.as_json({each.name: each.record(most) for each in found})

    async def _tasks(self, caller: DelegatingTurn, tasks: list[TeamTask]) -> str:
        """Give each task to an agent that fits.

        The tasks of one call spread over several agents.
        """
        orders = [
            _order(caller, task, caller.key(number), RunKind.DISPATCH)
            for number, task in enumerate(tasks)
        ]
        rankings: list[Ranking | Refused] = []
        most = texts.FAN_OUT_CHARS // len(tasks) - 200
        try:
            for order in orders:
                try:
                    found = await self.router.choose(caller, order.call, order.needs, Match.ANY)
                    rankings.append(found)
                except NotFound as error:
                    rankings.append(error)
            records = await wait_all(
                (f"dispatch:{number}", self._one_task(caller, order, ranking, number, most))
                for number, (order, ranking) in enumerate(zip(orders, rankings, strict=True))
            )
        finally:
            for order in orders:
                self.router.placed(order.call)
        return texts.as_json(records)

    async def _one_task(
        self,
        caller: DelegatingTurn,
        order: _Order,
        ranking: Ranking | Refused,
        number: int,
        most: int,
    ) -> dict[str, Any]:
        head: dict[str, Any] = {"task": number, "capability": ", ".join(order.needs)}
        if isinstance(ranking, Refused):
            return {**head, "ok": False, "attempts": 0, "error": ranking.message}
        found = await self._attempts(caller, order, ranking)
        last = found[-1]
        agent_id = "" if last.report is None else last.report.run.agent_id
        return {
            **head,
            "attempts": len(found),
            "agent": last.name,
            "agentId": agent_id,
            **last.record(most),
        }

    @tool("broadcast_to_agents", Effect.KEYED, Safety.MODERATE, is_optional=True, is_wait=True)
    async def broadcast(self, context: ToolContext, args: Broadcast) -> str:
        """Tell all other agents something, or ask all of them."""
        prompt, timeout_s = args.prompt, args.timeout_s
        caller = await self.service.caller(context)
        members = self._members(caller, args.team)
        if args.mode == "notify":
            mail = new_mail(prompt, idempotency_key=caller.call_id)
            sent = await self.dispatcher.broadcast(
                mail,
                names=[each.name for each in members],
                caller=caller.principal,
                asker=caller.asker,
            )
            delivered = [
                {"agent": each.agent, "message_id": each.message_id} for each in sent.copies
            ]
            return texts.as_json({"broadcast_id": sent.broadcast_id, "delivered": delivered})
        found = await self._ask_all(caller, members, prompt, RunKind.BROADCAST, timeout_s)
        good = [(each.name, each.text, each.run_id) for each in found if each.ok]
        missing = "; ".join(each.why for each in found if not each.ok)
        missing = texts.cut(missing, texts.FAN_OUT_CHARS // 2)
        if not good:
            raise EngineFailed(f"nobody answered: {missing}")
        trailer = f"\n\n---\n\nNot answered: {missing}" if missing else ""
        return texts.blocks(good, texts.FAN_OUT_CHARS - len(trailer)) + trailer

    async def _ask_all(
        self,
        caller: DelegatingTurn,
        members: list[DirectoryEntry],
        prompt: str,
        kind: RunKind,
        timeout_s: float,
    ) -> list[RunOutcome]:
        order = _Order(caller.call_id, caller.new_run(kind, prompt, lane=LaneName.PEER))
        wanted = []
        for entry in members:
            try:
                check_up(entry, caller.principal)
                wanted.append(RequestedRun(entry.name, order.run_of(entry.agent_id)))
            except Refused as error:
                wanted.append(RequestedRun(entry.name, error))
        return await run_all(self.service, caller, wanted, timeout_s)

    def _members(self, caller: DelegatingTurn, team: str) -> list[DirectoryEntry]:
        """The other agents of the team or, without one, all that are up and the caller may ask."""
        everyone = entries_of(self.service.s.directory)
        own = caller.message.agent_id
        if team:
            found = [each for each in members_of(everyone, team) if each.agent_id != own]
            for each in found:
                self.service.allow_ask(caller, each)
        else:
            found = [
                each
                for each in everyone
                if each.is_up
                and each.agent_id != own
                and all(spec.may_delegate_to(each.name) for spec in caller.specs)
            ]
        if not found:
            raise NobodyThere("there is nobody else to turn to", team=team)
        self.service.check_fan_out(len(found), MAX_FAN_OUT)
        return found

    @tool("list_team", Effect.READ, Safety.SAFE, is_optional=True, is_poll=True)
    async def listed(self, context: ToolContext, args: ListTeam) -> str:
        """List the agents with what they can do and how much they have to do."""
        own = self.service.s.directory.by_id(context.agent_id)
        loads = self.service.s.loads.open
        rows = []
        for entry in entries_of(self.service.s.directory):
            spec = self.service.s.others.spec(entry.agent_id)
            is_other_team = own is not None and own.team and entry.team != own.team
            if spec is None or is_other_team:
                continue
            if entry.agent_id == context.agent_id and not args.include_self:
                continue
            rows.append(
                {
                    "agentId": entry.agent_id,
                    "personality": entry.name,
                    "description": entry.description,
                    "role": entry.role,
                    "team": entry.team,
                    "capabilities": list(spec.capabilities),
                    "status": entry.status,
                    "activeSessions": loads.get(entry.agent_id, 0),
                    "model": spec.named_model,
                }
            )
        return texts.cut(texts.as_json(rows), texts.TEAM_CHARS)


def _order(
    caller: DelegatingTurn, task: TeamTask, call: str, kind: RunKind, **facts: Any
) -> _Order:
    new = caller.new_run(kind, task.prompt, lane=LaneName.PEER, **facts)
    needs = (*task.capability, *task.required_capabilities)
    return _Order(call, new, needs, task.timeout_s, task.retries)
