"""``delegate_task`` and ``mixture_of_agents``: delegate work, or ask several agents or roles.

A delegated run is in the caller's own mailbox and uses its slots and budget. It works as the agent
or in the role that was named. Runs are keyed by the call, so a turn that is resumed finds them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from agentsup.agents.delegation import texts
from agentsup.agents.delegation.fan_out import run_all
from agentsup.agents.delegation.service import (
    MAX_WAIT_S,
    DelegatingTurn,
    DelegationService,
    RequestedRun,
)
from agentsup.agents.pipeline.ceiling import matches
from agentsup.agents.roles.limits import bounds_of
from agentsup.agents.tools.declaring import (
    Arguments,
    Check,
    Flag,
    Needed,
    Text,
    Texts,
    between,
    choice,
    line,
    tool,
    tools_of,
    whole,
)
from agentsup.kit.clock import Clock
from agentsup.mailbox.mail import check_up
from agentsup.model.errors import (
    BadRequest,
    Conflict,
    EngineFailed,
    Forbidden,
    Gone,
    NotFound,
    Refused,
)
from agentsup.model.message import LaneName
from agentsup.model.task import RunKind
from agentsup.model.tool import Effect, Safety, Tool, ToolContext
from agentsup.tasks import NewRun, lineage, one_line

WAIT_S = 600.0
BACKGROUND_USD = 1.0
"""The most that a background run may cost, in US dollars, by default. A null limit is none."""
MAX_USD = 1e6
MAX_MINDS = 5
MAX_LABEL_CHARS = 120
_LABEL = re.compile(r"[a-z0-9-]{1,32}")

Seconds = Annotated[float, between(0, MAX_WAIT_S, f"must be 0 to {MAX_WAIT_S:.0f} seconds")]
"""A time limit in seconds."""
Label = Annotated[str, line(MAX_LABEL_CHARS)]
_WAITS = f"Seconds to wait at most; default {WAIT_S:.0f}."
_USD = between(0, MAX_USD, f"must be over 0 and at most {MAX_USD:,.0f}", has_low=False)
RUN_WAIT_S = 300.0
MAX_INHERITED = 50
MAX_QUEUED_S = 366 * 86_400.0

_QUEUED = between(0, MAX_QUEUED_S, "must be over 0 seconds and at most a year", has_low=False)


class Delegate(Arguments):
    """The arguments of ``delegate_task``."""

    also: ClassVar = {"prompt": ("task",)}
    nullable: ClassVar = frozenset(["max_cost_usd"])

    prompt: Needed = Field(description="The whole task: whoever does it sees only it.")
    task: Text = Field("", description="Another name of prompt.")
    agent: Text = Field("", description="The agent as whose persona it is done; see list_agents.")
    role: Text = Field("", description="Or in which role.")
    personality: Text = Field("", description="Another name of agent or role.")
    label: Label = Field("", description="A short name: a-z, 0-9 and dashes.")
    return_mode: Annotated[str, choice("full", "summary")] = Field(
        "full", description="summary: only the summary of the answer comes back."
    )
    background: Flag = Field(False, description="Don't wait; the result comes as a message later.")
    timeout: Seconds = Field(WAIT_S, description=_WAITS)
    max_cost_usd: Annotated[
        float | None,
        Check(
            lambda value: None if value is None else _USD.run(value), {"type": ["number", "null"]}
        ),
    ] = Field(
        None,
        description=f"Most it may cost; in the background {BACKGROUND_USD:g} unless given, "
        "null for no bound of its own.",
    )


class Mind(Arguments):
    """One of the agents that ``mixture_of_agents`` asks."""

    prompt: Needed
    personality: Text = Field("", description="An agent or a role; without it, you.")
    label: Label = ""


class Mixture(Arguments):
    """The arguments of ``mixture_of_agents``."""

    agents: list[Mind] = Field([], description=f"1 to {MAX_MINDS}.")
    prompts: list[Mind] = Field([], description="The same as agents.")
    synthesis_prompt: Text = Field(
        "", description="How the answers are to be made into one; without it they come as is."
    )
    timeout: Seconds = Field(WAIT_S, description=_WAITS)


def delegation_tools(ctx: DelegationService) -> tuple[Tool, ...]:
    """The tools. ``delegate_task`` is on by default, the other one must be named in ``tools``."""
    return tools_of(_Delegation(ctx))


@dataclass(frozen=True, slots=True)
class _Delegation:
    """The functions of the tools, on behalf of the turn that calls them."""

    service: DelegationService

    @tool("delegate_task", Effect.KEYED, Safety.MODERATE, is_wait=True)
    async def delegate(self, context: ToolContext, args: Delegate) -> str:
        """Have a task done in a session of its own, in the place of another agent or in a role, for
        you and on your budget."""
        label, is_short, background = args.label, args.return_mode == "summary", args.background
        if background and not _LABEL.fullmatch(label):
            raise BadRequest(
                "work in the background needs a label of 1 to 32 characters a-z, 0-9 and dashes",
                field="label",
            )
        max_usd = args.max_cost_usd
        if background and "max_cost_usd" not in args.model_fields_set:
            max_usd = BACKGROUND_USD
        caller = await self.service.caller(context)
        target, name = await self._target(caller, args)
        new = caller.new_run(
            RunKind.DELEGATE,
            args.prompt + texts.ASK_SUMMARY if is_short else args.prompt,
            target=target,
            label=label,
            key=caller.call_id,
            max_usd=max_usd,
            summary=label,
        )
        run = await self.service.start(caller, new, is_waited=not background)
        if background:
            return texts.as_json(
                {
                    "run_id": run.run_id,
                    "jobId": run.run_id,
                    "childSessionKey": run.session_id,
                    "status": "queued",
                }
            )
        report = await self.service.wait(caller, run.run_id, args.timeout)
        if not report.is_ended:
            return texts.labelled(label, f"It is {texts.running_note(report)}.")
        if report.status != "done":
            raise EngineFailed(
                f"{name} did not do it: {texts.failure_of(report)}", run_id=run.run_id
            )
        text = report.run.result
        text = texts.summary_of(text) if is_short else text
        return texts.labelled(label, text)

    async def _target(self, caller: DelegatingTurn, args: Delegate) -> tuple[str, str]:
        """The target of the run, and its name for messages."""
        agent, role, either = args.agent, args.role, args.personality
        if sum(map(bool, (agent, role, either))) > 1:
            raise BadRequest("name one of agent, role and personality", field="agent")
        if either:
            return await self.service.target_named(caller, either), either
        target = await self.service.target(caller, agent=agent, role=role)
        return target, agent or role or "the run"

    # -- several answers to one question -----------------------------------------------------------

    @tool(
        "mixture_of_agents",
        Effect.KEYED,
        Safety.MODERATE,
        is_optional=True,
        is_outside=True,
        is_wait=True,
    )
    async def mixture(self, context: ToolContext, args: Mixture) -> str:
        """Put prompts to several agents at once and get all of their answers, or one made of
        them."""
        minds = args.agents or args.prompts
        synthesis, timeout_s = args.synthesis_prompt, args.timeout
        self.service.check_fan_out(len(minds), MAX_MINDS)
        caller = await self.service.caller(context)
        wanted = []
        for number, mind in enumerate(minds, 1):
            name = mind.label or mind.personality or f"mind {number}"
            try:
                new = await self._mind(caller, mind.prompt, mind.personality, number)
                wanted.append(RequestedRun(name, new))
            except Refused as error:
                wanted.append(RequestedRun(name, error))
        found = await run_all(self.service, caller, wanted, timeout_s)
        good = [(each.name, each.text, each.run_id) for each in found if each.ok]
        if not good:
            why = "; ".join(f"{each.name}: {each.text}" for each in found)
            raise EngineFailed(texts.cut(why, texts.MIXTURE_CHARS))
        blocks = [
            (each.name, each.text if each.ok else f"({each.text})", each.run_id) for each in found
        ]
        if not synthesis:
            return texts.blocks(blocks, texts.MIXTURE_CHARS)
        made = await self._synthesis(caller, synthesis, good, timeout_s)
        if not made:
            return texts.blocks(blocks, texts.MIXTURE_CHARS)
        return texts.blocks([*blocks, ("Synthesis", made, "")], texts.MIXTURE_CHARS)

    async def _mind(self, caller: DelegatingTurn, prompt: str, who: str, number: int) -> NewRun:
        """The run for one answer: by another agent itself, or by the caller, perhaps in a role."""
        services, own = self.service.s, caller.message.agent_id
        agent_id, lane, target = own, LaneName.BACKGROUND, ""
        try:
            entry = services.directory.lookup(who) if who else None
        except NotFound:
            entry, target = None, await self.service.target_named(caller, who)
        if entry is not None and entry.agent_id != own:
            self.service.allow_ask(caller, entry)
            check_up(entry, caller.principal)
            agent_id, lane = entry.agent_id, LaneName.PEER
        return caller.new_run(
            RunKind.MIXTURE,
            prompt,
            agent_id=agent_id,
            target=target,
            label=f"mind-{number}",
            key=caller.key(number),
            lane=lane,
        )

    async def _synthesis(
        self,
        caller: DelegatingTurn,
        prompt: str,
        good: list[tuple[str, str, str]],
        timeout_s: float,
    ) -> str:
        """One answer made of all; empty if that fails, since the answers themselves are enough."""
        new = caller.new_run(
            RunKind.MIXTURE,
            f"{prompt}\n\n{texts.blocks(good, texts.MIXTURE_CHARS)}",
            label="synthesis",
            key=caller.key("synthesis"),
        )
        requested = [RequestedRun("synthesis", new)]
        [found] = await run_all(self.service, caller, requested, timeout_s)
        return found.text if found.ok else ""


class Spawn(Arguments):
    """The arguments of ``agent_spawn``."""

    instruction: Needed = Field(description="The whole task.")
    agent: Label = Field("", description="An agent or a role; else it is only a label.")
    allowed_tools: Texts | None = Field(
        None, description="The only tools it may use; names or patterns such as fs_*."
    )
    spawn_reason: Text = ""
    timeout: Annotated[float, _QUEUED] | None = Field(
        None, description="Seconds it may wait for its turn."
    )
    inherit_last: Annotated[int, whole(0, MAX_INHERITED)] = Field(
        0, description=f"How many of the last entries here it begins with, 0 to {MAX_INHERITED}."
    )


class OneRun(Arguments):
    """The arguments of ``agent_stop``."""

    agent_id: Needed = Field(description="What agent_spawn gave back.")


class WaitForRun(OneRun):
    """The arguments of ``agent_wait``."""

    timeout: Seconds = Field(RUN_WAIT_S, description="Seconds; default 300, 0 to look only.")


class Steer(OneRun):
    """The arguments of ``agent_steer``."""

    text: Needed


def spawning_tools(ctx: DelegationService, clock: Clock) -> tuple[Tool, ...]:
    """The tools, all of them only for agents whose ``tools`` name them."""
    return tools_of(_Spawning(ctx, clock))


@dataclass(frozen=True, slots=True)
class _Spawning:
    service: DelegationService
    clock: Clock

    @tool("agent_spawn", Effect.KEYED, Safety.MODERATE, is_optional=True)
    async def spawn(self, context: ToolContext, args: Spawn) -> str:
        """Start a run of its own and go on at once; look after it with agent_wait."""
        named, allowed, timeout_s = args.agent, args.allowed_tools, args.timeout
        caller = await self.service.caller(context)
        try:
            target = await self.service.target_named(caller, named)
        except (NotFound, Gone):
            target = ""  # then the name is only a label of the run
        await self._check_tools(caller, target, named, allowed or ())
        now = self.clock.now_ms()
        new = caller.new_run(
            RunKind.SPAWN,
            args.instruction,
            target=target,
            label=named,
            summary=named or one_line(args.spawn_reason, MAX_LABEL_CHARS),
            key=caller.call_id,
            expires_at=None if timeout_s is None else now + round(1000 * timeout_s),
        )
        run = await self.service.start(
            caller, new, is_waited=False, tools=allowed, inherit_last=args.inherit_last
        )
        return texts.as_json(
            {
                "agent_id": run.run_id,
                "status": "spawned",
                "requested_agent": named,
                "spawn_reason": args.spawn_reason,
            }
        )

    async def _check_tools(
        self, caller: DelegatingTurn, target: str, named: str, allowed: tuple[str, ...]
    ) -> None:
        """Raise ``Forbidden`` for a tool that the run's agent or role may not use anyway."""
        agent_id, role = lineage.subject_of(target)
        if not allowed or not target:
            return
        spec = self.service.s.others.spec(agent_id) if agent_id else caller.spec
        if spec is None:
            return
        bounds = bounds_of(spec, role or spec.role or "", await self.service.s.roles().registry())
        for ceiling in (bounds.ceiling, bounds.tools):
            for each in allowed:
                if ceiling is not None and not matches(each, ceiling):
                    raise Forbidden(f"{each} is beyond what {named} may use", tool=each)

    @tool("agent_wait", Effect.READ, Safety.SAFE, is_optional=True, is_poll=True)
    async def wait(self, context: ToolContext, args: WaitForRun) -> str:
        """Wait for a run. At the deadline it goes on, and the result says why it has not ended."""
        caller = await self.service.caller(context)
        await self.service.known(caller, args.agent_id)
        runs = self.service.s.runs
        report = await runs.wait(args.agent_id, args.timeout, asker=caller.asker)
        return texts.as_json(texts.wait_result(report))

    @tool("agent_stop", Effect.IDEMPOTENT, Safety.SAFE, is_optional=True)
    async def stop(self, context: ToolContext, args: OneRun) -> str:
        """End a run."""
        run_id = args.agent_id
        caller = await self.service.caller(context)
        report = await self.service.known(caller, run_id)
        if report.is_ended:
            status = texts.status_of(report)
            raise Conflict(f"run {run_id} is already {status}", run_id=run_id, status=status)
        stopped = await self.service.s.runs.stop(run_id, caller.principal, asker=caller.asker)
        return texts.as_json({"agent_id": run_id, "status": texts.status_of(stopped)})

    @tool("agent_steer", Effect.BLIND, Safety.SAFE, is_optional=True)
    async def steer(self, context: ToolContext, args: Steer) -> str:
        """Tell a run something more while it works."""
        run_id = args.agent_id
        caller = await self.service.caller(context)
        await self.service.known(caller, run_id)
        await self.service.s.runs.steer(run_id, self.service.s.redact(args.text), caller.principal)
        return texts.as_json({"agent_id": run_id, "told": True})
