"""``/remind``: reminders in the chat where they are asked for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime, time

from agentsup.catalogue import LocalizedTexts, words
from agentsup.commands.dispatch import (
    Command,
    CommandServices,
    chat_of,
    page_of,
    turning,
    wanted_page,
)
from agentsup.commands.texts import moment, schedule_text
from agentsup.mailbox.delivery import preview
from agentsup.model.control import CommandButton, CommandContext, CommandReply
from agentsup.model.errors import BadRequest, Conflict, Forbidden
from agentsup.model.principal import PersonRole
from agentsup.model.task import NewTask, Schedule, Task, TaskAction, TaskState
from agentsup.tasks import MORNING, SHOWN_ID_CHARS, SpokenTime, TaskHub, local_time, spoken_time

PER_PAGE = 8
_BUTTON_CHARS = 28

Verb = Callable[[CommandContext, TaskHub, str, str], Awaitable[CommandReply]]


class _Reminders:
    def __init__(self, services: CommandServices, hub: TaskHub | None) -> None:
        self._services = services
        self._hub = hub
        self._verbs: dict[str, Verb] = {
            "cancel": self._cancel,
            "done": self._done,
            "later": self._later,
        }

    async def remind(self, context: CommandContext, rest: str) -> CommandReply:
        say = words(context.language)
        if self._hub is None:
            raise Conflict(say("tasks.off"))
        first, _, more = rest.partition(" ")
        verb, (task_id, _, text) = first.casefold(), more.strip().partition(" ")
        if verb in self._verbs and task_id:
            return await self._verbs[verb](context, self._hub, task_id, text.strip())
        if (number := wanted_page(more if verb == "list" else rest)) is not None:
            return await self._list(context, self._hub, number)
        return await self._new(context, self._hub, rest)

    async def _list(self, context: CommandContext, hub: TaskHub, number: int) -> CommandReply:
        say, now = words(context.language), self._services.clock.now_ms()
        found = await hub.reminders(chat_of(context), caller=context.principal)
        if context.is_shared:
            here = (context.channel, context.conversation)
            found = [
                each
                for each in found
                if (each[0].deliver_to.channel, each[0].deliver_to.conversation) == here
            ]
        if not found:
            return CommandReply(say("remind.none"))
        page = page_of(found, number, PER_PAGE)
        lines = [heading] if (heading := page.heading(say)) else []
        lines += [f"⏰ {self._line(*each, now, say)}" for each in page.items]
        lines.append(say("remind.how"))
        rows = tuple(
            (
                CommandButton(
                    f"✖ {preview(task.name, _BUTTON_CHARS)}",
                    f"/remind cancel {task.task_id}",
                    once=True,
                ),
            )
            for task, _ in page.items
        )
        return CommandReply("\n".join(lines), buttons=(*rows, *turning(page, "/remind")))

    def _line(self, task: Task, schedule: Schedule, now: int, say: LocalizedTexts) -> str:
        when = moment(schedule.next_at or now, schedule.zone, now, say)
        again = f" ({schedule_text(schedule, say)})" if schedule.kind != "at" else ""
        return f"{preview(task.name, 80)}\n   {task.task_id[-SHOWN_ID_CHARS:]}, {when}{again}"

    async def _new(self, context: CommandContext, hub: TaskHub, rest: str) -> CommandReply:
        say = words(context.language)
        if context.principal.role < PersonRole.USER:
            raise Forbidden(say("press.viewer"))
        spoken = self._spoken(context, hub, rest)
        if not spoken.text:
            raise BadRequest(say("remind.say_what"), field="text")
        task = await self._created(context, hub, spoken.text, spoken)
        return await self._set(context, hub, task)

    async def _later(
        self, context: CommandContext, hub: TaskHub, task_id: str, text: str
    ) -> CommandReply:
        task, schedule = await self._found(context, hub, task_id)
        spoken = self._spoken(context, hub, text, schedule)
        if spoken.text:
            raise BadRequest(words(context.language)("remind.say_when"), field="when")
        if schedule.kind == "at":
            task = await hub.reschedule(task.task_id, spoken.schedule, caller=context.principal)
        else:  # a repeating reminder keeps its times; this adds an extra one
            task = await self._created(context, hub, task.prompt, spoken)
        return await self._set(context, hub, task)

    async def _done(
        self, context: CommandContext, hub: TaskHub, task_id: str, text: str
    ) -> CommandReply:
        """End a reminder that comes once; a repeating one stays."""
        task, schedule = await self._found(context, hub, task_id)
        if task.state is TaskState.TODO and schedule.kind == "at":
            await hub.cancel(task.task_id, caller=context.principal)
        return CommandReply(words(context.language)("remind.done", text=task.prompt))

    async def _cancel(
        self, context: CommandContext, hub: TaskHub, task_id: str, text: str
    ) -> CommandReply:
        task, _ = await self._found(context, hub, task_id)
        await hub.cancel(task.task_id, caller=context.principal)
        return CommandReply(words(context.language)("remind.cancelled", text=task.prompt))

    # -- what they share ---------------------------------------------------------------------------

    async def _found(
        self, context: CommandContext, hub: TaskHub, task_id: str
    ) -> tuple[Task, Schedule]:
        card = await hub.card(task_id, caller=context.principal, runs=0)
        if card.task.does is not TaskAction.TELL or card.schedule is None:
            raise BadRequest(words(context.language)("remind.no_reminder", id=task_id), field="id")
        return card.task, card.schedule

    def _spoken(
        self, context: CommandContext, hub: TaskHub, text: str, before: Schedule | None = None
    ) -> SpokenTime:
        """The time in ``text``; a day alone means the time of day of ``before``."""
        say, now = words(context.language), self._services.clock.now_ms()
        zone = hub.zone_for(context.agent_id, context.principal)
        day_time = MORNING
        if before is not None and before.kind == "at":
            day_time = _time_of_day(before)
        spoken = spoken_time(
            text, now_ms=now, zone=zone, language=context.language, day_time=day_time
        )
        if spoken is None:
            raise BadRequest(say("remind.say"), field="when")
        if spoken.is_past:
            raise BadRequest(say("remind.past"), field="when")
        return spoken

    async def _created(
        self, context: CommandContext, hub: TaskHub, text: str, spoken: SpokenTime
    ) -> Task:
        new = NewTask(
            text,
            agent=context.agent_name,
            schedule=spoken.schedule,
            deliver_to=chat_of(context),
            idempotency_key=context.key,
            does=TaskAction.TELL,
        )
        who = context.principal
        return await hub.create(new, caller=replace(who, language=context.language or who.language))

    async def _set(self, context: CommandContext, hub: TaskHub, task: Task) -> CommandReply:
        say, now = words(context.language), self._services.clock.now_ms()
        schedule = (await hub.schedules([task]))[task.task_id]
        cancel = CommandButton(say("button.cancel"), f"/remind cancel {task.task_id}", once=True)
        return CommandReply(
            say("remind.set", line=self._line(task, schedule, now, say)), buttons=((cancel,),)
        )


def _time_of_day(schedule: Schedule) -> time:
    local = datetime.fromisoformat(local_time(schedule.anchor_at, schedule.zone))
    return local.time().replace(microsecond=0)


def remind_command(services: CommandServices, hub: TaskHub | None) -> Command:
    """The command. If ``hub`` is None, tasks are switched off and it says so."""
    usage = "WHEN TEXT | list | later ID WHEN | done ID | cancel ID"
    return Command("remind", usage, "be reminded here", _Reminders(services, hub).remind)
