"""``/tasks`` and ``/task``: background work, as a person sees and steers it from a chat."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from agentsup.agents.commands import background, task_texts
from agentsup.agents.commands.background import BackgroundList
from agentsup.agents.commands.chat_services import CommandServices
from agentsup.agents.commands.dispatch import Command
from agentsup.agents.commands.pages import page_of, turning, wanted_page
from agentsup.catalogue import Words, words
from agentsup.mailbox import choices
from agentsup.model.agent import MAIN
from agentsup.model.control import Button, CommandContext, CommandReply
from agentsup.model.errors import BadRequest, Conflict, Forbidden, NotSeen
from agentsup.model.message import DeliverTo
from agentsup.model.principal import PersonRole
from agentsup.model.question import APPROVAL, Question, QuestionState
from agentsup.model.task import WORKING, NewTask, Schedule, Task, TaskState
from agentsup.tasks.hub import TaskHub

PER_PAGE = 6
SHOWN = 10
KEPT = 200
"""Tasks that can be paged through."""

Rows = tuple[tuple[Button, ...], ...]
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
            "pause": self._pause,
            "unpause": self._unpause,
        }

    def _tasks(self, say: Words) -> TaskHub:
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
        # Main is where operators look at everything; elsewhere it is about the agent they talk to.
        is_all = context.agent_name == MAIN or not context.principal.is_operator
        agent_id = "" if is_all else context.agent_id
        found = await hub.list(caller=context.principal, agent_id=agent_id, limit=KEPT)
        works = [work for work in await self._background.all(context) if not work.is_task]
        others = background.buttons(works, say)
        refresh = Button("↻", "/tasks")
        if not found:
            told = background.lines(works, say) or [say("tasks.none")]
            return CommandReply("\n".join(told), buttons=(*others, (refresh,)))
        page = page_of(found, number, PER_PAGE if context.has_buttons else SHOWN)
        heading, now = page.heading(say), self._s.clock.now_ms()
        lines = [heading] if heading else []
        for task in page.items:
            schedule = await hub.schedule(task.task_id, caller=context.principal)
            name = self._name(task.agent_id)
            lines.append(task_texts.line(task, schedule, name, now, say))
        lines.extend(background.lines(works, say))
        lines.append(say("tasks.how"))
        refresh = Button("↻", f"/tasks #{page.number}" if page.count > 1 else "/tasks")
        return CommandReply(
            "\n".join(lines),
            buttons=(
                *(self._row(task, say) for task in page.items),
                *others,
                *turning(page, "/tasks"),
                (refresh,),
            ),
        )

    def _row(self, task: Task, say: Words) -> tuple[Button, ...]:
        opened = Button(task_texts.label(task), f"/task {task.task_id}")
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
        task = await hub.get(task_id, caller=who)
        schedule = await hub.schedule(task.task_id, caller=who)
        asked = await hub.questions(task.task_id, caller=who)
        question = next((q for q in asked if q.state is QuestionState.OPEN), None)
        text = task_texts.card(
            task,
            say,
            agent=self._name(task.agent_id),
            target=self._target(task),
            now=self._s.clock.now_ms(),
            runs=await hub.runs(task.task_id, caller=who, limit=SHOWN),
            question=question,
            schedule=schedule,
        )
        if question is not None and not context.has_buttons:
            text += "\n" + say("tasks.how_answer", id=task_texts.short_id(task.task_id))
        return CommandReply(
            f"{head}\n\n{text}" if head else text,
            buttons=(*_answers(task.task_id, question, say), *_acts(task, schedule, say)),
            live=f"/task {task.task_id}",
        )

    def _name(self, agent_id: str) -> str:
        entry = self._s.directory.by_id(agent_id)
        return entry.name if entry is not None else agent_id

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
        back = DeliverTo(
            "chat",
            agent_id=context.agent_id,
            channel=context.channel,
            conversation=context.conversation,
        )
        new = NewTask(text, agent=context.agent_name, deliver_to=back, idempotency_key=context.key)
        task = await hub.create(new, caller=context.principal)
        return await self._card(context, hub, task.task_id, say("tasks.begun"))

    async def _cancel(
        self, context: CommandContext, hub: TaskHub, task_id: str, text: str
    ) -> CommandReply:
        del text
        say = words(context.language)
        task = await hub.cancel(task_id, caller=context.principal)
        return await self._card(context, hub, task.task_id, say("tasks.cancelled"))

    async def _resume(
        self, context: CommandContext, hub: TaskHub, task_id: str, text: str
    ) -> CommandReply:
        """Go on with the text, or do the same once more."""
        say = words(context.language)
        task = await hub.get(task_id, caller=context.principal)
        with _told_unseen(say):
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
        del text
        say = words(context.language)
        task = await hub.get(task_id, caller=context.principal)
        await hub.delete(task.task_id, caller=context.principal)
        return CommandReply(say("tasks.deleted", name=task.name), buttons=((_to_tasks(say),),))

    async def _answer(
        self, context: CommandContext, hub: TaskHub, task_id: str, text: str
    ) -> CommandReply:
        say = words(context.language)
        task = await hub.get(task_id, caller=context.principal)
        head, _, tail = text.partition(" ")
        question_id, given = (head, tail.strip()) if head.startswith("q_") else ("", text)
        if not given:
            raise BadRequest(say("tasks.say_answer"), field="text")
        if not question_id:
            asked = await hub.questions(task.task_id, caller=context.principal)
            question = next((q for q in asked if q.state is QuestionState.OPEN), None)
            given = _meant(question, given) if question is not None else given
        with _told_unseen(say):
            await hub.answer(
                task.task_id,
                given,
                caller=context.principal,
                question_id=question_id,
                shown_in=(context.channel, context.conversation),
            )
        return await self._card(context, hub, task.task_id, say("answer.done", text=given))

    async def _pause(
        self, context: CommandContext, hub: TaskHub, task_id: str, text: str
    ) -> CommandReply:
        del text
        task = await hub.pause(task_id, caller=context.principal, is_paused=True)
        return await self._card(context, hub, task.task_id)

    async def _unpause(
        self, context: CommandContext, hub: TaskHub, task_id: str, text: str
    ) -> CommandReply:
        del text
        task = await hub.pause(task_id, caller=context.principal, is_paused=False)
        return await self._card(context, hub, task.task_id)


def task_commands(services: CommandServices, hub: TaskHub | None) -> tuple[Command, ...]:
    """The two commands; ``hub`` None: tasks are switched off, and the commands say so."""
    run = _TaskCommands(services, hub)
    usage = "ID | new TEXT | cancel|resume|delete|pause|unpause ID | answer ID TEXT"
    return (
        Command("tasks", "", "background work and how far it is", run.tasks),
        Command("task", usage, "one piece of background work, or a new one", run.task),
    )


@contextmanager
def _told_unseen(say: Words) -> Iterator[None]:
    """Say it in the person's words where a call would be allowed that was not shown whole."""
    try:
        yield
    except NotSeen as unseen:
        question_id = unseen.facts["question_id"]
        told = say("approval.not_seen", id=question_id)
        raise NotSeen(told, question_id=question_id) from None


def _meant(question: Question, text: str) -> str:
    """The option meant by its number or its words; anything else as it is."""
    found = choices.meant(question, text)
    if found is None and text.isdecimal() and 1 <= int(text) <= len(question.options):
        found = question.options[int(text) - 1]
    if found is None:
        found = next((o for o in question.options if o.casefold() == text.casefold()), text)
    return found


def _answers(task_id: str, question: Question | None, say: Words) -> Rows:
    if question is None:
        return ()
    offered = list(
        zip(
            choices.labels(question.kind, question.options, say.language),
            question.options,
            strict=True,
        )
    )
    rows: Rows = ()
    if question.kind == APPROVAL:
        # The card has a line of the call: what allows it stands below all of it.
        look = Button(say("approval.show_all"), f"/question {question.question_id}")
        rows, offered = ((look,),), [each for each in offered if each[1] == choices.DENY]
    return rows + tuple(
        (
            Button(
                shown,
                f"/task answer {task_id} {question.question_id} {option}",
                once=True,
            ),
        )
        for shown, option in offered
    )


def _acts(task: Task, schedule: Schedule | None, say: Words) -> Rows:
    """What may be done with a task now."""
    acts: list[Button] = []
    has_times = schedule is not None and (schedule.next_at is not None or schedule.is_paused)
    if task.state in WORKING or has_times:
        acts.append(_cancel(task, say("button.cancel"), say))
    if task.state not in WORKING:
        verb = "begin" if task.state is TaskState.TODO else "run_again"
        acts.append(Button(say(f"button.{verb}"), f"/task resume {task.task_id}", once=True))
        acts.append(
            Button(
                say("button.delete"),
                f"/task delete {task.task_id}",
                once=True,
                confirm=say("confirm.delete_task", name=task.name),
            )
        )
    rests: tuple[Button, ...] = ()
    if schedule is not None and has_times:
        verb = "unpause" if schedule.is_paused else "pause"
        rests = (Button(say(f"button.{verb}"), f"/task {verb} {task.task_id}"),)
    refresh = Button("↻", f"/task {task.task_id}")
    return tuple(row for row in (tuple(acts), rests, (_to_tasks(say), refresh)) if row)


def _cancel(task: Task, shown: str, say: Words) -> Button:
    return Button(
        shown,
        f"/task cancel {task.task_id}",
        once=True,
        confirm=say("confirm.cancel_task", name=task.name),
    )


def _to_tasks(say: Words) -> Button:
    return Button(say("button.to_tasks"), "/tasks")
