"""``agent_spawn``, ``agent_wait``, ``agent_stop``, ``agent_steer``: runs that the caller controls.

``agent_id`` is the id of the run: programs that know these tools expect this name.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from agentsup.agents.delegation import texts
from agentsup.agents.delegation.service import DelegatingTurn, DelegationService
from agentsup.agents.delegation.tools.delegate import MAX_LABEL_CHARS, Label, Seconds
from agentsup.agents.pipeline.ceiling import matches
from agentsup.agents.roles.limits import bounds_of
from agentsup.agents.tools.arguments import (
    Arguments,
    Needed,
    Text,
    Texts,
    between,
    whole,
)
from agentsup.agents.tools.declaring import tool, tools_of
from agentsup.kit.clock import Clock
from agentsup.model.errors import Conflict, Forbidden, Gone, NotFound
from agentsup.model.task import RunKind
from agentsup.model.tool import Effect, Safety, Tool, ToolContext
from agentsup.tasks import lineage, one_line

WAIT_S = 300.0
MAX_INHERITED = 50
MAX_QUEUED_S = 366 * 86_400.0

_QUEUED = between(0, MAX_QUEUED_S, "must be over 0 seconds and at most a year", has_low=False)


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

    timeout: Seconds = Field(WAIT_S, description="Seconds; default 300, 0 to look only.")


class Steer(OneRun):
    """The arguments of ``agent_steer``."""

    text: Needed


def spawning_tools(ctx: DelegationService, clock: Clock) -> tuple[Tool, ...]:
    """The tools, all of them only for agents whose ``tools`` name them."""
    return tools_of(_Spawning(ctx, clock))


class _Spawning:
    def __init__(self, ctx: DelegationService, clock: Clock) -> None:
        self._service = ctx
        self._clock = clock

    @tool("agent_spawn", Effect.KEYED, Safety.MODERATE, is_optional=True)
    async def spawn(self, context: ToolContext, args: Spawn) -> str:
        """Start a run of its own and go on at once; look after it with agent_wait."""
        named, allowed, timeout_s = args.agent, args.allowed_tools, args.timeout
        caller = await self._service.caller(context)
        try:
            target = await self._service.target_named(caller, named)
        except (NotFound, Gone):
            target = ""  # then the name is only a label of the run
        await self._check_tools(caller, target, named, allowed or ())
        now = self._clock.now_ms()
        new = caller.new_run(
            RunKind.SPAWN,
            args.instruction,
            target=target,
            label=named,
            summary=named or one_line(args.spawn_reason, MAX_LABEL_CHARS),
            key=caller.call_id,
            expires_at=None if timeout_s is None else now + round(1000 * timeout_s),
        )
        run = await self._service.start(
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
        spec = self._service.s.others.spec(agent_id) if agent_id else caller.spec
        if spec is None:
            return
        bounds = bounds_of(spec, role or spec.role or "", await self._service.s.roles().registry())
        for ceiling in (bounds.ceiling, bounds.tools):
            for each in allowed:
                if ceiling is not None and not matches(each, ceiling):
                    raise Forbidden(f"{each} is beyond what {named} may use", tool=each)

    @tool("agent_wait", Effect.READ, Safety.SAFE, is_optional=True, is_poll=True)
    async def wait(self, context: ToolContext, args: WaitForRun) -> str:
        """Wait for a run. At the deadline it goes on, and the result says why it has not ended."""
        caller = await self._service.caller(context)
        await self._service.known(caller, args.agent_id)
        runs = self._service.s.runs
        report = await runs.wait(args.agent_id, args.timeout, asker=caller.asker)
        return texts.as_json(texts.wait_result(report))

    @tool("agent_stop", Effect.IDEMPOTENT, Safety.SAFE, is_optional=True)
    async def stop(self, context: ToolContext, args: OneRun) -> str:
        """End a run."""
        run_id = args.agent_id
        caller = await self._service.caller(context)
        report = await self._service.known(caller, run_id)
        if report.is_ended:
            status = texts.status_of(report)
            raise Conflict(f"run {run_id} is already {status}", run_id=run_id, status=status)
        stopped = await self._service.s.runs.stop(run_id, caller.principal, asker=caller.asker)
        return texts.as_json({"agent_id": run_id, "status": texts.status_of(stopped)})

    @tool("agent_steer", Effect.BLIND, Safety.SAFE, is_optional=True)
    async def steer(self, context: ToolContext, args: Steer) -> str:
        """Tell a run something more while it works."""
        run_id = args.agent_id
        caller = await self._service.caller(context)
        await self._service.known(caller, run_id)
        await self._service.s.runs.steer(
            run_id, self._service.s.redact(args.text), caller.principal
        )
        return texts.as_json({"agent_id": run_id, "told": True})
