"""The tool ``remind``: an agent sets a reminder for the person for whom it works."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pydantic import Field

from agentsup.agents.delegation import texts
from agentsup.agents.delegation.service import DelegationService
from agentsup.agents.tools.declaring import Arguments, Needed, tool, tools_of
from agentsup.kit.clock import Clock
from agentsup.model.errors import BadRequest, NotReady
from agentsup.model.task import NewTask, TaskAction
from agentsup.model.tool import Effect, Safety, Tool, ToolContext
from agentsup.tasks import TaskHub, local_time, spoken_time


class Remind(Arguments):
    """The arguments of ``remind``."""

    text: Needed = Field(description="What the person is told then.")
    when: Needed = Field(
        description="'tomorrow 8', 'in 2h', 'friday 18:30', 'every monday 9', '2026-12-24T18:00'."
    )


def reminder_tools(
    ctx: DelegationService, hub: Callable[[], TaskHub | None], clock: Clock
) -> tuple[Tool, ...]:
    """The tool; ``hub`` gives None while tasks are turned off."""
    return tools_of(_Reminders(ctx, hub, clock))


@dataclass(frozen=True, slots=True)
class _Reminders:
    service: DelegationService
    find_hub: Callable[[], TaskHub | None]
    clock: Clock

    @tool("remind", Effect.KEYED, Safety.MODERATE)
    async def remind(self, context: ToolContext, args: Remind) -> str:
        """Have the person reminded in this chat at a time, or again and again, without a model.
        task_list, task_update and task_cancel list, move and end reminders."""
        hub = self.find_hub()
        if hub is None:
            raise NotReady("tasks are turned off here ([tasks] enabled in config.toml)")
        caller = await self.service.caller(context)
        language = caller.message.principal.language
        zone = hub.zone_for(caller.message.agent_id, caller.principal)
        spoken = spoken_time(args.when, now_ms=self.clock.now_ms(), zone=zone, language=language)
        if spoken is None or spoken.text:
            raise BadRequest(
                f"the time {args.when[:80]!r} is not understood: write 'tomorrow 8', 'in 2h', "
                "'friday 18:30', 'every monday 9' or '2026-12-24T18:00'",
                field="when",
            )
        if spoken.is_past:
            now = local_time(self.clock.now_ms(), zone)
            raise BadRequest(f"{args.when!r} is past: it is {now} now", field="when")
        new = NewTask(
            self.service.s.redact(args.text),
            schedule=spoken.schedule,
            idempotency_key=caller.call_id,
            does=TaskAction.TELL,
        )
        task = await hub.create(
            new, caller=replace(caller.principal, language=language), asker=caller.asker
        )
        times = (await hub.schedules([task]))[task.task_id]
        at = local_time(times.next_at, times.zone) if times.next_at is not None else ""
        return texts.as_json({"task_id": task.task_id, "next_at": at, "zone": times.zone})
