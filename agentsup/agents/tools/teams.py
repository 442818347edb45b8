"""``route_to_agent``, ``dispatch_team``, ``broadcast_to_agents`` and ``list_team``: work for other agents
themselves, in their own mailboxes, with their own tools and sessions.

Attempts are keyed by call and target, so no target works twice for one call; one that is still at it
when the wait ends is not replaced by another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from agentsup.agents.delegation import answers
from agentsup.agents.delegation.desk import MAX_WAIT_S, Caller, DelegationDesk, Wanted
from agentsup.agents.delegation.fan_out import FanOut, Found, told
from agentsup.agents.delegation.routes import Router
from agentsup.agents.delegation.together import together
from agentsup.agents.tools import arguments
from agentsup.agents.tools.delegation import wait_s
from agentsup.agents.tools.team_arguments import BROADCAST, DISPATCH, LIST, MAX_TASKS, ROUTE
from agentsup.mailbox.assigning import members_of
from agentsup.mailbox.bus import DirectoryEntry, check_up
from agentsup.mailbox.dispatcher import Dispatcher
from agentsup.mailbox.letters import Letter
from agentsup.mailbox.naming import peer_key
from agentsup.mailbox.reading import open_counts
from agentsup.model.errors import BadRequest, EngineFailed, NobodyThere, NotFound, Refused
from agentsup.model.ids import AgentId
from agentsup.model.message import Lane
from agentsup.model.task import RunKind
from agentsup.model.tool import Effect, Safety, Tool, ToolContext
from agentsup.tasks.runs import NewRun
from agentsup.teams.routing import Match, Ranking

MAX_RETRIES, RETRIES = 5, 2
WAIT_S = 3600.0
WHY_CHARS = 1_000
"""Of why one of many has not answered."""


def team_tools(desk: DelegationDesk, router: Router, dispatcher: Dispatcher) -> tuple[Tool, ...]:
    """The tools over one desk, all of them only for agents whose ``tools`` name them."""
    run = _Teams(desk, router, dispatcher)

    def tool(
        name: str, about: str, parameters: dict[str, Any], do: Any, *, is_read: bool = False
    ) -> Tool:
        effect, safety = (Effect.READ, Safety.SAFE) if is_read else (Effect.KEYED, Safety.MODERATE)
        return Tool(
            name,
            about,
            parameters,
            do,
            effect,
            safety,
            is_optional=True,
            is_poll=is_read,
            is_wait=not is_read,
        )

    return (
        tool(
            "route_to_agent",
            "Give work to the agent that fits it best, in that agent's own session.",
            ROUTE,
            run.route,
        ),
        tool(
            "dispatch_team",
            "Give everyone of a team one prompt, or several tasks to whoever fits each, at once.",
            DISPATCH,
            run.dispatch,
        ),
        tool(
            "broadcast_to_agents",
            "Tell all other agents something, or ask all of them.",
            BROADCAST,
            run.broadcast,
        ),
        tool(
            "list_team",
            "List the agents with what they can do and how much they have to do.",
            LIST,
            run.listed,
            is_read=True,
        ),
    )


@dataclass(frozen=True, slots=True)
class _Order:
    """Work for whoever fits."""

    call: str
    kind: RunKind
    prompt: str
    needs: tuple[str, ...]
    timeout_s: float
    retries: int
    session_key: str = ""
    is_fresh: bool = False
    header: str = ""


class _Teams:
    def __init__(self, desk: DelegationDesk, router: Router, dispatcher: Dispatcher) -> None:
        self._desk = desk
        self._router = router
        self._dispatcher = dispatcher
        self._fan_out = FanOut(desk)

    # -- to one --------------------------------------------------------------------------------------

    async def route(self, context: ToolContext, args: dict[str, Any]) -> str:
        match = Match(arguments.choice(args, "match", ("any", "all")))
        background = arguments.flag(args, "background")
        caller = await self._desk.caller(context)
        header = self._desk.s.tracer.header_of(context.message_id, context.call_id)
        order = _order(args, caller.call_id, RunKind.ROUTE)
        order = replace(
            order,
            session_key=peer_key(caller.owner.name, context.person),
            is_fresh=arguments.flag(args, "fresh"),
            header=header,
        )
        try:
            ranking = await self._router.choose(caller, order.call, order.needs, match)
            if background:
                return await self._in_background(caller, order, ranking)
            found, attempts = await self._attempts(caller, order, ranking)
        finally:
            self._router.placed(order.call)
        last = found[-1]
        if last.ok:
            return f"[{last.name}]\n\n{last.text}"
        if last.report is not None and not last.report.is_ended:
            return f"{last.name} is {last.text}."
        raise EngineFailed(
            f"nobody could do it after {attempts} attempts: " + "; ".join(map(_why, found))
        )

    async def _attempts(
        self, caller: Caller, order: _Order, ranking: Ranking
    ) -> tuple[list[Found], int]:
        """Ask one after the other until one has done it or is still at it."""
        found: list[Found] = []
        for place in ranking.ranked[: order.retries + 1]:
            new = self._run(caller, order, place.agent_id)
            with self._router.breakers.visit(self._router.breaker(place.agent_id)) as visit:
                try:
                    self._check_up(caller, place.agent_id)
                    run = await self._desk.start(caller, new, is_waited=True)
                except Refused as error:
                    found.append(Found(place.name, False, error.message, code=error.code))
                    continue
                finally:
                    self._router.placed(order.call)
                report = await self._desk.wait(caller, run.run_id, order.timeout_s)
                if report.is_ended and report.status != "cancelled":
                    visit.well = report.status == "done"
            found.append(told(place.name, report))
            if report.status != "failed":
                break
        return found, len(found)

    async def _in_background(self, caller: Caller, order: _Order, ranking: Ranking) -> str:
        first = ranking.ranked[0]
        self._check_up(caller, first.agent_id)
        run = await self._desk.start(
            caller, self._run(caller, order, first.agent_id), is_waited=False
        )
        return answers.as_json(
            {
                "run_id": run.run_id,
                "jobId": run.run_id,
                "remotePeer": first.name,
                "remoteJobId": run.run_id,
                "status": "running",
            }
        )

    def _run(self, caller: Caller, order: _Order, agent_id: str) -> NewRun:
        return NewRun(
            order.kind,
            AgentId(agent_id),
            order.prompt,
            caller.principal,
            caller.message.deliver_to,
            key=f"{order.call}:{agent_id}",
            lane=Lane.PEER,
            session_key=order.session_key,
            new_session=order.is_fresh,
            traceparent=order.header,
        )

    def _check_up(self, caller: Caller, agent_id: str) -> None:
        entry = self._desk.s.directory.by_id(agent_id)
        if entry is None:
            raise NotFound("the agent was removed meanwhile", agent=agent_id)
        check_up(entry, caller.principal)

    # -- to many -------------------------------------------------------------------------------------

    async def dispatch(self, context: ToolContext, args: dict[str, Any]) -> str:
        tasks, team = arguments.rows(args, "tasks"), arguments.text(args, "team", default="")
        if bool(tasks) == bool(team):
            raise BadRequest("give either a team with a prompt, or tasks", field="tasks")
        caller = await self._desk.caller(context)
        header = self._desk.s.tracer.header_of(context.message_id, context.call_id)
        if tasks:
            self._desk.check_fan_out(len(tasks), MAX_TASKS)
            return await self._tasks(caller, tasks, args, header)
        prompt, timeout_s = arguments.needed(args, "prompt"), _seconds(args)
        found = await self._ask_all(
            caller, self._members(caller, team), prompt, RunKind.DISPATCH, timeout_s, header
        )
        most = answers.FAN_OUT_CHARS // max(1, len(found)) - 200
        return answers.as_json({each.name: _record(each, most) for each in found})

    async def _tasks(
        self, caller: Caller, tasks: list[dict[str, Any]], args: dict[str, Any], header: str
    ) -> str:
        """Each task for whoever fits; those that one call gives out spread."""
        orders, rankings = list[_Order](), dict[int, Ranking | Refused]()
        try:
            return await self._give_out(caller, tasks, args, header, orders, rankings)
        finally:
            for order in orders:
                self._router.placed(order.call)

    async def _give_out(
        self,
        caller: Caller,
        tasks: list[dict[str, Any]],
        args: dict[str, Any],
        header: str,
        orders: list[_Order],
        rankings: dict[int, Ranking | Refused],
    ) -> str:
        for number, task in enumerate(tasks):
            order = _order({**args, **task}, caller.key(number), RunKind.DISPATCH)
            orders.append(replace(order, header=header))
            try:
                rankings[number] = await self._router.choose(
                    caller, order.call, order.needs, Match.ANY
                )
            except NotFound as error:
                rankings[number] = error
        most = answers.FAN_OUT_CHARS // len(tasks) - 200
        records = await together(
            (f"dispatch:{number}", self._one_task(caller, order, rankings[number], number, most))
            for number, order in enumerate(orders)
        )
        return answers.as_json(records)

    async def _one_task(
        self, caller: Caller, order: _Order, ranking: Ranking | Refused, number: int, most: int
    ) -> dict[str, Any]:
        head: dict[str, Any] = {"task": number, "capability": ", ".join(order.needs)}
        if isinstance(ranking, Refused):
            return {**head, "ok": False, "attempts": 0, "error": ranking.message}
        found, attempts = await self._attempts(caller, order, ranking)
        last = found[-1]
        agent_id = "" if last.report is None else last.report.run.agent_id
        return {
            **head,
            "attempts": attempts,
            "agent": last.name,
            "agentId": agent_id,
            **_record(last, most),
        }

    async def broadcast(self, context: ToolContext, args: dict[str, Any]) -> str:
        prompt = arguments.needed(args, "prompt")
        mode = arguments.choice(args, "mode", ("notify", "ask"))
        team, timeout_s = arguments.text(args, "team", default=""), _seconds(args)
        caller = await self._desk.caller(context)
        members = self._members(caller, team)
        header = self._desk.s.tracer.header_of(context.message_id, context.call_id)
        if mode == "notify":
            letter = Letter(prompt, idempotency_key=caller.call_id, traceparent=header)
            sent = await self._dispatcher.broadcast(
                letter,
                names=[each.name for each in members],
                caller=caller.principal,
                asker=caller.asker,
            )
            delivered = [
                {"agent": each.agent, "message_id": each.message_id} for each in sent.copies
            ]
            return answers.as_json({"broadcast_id": sent.broadcast_id, "delivered": delivered})
        found = await self._ask_all(caller, members, prompt, RunKind.BROADCAST, timeout_s, header)
        good = [(each.name, each.text, each.run_id) for each in found if each.ok]
        missing = "; ".join(_why(each) for each in found if not each.ok)
        missing = answers.cut(missing, answers.FAN_OUT_CHARS // 2)
        if not good:
            raise EngineFailed(f"nobody answered: {missing}")
        trailer = f"\n\n---\n\nNot answered: {missing}" if missing else ""
        return answers.blocks(good, answers.FAN_OUT_CHARS - len(trailer)) + trailer

    async def _ask_all(
        self,
        caller: Caller,
        members: list[DirectoryEntry],
        prompt: str,
        kind: RunKind,
        timeout_s: float,
        header: str,
    ) -> list[Found]:
        order = _Order(caller.call_id, kind, prompt, (), timeout_s, 0, header=header)
        wanted: list[Wanted | tuple[str, Refused]] = []
        for entry in members:
            try:
                check_up(entry, caller.principal)
            except Refused as error:
                wanted.append((entry.name, error))
                continue
            wanted.append(Wanted(entry.name, self._run(caller, order, entry.agent_id)))
        return await self._fan_out.run(caller, wanted, timeout_s)

    def _members(self, caller: Caller, team: str) -> list[DirectoryEntry]:
        """Those who are told or asked: of the team, or all that there are and the caller may ask."""
        everyone = self._entries()
        own = caller.message.agent_id
        if team:
            found = [each for each in members_of(everyone, team) if each.agent_id != own]
            for each in found:
                self._desk.allow_ask(caller, each)
        else:
            may = [all(spec.may_delegate_to(e.name) for spec in caller.specs) for e in everyone]
            found = [
                each
                for each, is_allowed in zip(everyone, may, strict=True)
                if is_allowed and each.is_up and each.agent_id != own
            ]
        if not found:
            raise NobodyThere("there is nobody else to turn to", team=team)
        self._desk.check_fan_out(len(found), MAX_FAN_OUT)
        return found

    def _entries(self) -> list[DirectoryEntry]:
        directory = self._desk.s.directory
        return [directory.lookup(name) for name in directory.names()]

    async def listed(self, context: ToolContext, args: dict[str, Any]) -> str:
        include_self = arguments.flag(args, "include_self")
        own = self._desk.s.directory.by_id(context.agent_id)
        loads = await self._desk.s.database.read(open_counts, name="teams.loads")
        rows = []
        for entry in self._entries():
            spec = self._desk.s.others.spec(entry.agent_id)
            is_other_team = own is not None and own.team and entry.team != own.team
            if spec is None or is_other_team:
                continue
            if entry.agent_id == context.agent_id and not include_self:
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
                    "model": spec.model or "",
                }
            )
        return answers.cut(answers.as_json(rows), answers.TEAM_CHARS)


MAX_FAN_OUT = 200
"""No bound of these tools' own; that of the settings holds."""


def _why(found: Found) -> str:
    return f"{found.name}: {answers.cut(found.text, WHY_CHARS)}"


def _record(found: Found, most: int) -> dict[str, Any]:
    if found.report is None:
        return {"ok": False, "error": found.text, "code": found.code}
    return answers.record(found.report, most)


def _seconds(args: dict[str, Any]) -> float:
    seconds = wait_s(args, "timeout_s", default=WAIT_S)
    return min(MAX_WAIT_S, max(1.0, seconds))


def _order(args: dict[str, Any], call: str, kind: RunKind) -> _Order:
    listed = [*_words(args, "capability"), *_words(args, "required_capabilities")]
    needs = tuple(word.strip() for text in listed for word in text.split(",") if word.strip())
    return _Order(
        call,
        kind,
        arguments.needed(args, "prompt"),
        needs,
        _seconds(args),
        arguments.whole(args, "retries", default=RETRIES, low=0, high=MAX_RETRIES),
    )


def _words(args: dict[str, Any], name: str) -> Sequence[str]:
    given = args.get(name)
    return [given] if isinstance(given, str) else arguments.texts(args, name) or ()
