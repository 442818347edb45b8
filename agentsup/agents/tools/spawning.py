"""``agent_spawn``, ``agent_wait``, ``agent_stop`` and ``agent_steer``: runs that the caller looks after.

``agent_id`` is the run's id, as programs that know these tools expect it.
"""

from __future__ import annotations

from typing import Any

from agentsup.agents.delegation import answers
from agentsup.agents.delegation.desk import Caller, DelegationDesk
from agentsup.agents.pipeline.ceiling import matches
from agentsup.agents.roles.bounds import bounds_of
from agentsup.agents.tools import arguments
from agentsup.agents.tools.delegation import MAX_LABEL_CHARS, wait_s
from agentsup.kit.clock import Clock
from agentsup.model.errors import BadRequest, Conflict, Forbidden, Gone, NotFound
from agentsup.model.ids import AgentId
from agentsup.model.task import RunKind
from agentsup.model.tool import Effect, Safety, Tool, ToolContext
from agentsup.tasks import lineage
from agentsup.tasks.making import one_line
from agentsup.tasks.runs import NewRun

WAIT_S = 300.0
MAX_INHERITED = 50
MAX_QUEUED_S = 366 * 86_400.0

_ID = {"type": "string", "description": "What agent_spawn gave back."}
_SPAWN = {
    "type": "object",
    "properties": {
        "instruction": {"type": "string", "description": "The whole task."},
        "agent": {"type": "string", "description": "An agent or a role; else it is only a label."},
        "allowed_tools": {
            "type": "array",
            "items": {"type": "string"},
            "description": "The only tools it may use; names or patterns such as fs_*.",
        },
        "spawn_reason": {"type": "string"},
        "timeout": {"type": "number", "description": "Seconds it may wait for its turn."},
        "inherit_last": {
            "type": "integer",
            "description": f"How many of the last entries here it begins with, 0 to {MAX_INHERITED}.",
        },
    },
    "required": ["instruction"],
    "additionalProperties": False,
}
_WAIT = {
    "type": "object",
    "properties": {
        "agent_id": _ID,
        "timeout": {"type": "number", "description": "Seconds; default 300, 0 to look only."},
    },
    "required": ["agent_id"],
    "additionalProperties": False,
}
_STOP = {
    "type": "object",
    "properties": {"agent_id": _ID},
    "required": ["agent_id"],
    "additionalProperties": False,
}
_STEER = {
    "type": "object",
    "properties": {"agent_id": _ID, "text": {"type": "string"}},
    "required": ["agent_id", "text"],
    "additionalProperties": False,
}


def spawning_tools(desk: DelegationDesk, clock: Clock) -> tuple[Tool, ...]:
    """The tools over one desk, all of them only for agents whose ``tools`` name them."""
    run = _Spawning(desk, clock)

    def tool(
        name: str, about: str, parameters: dict[str, Any], do: Any, effect: Effect, safety: Safety
    ) -> Tool:
        is_poll = effect is Effect.READ
        return Tool(name, about, parameters, do, effect, safety, is_optional=True, is_poll=is_poll)

    return (
        tool(
            "agent_spawn",
            "Start a run of its own and go on at once; look after it with agent_wait.",
            _SPAWN,
            run.spawn,
            Effect.KEYED,
            Safety.MODERATE,
        ),
        tool(
            "agent_wait",
            "Wait for a run. At the deadline it goes on, and you are told what holds it up.",
            _WAIT,
            run.wait,
            Effect.READ,
            Safety.SAFE,
        ),
        tool("agent_stop", "End a run.", _STOP, run.stop, Effect.IDEMPOTENT, Safety.SAFE),
        tool(
            "agent_steer",
            "Tell a run something more while it works.",
            _STEER,
            run.steer,
            Effect.BLIND,
            Safety.SAFE,
        ),
    )


class _Spawning:
    def __init__(self, desk: DelegationDesk, clock: Clock) -> None:
        self._desk = desk
        self._clock = clock

    async def spawn(self, context: ToolContext, args: dict[str, Any]) -> str:
        instruction = arguments.needed(args, "instruction")
        named = arguments.short(args, "agent", MAX_LABEL_CHARS)
        allowed = arguments.texts(args, "allowed_tools")
        timeout_s = arguments.optional_number(args, "timeout")
        if timeout_s is not None and not 0 < timeout_s <= MAX_QUEUED_S:
            raise BadRequest(
                "the argument 'timeout' must be over 0 seconds and at most a year", field="timeout"
            )
        inherited = arguments.whole(args, "inherit_last", default=0, low=0, high=MAX_INHERITED)
        reason = arguments.text(args, "spawn_reason", default="")
        caller = await self._desk.caller(context)
        try:
            target = await self._desk.place(caller, named)
        except (NotFound, Gone):
            target = ""  # then it is only what the run is called
        await self._check_tools(caller, target, named, allowed or ())
        now = self._clock.now_ms()
        new = NewRun(
            RunKind.SPAWN,
            AgentId(caller.message.agent_id),
            instruction,
            caller.principal,
            caller.message.deliver_to,
            target=target,
            label=named,
            summary=named or one_line(reason, MAX_LABEL_CHARS),
            key=caller.call_id,
            fork_last=inherited,
            expires_at=None if timeout_s is None else now + round(1000 * timeout_s),
            traceparent=self._desk.s.tracer.header_of(context.message_id, context.call_id),
        )
        run = await self._desk.start(caller, new, is_waited=False, tools=allowed)
        return answers.as_json(
            {
                "agent_id": run.run_id,
                "status": "spawned",
                "requested_agent": named,
                "spawn_reason": reason,
            }
        )

    async def _check_tools(
        self, caller: Caller, target: str, named: str, allowed: tuple[str, ...]
    ) -> None:
        """Raise ``Forbidden`` for a tool that whoever does it may not use anyway."""
        agent_id, role = lineage.subject_of(target)
        if not allowed or not target:
            return
        spec = self._desk.s.others.spec(agent_id) if agent_id else caller.spec
        if spec is None:
            return
        bounds = bounds_of(spec, role or spec.role or "", await self._desk.s.roles().book())
        for ceiling in (bounds.ceiling, bounds.tools):
            for tool in allowed:
                if ceiling is not None and not matches(tool, ceiling):
                    raise Forbidden(f"{tool} is beyond what {named} may use", tool=tool)

    async def wait(self, context: ToolContext, args: dict[str, Any]) -> str:
        run_id = arguments.needed(args, "agent_id")
        timeout_s = wait_s(args, default=WAIT_S)
        caller = await self._desk.caller(context)
        await self._desk.known(caller, run_id)
        return answers.as_json(answers.waited(await self._desk.look(caller, run_id, timeout_s)))

    async def stop(self, context: ToolContext, args: dict[str, Any]) -> str:
        run_id = arguments.needed(args, "agent_id")
        caller = await self._desk.caller(context)
        report = await self._desk.known(caller, run_id)
        if report.is_ended:
            status = answers.status_of(report)
            raise Conflict(f"run {run_id} is already {status}", run_id=run_id, status=status)
        stopped = await self._desk.s.runs.stop(run_id, caller.principal, asker=caller.asker)
        return answers.as_json({"agent_id": run_id, "status": answers.status_of(stopped)})

    async def steer(self, context: ToolContext, args: dict[str, Any]) -> str:
        run_id, text = arguments.needed(args, "agent_id"), arguments.needed(args, "text")
        caller = await self._desk.caller(context)
        await self._desk.known(caller, run_id)
        await self._desk.s.runs.steer(run_id, self._desk.s.redact(text), caller.principal)
        return answers.as_json({"agent_id": run_id, "told": True})
