"""``delegate_task`` and ``mixture_of_agents``: having work done, and several minds on one question.

A delegated run is in the caller's own mailbox: its slots and its budget, in the place of the agent or
in the role that was named. Runs are keyed by the call, so a turn that starts again meets them.
"""

from __future__ import annotations

import re
from typing import Any

from agentsup.agents.delegation import answers
from agentsup.agents.delegation.desk import MAX_WAIT_S, Caller, DelegationDesk, Wanted
from agentsup.agents.delegation.fan_out import FanOut
from agentsup.agents.tools import arguments
from agentsup.mailbox.bus import check_up
from agentsup.model.errors import BadRequest, EngineFailed, NotFound, Refused
from agentsup.model.ids import AgentId
from agentsup.model.message import Lane
from agentsup.model.task import RunKind
from agentsup.model.tool import Effect, Safety, Tool, ToolContext
from agentsup.tasks.runs import NewRun

WAIT_S = 600.0
BACKGROUND_USD = 1.0
"""What a run in the background may cost where nothing is said."""
MAX_USD = 1e6
MAX_MINDS = 5
MAX_LABEL_CHARS = 120
_LABEL = re.compile(r"[a-z0-9-]{1,32}")

_TIMEOUT = {"type": "number", "description": f"Seconds to wait at most; default {WAIT_S:.0f}."}
_DELEGATE = {
    "type": "object",
    "properties": {
        "prompt": {
            "type": "string",
            "description": "The whole task: whoever does it sees only it.",
        },
        "task": {"type": "string", "description": "Another word for prompt."},
        "agent": {"type": "string", "description": "In whose place; see list_agents."},
        "role": {"type": "string", "description": "Or in which role."},
        "personality": {"type": "string", "description": "Another word for agent or role."},
        "label": {"type": "string", "description": "A short name: a-z, 0-9 and dashes."},
        "return_mode": {
            "type": "string",
            "enum": ["full", "summary"],
            "description": "summary: only the summary of the answer comes back.",
        },
        "background": {
            "type": "boolean",
            "description": "Don't wait; the result comes as a message later.",
        },
        "timeout": _TIMEOUT,
        "max_cost_usd": {
            "type": ["number", "null"],
            "description": f"Most it may cost; in the background {BACKGROUND_USD:g} unless given, "
            "null for no bound of its own.",
        },
    },
    "required": ["prompt"],
    "additionalProperties": False,
}
_MIND = {
    "type": "object",
    "properties": {
        "prompt": {"type": "string"},
        "personality": {"type": "string", "description": "An agent or a role; without it, you."},
        "label": {"type": "string"},
    },
    "required": ["prompt"],
    "additionalProperties": False,
}
_MIXTURE = {
    "type": "object",
    "properties": {
        "agents": {"type": "array", "items": _MIND, "description": f"1 to {MAX_MINDS}."},
        "prompts": {"type": "array", "items": _MIND, "description": "The same as agents."},
        "synthesis_prompt": {
            "type": "string",
            "description": "How the answers are to be made into one; without it they come as is.",
        },
        "timeout": _TIMEOUT,
    },
    "additionalProperties": False,
}


def delegation_tools(desk: DelegationDesk) -> tuple[Tool, ...]:
    """The tools over one desk; ``delegate_task`` is on by default."""
    run = _Delegation(desk)
    return (
        Tool(
            "delegate_task",
            "Have a task done in a session of its own, in the place of another agent or in a role, "
            "for you and on your budget.",
            _DELEGATE,
            run.delegate,
            Effect.KEYED,
            Safety.MODERATE,
            is_wait=True,
        ),
        Tool(
            "mixture_of_agents",
            "Put prompts to several agents at once and get all of their answers, or one made of them.",
            _MIXTURE,
            run.mixture,
            Effect.KEYED,
            Safety.MODERATE,
            is_optional=True,
            is_outside=True,
            is_wait=True,
        ),
    )


def wait_s(args: dict[str, Any], name: str = "timeout", default: float = WAIT_S) -> float:
    """How long to wait. Raises ``BadRequest``."""
    seconds = arguments.number(args, name, default=default)
    if not 0 <= seconds <= MAX_WAIT_S:
        raise BadRequest(f"the argument {name!r} must be 0 to {MAX_WAIT_S:.0f} seconds", field=name)
    return seconds


class _Delegation:
    """What the tools do, on behalf of the turn that calls them."""

    def __init__(self, desk: DelegationDesk) -> None:
        self._desk = desk
        self._fan_out = FanOut(desk)

    async def delegate(self, context: ToolContext, args: dict[str, Any]) -> str:
        prompt = arguments.needed(args, "prompt", "task")
        label = arguments.short(args, "label", MAX_LABEL_CHARS)
        is_short = arguments.choice(args, "return_mode", ("full", "summary")) == "summary"
        background, timeout_s = arguments.flag(args, "background"), wait_s(args)
        if background and not _LABEL.fullmatch(label):
            raise BadRequest(
                "work in the background needs a label of 1 to 32 characters a-z, 0-9 and dashes",
                field="label",
            )
        max_usd = arguments.optional_number(args, "max_cost_usd")
        if max_usd is not None and not 0 < max_usd <= MAX_USD:
            raise BadRequest(
                f"the argument 'max_cost_usd' must be over 0 and at most {MAX_USD:,.0f}",
                field="max_cost_usd",
            )
        if background and "max_cost_usd" not in args:
            max_usd = BACKGROUND_USD
        caller = await self._desk.caller(context)
        target, name = await self._target(caller, args)
        tracer, called = self._desk.s.tracer, (context.message_id, context.call_id)
        with tracer.waiting_for(*called, label or name) as header:
            new = NewRun(
                RunKind.DELEGATE,
                AgentId(caller.message.agent_id),
                prompt + answers.ASK_SUMMARY if is_short else prompt,
                caller.principal,
                caller.message.deliver_to,
                target=target,
                label=label,
                key=caller.call_id,
                max_usd=max_usd,
                summary=label,
                traceparent=header,
            )
            run = await self._desk.start(caller, new, is_waited=not background)
            if background:
                return answers.as_json(
                    {
                        "run_id": run.run_id,
                        "jobId": run.run_id,
                        "childSessionKey": run.session_id,
                        "status": "queued",
                    }
                )
            report = await self._desk.wait(caller, run.run_id, timeout_s)
        if not report.is_ended:
            return answers.labelled(label, f"It is {answers.still_on(report)}.")
        if report.status != "done":
            raise EngineFailed(
                f"{name} did not do it: {answers.failure_of(report)}", run_id=run.run_id
            )
        text = report.run.result
        text = answers.summary_of(text) if is_short else text
        return answers.labelled(label, text)

    async def _target(self, caller: Caller, args: dict[str, Any]) -> tuple[str, str]:
        """In whose place, and what that is called."""
        agent = arguments.text(args, "agent", default="")
        role = arguments.text(args, "role", default="")
        either = arguments.text(args, "personality", default="")
        if sum(map(bool, (agent, role, either))) > 1:
            raise BadRequest("name one of agent, role and personality", field="agent")
        if either:
            return await self._desk.place(caller, either), either
        target = await self._desk.target(caller, agent=agent, role=role)
        return target, agent or role or "the run"

    # -- several minds -------------------------------------------------------------------------------

    async def mixture(self, context: ToolContext, args: dict[str, Any]) -> str:
        minds = arguments.rows(args, "agents") or arguments.rows(args, "prompts")
        synthesis = arguments.text(args, "synthesis_prompt", default="")
        timeout_s = wait_s(args)
        self._desk.check_fan_out(len(minds), MAX_MINDS)
        asked = [
            (arguments.needed(mind, "prompt"), arguments.text(mind, "personality", default=""))
            for mind in minds
        ]
        caller = await self._desk.caller(context)
        header = self._desk.s.tracer.header_of(context.message_id, context.call_id)
        wanted: list[Wanted | tuple[str, Refused]] = []
        for number, (prompt, who) in enumerate(asked, 1):
            label = arguments.short(minds[number - 1], "label", MAX_LABEL_CHARS)
            name = label or who or f"mind {number}"
            try:
                new = await self._mind(caller, prompt, who, number, header)
            except Refused as error:
                wanted.append((name, error))
                continue
            wanted.append(Wanted(name, new))
        found = await self._fan_out.run(caller, wanted, timeout_s)
        good = [(each.name, each.text, each.run_id) for each in found if each.ok]
        if not good:
            why = "; ".join(f"{each.name}: {each.text}" for each in found)
            raise EngineFailed(answers.cut(why, answers.MIXTURE_CHARS))
        blocks = [
            (each.name, each.text if each.ok else f"({each.text})", each.run_id) for each in found
        ]
        if not synthesis:
            return answers.blocks(blocks, answers.MIXTURE_CHARS)
        made = await self._synthesis(caller, synthesis, good, timeout_s, header)
        if not made:
            return answers.blocks(blocks, answers.MIXTURE_CHARS)
        return answers.blocks([*blocks, ("Synthesis", made, "")], answers.MIXTURE_CHARS)

    async def _mind(
        self, caller: Caller, prompt: str, who: str, number: int, header: str
    ) -> NewRun:
        """One mind: an agent itself, or the caller, perhaps in a role."""
        services, own = self._desk.s, AgentId(caller.message.agent_id)
        agent_id, lane, target = own, Lane.BACKGROUND, ""
        try:
            entry = services.directory.lookup(who) if who else None
        except NotFound:
            entry, target = None, await self._desk.place(caller, who)
        if entry is not None and entry.agent_id != own:
            self._desk.allow_ask(caller, entry)
            check_up(entry, caller.principal)
            agent_id, lane = entry.agent_id, Lane.PEER
        return NewRun(
            RunKind.MIXTURE,
            agent_id,
            prompt,
            caller.principal,
            caller.message.deliver_to,
            target=target,
            label=f"mind-{number}",
            key=caller.key(number),
            lane=lane,
            traceparent=header,
        )

    async def _synthesis(
        self,
        caller: Caller,
        prompt: str,
        good: list[tuple[str, str, str]],
        timeout_s: float,
        header: str,
    ) -> str:
        """One answer made of all; empty where that fails, the answers themselves are enough then."""
        new = NewRun(
            RunKind.MIXTURE,
            AgentId(caller.message.agent_id),
            f"{prompt}\n\n{answers.blocks(good, answers.MIXTURE_CHARS)}",
            caller.principal,
            caller.message.deliver_to,
            label="synthesis",
            key=caller.key("synthesis"),
            traceparent=header,
        )
        [found] = await self._fan_out.run(caller, [Wanted("synthesis", new)], timeout_s)
        return found.text if found.ok else ""
