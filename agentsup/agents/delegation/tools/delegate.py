"""``delegate_task`` and ``mixture_of_agents``: delegate work, or ask several agents or roles.

A delegated run is in the caller's own mailbox and uses its slots and budget. It works as the agent
or in the role that was named. Runs are keyed by the call, so a turn that is resumed finds them.
"""

from __future__ import annotations

import re
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
from agentsup.agents.tools.arguments import (
    Arguments,
    Check,
    Flag,
    Needed,
    Text,
    between,
    choice,
    line,
)
from agentsup.agents.tools.declaring import tool, tools_of
from agentsup.mailbox.mail import check_up
from agentsup.model.errors import BadRequest, EngineFailed, NotFound, Refused
from agentsup.model.message import LaneName
from agentsup.model.task import RunKind
from agentsup.model.tool import Effect, Safety, Tool, ToolContext
from agentsup.tasks import NewRun

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


class _Delegation:
    """The functions of the tools, on behalf of the turn that calls them."""

    def __init__(self, ctx: DelegationService) -> None:
        self._service = ctx

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
        caller = await self._service.caller(context)
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
        run = await self._service.start(caller, new, is_waited=not background)
        if background:
            return texts.as_json(
                {
                    "run_id": run.run_id,
                    "jobId": run.run_id,
                    "childSessionKey": run.session_id,
                    "status": "queued",
                }
            )
        report = await self._service.wait(caller, run.run_id, args.timeout)
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
            return await self._service.target_named(caller, either), either
        target = await self._service.target(caller, agent=agent, role=role)
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
        self._service.check_fan_out(len(minds), MAX_MINDS)
        caller = await self._service.caller(context)
        wanted = []
        for number, mind in enumerate(minds, 1):
            name = mind.label or mind.personality or f"mind {number}"
            try:
                new = await self._mind(caller, mind.prompt, mind.personality, number)
                wanted.append(RequestedRun(name, new))
            except Refused as error:
                wanted.append(RequestedRun(name, error))
        found = await run_all(self._service, caller, wanted, timeout_s)
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
        services, own = self._service.s, caller.message.agent_id
        agent_id, lane, target = own, LaneName.BACKGROUND, ""
        try:
            entry = services.directory.lookup(who) if who else None
        except NotFound:
            entry, target = None, await self._service.target_named(caller, who)
        if entry is not None and entry.agent_id != own:
            self._service.allow_ask(caller, entry)
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
        [found] = await run_all(self._service, caller, requested, timeout_s)
        return found.text if found.ok else ""
