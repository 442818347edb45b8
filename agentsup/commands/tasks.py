"""``/tasks`` and ``/task``: showing and controlling background work from a chat."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial

from agentsup.catalogue import LocalizedTexts, words
from agentsup.commands import background, texts
from agentsup.commands.answers import option_named
from agentsup.commands.background import BackgroundList
from agentsup.commands.dispatch import (
    Command,
    CommandServices,
    chat_of,
    page_of,
    turning,
    wanted_page,
)
from agentsup.mailbox.mail import name_in
from agentsup.mailbox.messages import answer_options
from agentsup.model.agent import MAIN
from agentsup.model.control import CommandButton, CommandButtons, CommandContext, CommandReply
from agentsup.model.errors import BadRequest, Conflict, Forbidden, NotSeen
from agentsup.model.principal import PersonRole
from agentsup.model.question import APPROVAL, Question
from agentsup.model.task import WORKING, NewTask, Schedule, Task, TaskAction, TaskState
from agentsup.tasks import TaskHub

PER_PAGE = 6
SHOWN = 10
MOST_LISTED = 200
"""The most tasks that can be paged through."""

Verb = Callable[[CommandContext, TaskHub, str, str], Awaitable[CommandReply]]


class _TaskCommands:
    def __init__(self, services: CommandServices, hub: TaskHub | None) -> None:
        self._s = services
        self._hub = hub
        self._background = BackgroundList(services)
        self._verbs: dict[str, Verb] = {
            "cancel": self._cancel,
            "resume": self._resume,
            "delete": self._delete,
            "answer": self._answer,
            "pause": partial(self._set_paused, is_paused=True),
            "unpause": partial(self._set_paused, is_paused=False),
        }

    def _tasks(self, say: LocalizedTexts) -> TaskHub:
        if self._hub is None:
            raise Conflict(say("tasks.off"))
        return self._hub

    # -- the list ----------------------------------------------------------------------------------

    async def tasks(self, context: CommandContext, rest: str) -> CommandReply:
        say = words(context.language)
        hub = self._tasks(say)
        number = wanted_page(rest)
        if number is None:
            raise BadRequest(say("tasks.say"), field="tasks")
        # In main's chat operators see all tasks; elsewhere only those of the agent of the chat.
        is_all = context.agent_name == MAIN or not context.principal.is_operator
        agent_id = "" if is_all else context.agent_id
        found = await hub.list(caller=context.principal, agent_id=agent_id, limit=MOST_LISTED)
        found = [task for task in found if task.does is not TaskAction.TELL]
        works = [work for work in await self._background.all(context) if not work.is_task]
        others = background.buttons(works, say)
        refresh = CommandButton("↻", "/tasks")
        if not found:
            parts = background.lines(works, say) or [say("tasks.none")]
            return CommandReply("\n".join(parts), buttons=(*others, (refresh,)))
        page = page_of(found, number, PER_PAGE if context.has_buttons else SHOWN)
        heading, now = page.heading(say), self._s.clock.now_ms()
        lines = [heading] if heading else []
        schedules = await hub.schedules(page.items)
        for task in page.items:
            name, schedule = self._name(task.agent_id), schedules.get(task.task_id)
            lines.append(texts.task_line(task, schedule, name, now, say))
        lines.extend(background.lines(works, say))
        lines.append(say("tasks.how"))
        refresh = CommandButton("↻", f"/tasks #{page.number}" if page.count > 1 else "/tasks")
        return CommandReply(
            "\n".join(lines),
            buttons=(
                *(self._row(task, say) for task in page.items),
                *others,
                *turning(page, "/tasks"),
                (refresh,),
            ),
        )

    def _row(self, task: Task, say: LocalizedTexts) -> tuple[CommandButton, ...]:
        opened = CommandButton(texts.task_label(task), f"/task {task.task_id}")
        return (opened, _cancel(task, "✖", say)) if task.state in WORKING else (opened,)

    # -- one task ----------------------------------------------------------------------------------

    async def task(self, context: CommandContext, rest: str) -> CommandReply:
        say = words(context.language)
        first, _, more = rest.partition(" ")
        verb, more = first.casefold(), more.strip()
        named = more if verb == "cancel" else rest
        work = await self._background.find(context, named) if named and verb != "new" else None
        if work is not None:
            if verb == "cancel":
                return await self._background.cancel(work, context)
            return self._background.show(work, context)
        hub = self._tasks(say)
        if verb == "new":
            return await self._new(context, hub, more)
        if verb in self._verbs:
            task_id, _, text = more.partition(" ")
            if not task_id:
                raise BadRequest(say("tasks.say"), field="task_id")
            return await self._verbs[verb](context, hub, task_id, text.strip())
        if not first or more:
            raise BadRequest(say("tasks.say"), field="task")
        return await self._card(context, hub, first)

    async def _card(
        self, context: CommandContext, hub: TaskHub, task_id: str, head: str = ""
    ) -> CommandReply:
        say, who = words(context.language), context.principal
        card = await hub.card(task_id, caller=who, runs=SHOWN)
        task, schedule, question = card.task, card.schedule, card.open_question
        text = texts.task_card(
            task,
            say,
            agent=self._name(task.agent_id),
            target=self._target(task),
            now=self._s.clock.now_ms(),
            runs=card.runs,
            question=question,
            schedule=schedule,
        )
        if question is not None and not context.has_buttons:
            text += "\n" + say("tasks.how_answer", id=texts.short_id(task.task_id))
        return CommandReply(
            f"{head}\n\n{text}" if head else text,
            buttons=(*_answers(task.task_id, question, say), *_acts(task, schedule, say)),
            live=f"/task {task.task_id}",
        )

    def _name(self, agent_id: str) -> str:
        return name_in(self._s.directory, agent_id)

    def _target(self, task: Task) -> str:
        kind, _, subject = task.target.partition(":")
        return self._name(subject) if kind == "agent" else subject

    # -- verbs -------------------------------------------------------------------------------------

    async def _new(self, context: CommandContext, hub: TaskHub, text: str) -> CommandReply:
        say = words(context.language)
        if context.principal.role < PersonRole.USER:
            raise Forbidden(say("press.viewer"))
        if not text:
            raise BadRequest(say("tasks.say_new"), field="text")
        chat, key = chat_of(context), context.key
        new = NewTask(text, agent=context.agent_name, deliver_to=chat, idempotency_key=key)
        task = await hub.create(new, caller=context.principal)
        return await self._card(context, hub, task.task_id, say("tasks.begun"))

    async def _cancel(
        self, context: CommandContext, hub: TaskHub, task_id: str, text: str
    ) -> CommandReply:
        say = words(context.language)
        task = await hub.cancel(task_id, caller=context.principal)
        return await self._card(context, hub, task.task_id, say("tasks.cancelled"))

    async def _resume(
        self, context: CommandContext, hub: TaskHub, task_id: str, text: str
    ) -> CommandReply:
        """Continue the task with the text, or run it again with its own prompt."""
        say = words(context.language)
        task = await hub.get(task_id, caller=context.principal)
        with _translated_unseen(say):
            task = await hub.resume(
                task.task_id,
                text or task.prompt,
                caller=context.principal,
                idempotency_key=context.key,
                shown_in=(context.channel, context.conversation),
            )
        return await self._card(context, hub, task.task_id, say("tasks.goes_on"))

    async def _delete(
        self, context: CommandContext, hub: TaskHub, task_id: str, text: str
    ) -> CommandReply:
        say = words(context.language)
        task = await hub.get(task_id, caller=context.principal)
        await hub.delete(task.task_id, caller=context.principal)
        return CommandReply(say("tasks.deleted", name=task.name), buttons=((_to_tasks(say),),))

    async def _answer(
        self, context: CommandContext, hub: TaskHub, task_id: str, text: str
    ) -> CommandReply:
        say = words(context.language)
        card = await hub.card(task_id, caller=context.principal, runs=0)
        task, question = card.task, card.open_question
        head, _, tail = text.partition(" ")
        question_id, given = (head, tail.strip()) if head.startswith("q_") else ("", text)
        if not given:
            raise BadRequest(say("tasks.say_answer"), field="text")
        if not question_id and question is not None:
            given = option_named(question, given) or given
        with _translated_unseen(say):
            await hub.answer(
                task.task_id,
                given,
                caller=context.principal,
                question_id=question_id,
                shown_in=(context.channel, context.conversation),
            )
        return await self._card(context, hub, task.task_id, say("answer.done", text=given))

    async def _set_paused(
        self, context: CommandContext, hub: TaskHub, task_id: str, text: str, *, is_paused: bool
    ) -> CommandReply:
        task = await hub.pause(task_id, caller=context.principal, is_paused=is_paused)
        return await self._card(context, hub, task.task_id)


def task_commands(services: CommandServices, hub: TaskHub | None) -> tuple[Command, ...]:
    """The two commands. If ``hub`` is None, tasks are switched off and the commands say so."""
    run = _TaskCommands(services, hub)
    usage = "ID | new TEXT | cancel|resume|delete|pause|unpause ID | answer ID TEXT"
    return (
        Command("tasks", "", "background work and its state", run.tasks),
        Command("task", usage, "one piece of background work, or a new one", run.task),
    )


@contextmanager
def _translated_unseen(say: LocalizedTexts) -> Iterator[None]:
    """Translate the error that a call was to be allowed that was not shown whole."""
    try:
        yield
    except NotSeen as unseen:
        question_id = unseen.facts["question_id"]
        parts = say("approval.not_seen", id=question_id)
        raise NotSeen(parts, question_id=question_id) from None


def _answers(task_id: str, question: Question | None, say: LocalizedTexts) -> CommandButtons:
    if question is None:
        return ()
    offered = list(
        zip(
            answer_options.labels(question.kind, question.options, say.language),
            question.options,
            strict=True,
        )
    )
    rows: CommandButtons = ()
    if question.kind == APPROVAL:
        # The card has one line of the call. What allows the call is offered below all of it.
        look = CommandButton(say("approval.show_all"), f"/question {question.question_id}")
        rows, offered = ((look,),), [each for each in offered if each[1] == answer_options.DENY]
    return rows + tuple(
        (
            CommandButton(
                shown,
                f"/task answer {task_id} {question.question_id} {option}",
                once=True,
            ),
        )
        for shown, option in offered
    )


def _acts(task: Task, schedule: Schedule | None, say: LocalizedTexts) -> CommandButtons:
    """Buttons for what may be done with a task now."""
    acts: list[CommandButton] = []
    is_reminder = task.does is TaskAction.TELL
    has_times = schedule is not None and (schedule.next_at is not None or schedule.is_paused)
    if task.state in WORKING or has_times:
        acts.append(_cancel(task, say("button.cancel"), say))
    if task.state not in WORKING:
        if not is_reminder:
            verb = "begin" if task.state is TaskState.TODO else "run_again"
            again = f"/task resume {task.task_id}"
            acts.append(CommandButton(say(f"button.{verb}"), again, once=True))
        acts.append(
            CommandButton(
                say("button.delete"),
                f"/task delete {task.task_id}",
                once=True,
                confirm=say("confirm.delete_task", name=task.name),
            )
        )
    rests: tuple[CommandButton, ...] = ()
    if schedule is not None and has_times:
        verb = "unpause" if schedule.is_paused else "pause"
        rests = (CommandButton(say(f"button.{verb}"), f"/task {verb} {task.task_id}"),)
    refresh = CommandButton("↻", f"/task {task.task_id}")
    return tuple(row for row in (tuple(acts), rests, (_to_tasks(say), refresh)) if row)


def _cancel(task: Task, shown: str, say: LocalizedTexts) -> CommandButton:
    return CommandButton(
        shown,
        f"/task cancel {task.task_id}",
        once=True,
        confirm=say("confirm.cancel_task", name=task.name),
    )


def _to_tasks(say: LocalizedTexts) -> CommandButton:
    return CommandButton(say("button.to_tasks"), "/tasks")
