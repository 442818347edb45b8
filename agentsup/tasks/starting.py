"""Starting the runs of tasks: the first one, further ones, and those of a schedule.

The time of a reminder puts its text into a chat; no model runs, so nothing has to be up. The text and
the record of the time are written in the transaction that settles the time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from agentsup.catalogue import words
from agentsup.kit import faults
from agentsup.mailbox.delivery import notices
from agentsup.mailbox.lifecycle import leased_tx
from agentsup.mailbox.mail import AgentDirectory, Asker
from agentsup.mailbox.messages import current_rights, keys
from agentsup.model.control import CommandButton, CommandButtons
from agentsup.model.errors import BadRequest, NotFound, Overloaded
from agentsup.model.event import EventType
from agentsup.model.ids import AgentId
from agentsup.model.message import DeliverTo
from agentsup.model.principal import Principal, PrincipalKind
from agentsup.model.task import (
    MAX_REMINDERS,
    MAX_SCHEDULES,
    MAX_TODOS,
    MAX_TODOS_OF_TURN,
    NewTask,
    Run,
    RunKind,
    SkippedOccurrence,
    Task,
    TaskAction,
    TaskState,
)
from agentsup.store import Reader, Tx
from agentsup.tasks import asking, lineage, occurrences, rows, session_targets
from agentsup.tasks.composing import for_persona
from agentsup.tasks.runs import NewRun, Runs

Offer = Callable[[Tx, DeliverTo, CommandButtons, int], Mapping[str, Any]]
"""``offer(tx, chat, buttons, at)``: what a notice in that chat must contain to show these buttons;
empty if the chat has none. ``at`` is wall ms."""

SHOWN_ID_CHARS = 8


def tell_tx(tx: Tx, task: Task, run: Run, offer: Offer, *, at: int) -> None:
    """Put the text of a reminder into the outbox of its chat, and record ``run`` as its time.

    A single reminder is done with that. ``at`` is wall ms.
    """
    assert run.slot_at is not None, "a reminder is told at a time of its schedule"
    times = tx.one("SELECT kind, zone FROM schedules WHERE task_id = ?", (task.task_id,))
    assert times is not None, "a reminder has a schedule"
    rows.add_run_tx(tx, run)
    chat, say = task.deliver_to, words(task.owner.language)
    text = say("remind.text", text=task.prompt)
    if at - run.slot_at > occurrences.GRACE_MS:
        local = datetime.fromisoformat(occurrences.local_time(run.slot_at, times["zone"]))
        text += "\n" + say("remind.late", when=f"{local:%Y-%m-%d %H:%M}")
    ways: CommandButtons = (
        (
            CommandButton(say("remind.done_button"), f"/remind done {task.task_id}", once=True),
            CommandButton(say("remind.hour"), f"/remind later {task.task_id} 1h", once=True),
            CommandButton(
                say("remind.tomorrow"), f"/remind later {task.task_id} tomorrow", once=True
            ),
        ),
    )
    facts = offer(tx, chat, ways, at)
    if not facts:
        text += "\n" + say("remind.how_later", id=task.task_id[-SHOWN_ID_CHARS:])
    notices.notify_tx(
        tx,
        message_id=run.run_id,
        agent_id=chat.agent_id or task.agent_id,
        text=text,
        at=at,
        address=(chat.channel, chat.conversation),
        facts={"plain": True, **facts},
    )
    state = TaskState.DONE if times["kind"] == "at" else TaskState.TODO
    tx.execute(
        "UPDATE tasks SET runs = ?, current_run = ?, started_at = coalesce(started_at, ?)"
        " WHERE task_id = ?",
        (run.run_no, run.run_id, at, task.task_id),
    )
    rows.set_tx(tx, replace(task, runs=run.run_no), state, at)


def again_tx(tx: Tx, task: Task, at: int) -> None:
    """Record that a reminder which was sent is due again later."""
    if task.does is TaskAction.TELL and task.state is not TaskState.TODO:
        rows.set_tx(tx, task, TaskState.TODO, at)


class Starter:
    """Puts runs of tasks into their mailboxes.

    At most one row of ``runs`` has a task's occurrence.
    """

    def __init__(self, runs: Runs, directory: AgentDirectory, offer: Offer) -> None:
        """``offer`` makes the buttons of reminders."""
        self._context = runs.mailbox.context
        self._directory = directory
        self._runs = runs
        self._offer = offer

    def create_tx(self, tx: Tx, new: NewTask, task: Task, asker: Asker | None) -> Task:
        """Store the task that was composed for ``new``, and begin its first run, unless it has a
        schedule or is a plain todo. Raises what ``TaskHub.create`` raises."""
        if new.schedule is not None:
            self.check_schedule_tx(tx, task, asker)
        elif not new.start:
            self._check_todo_tx(tx, task)
        made = task
        if asker is not None:
            made = rows.asked_for(tx, task, asker.lease.message)
        if persona := session_targets.persona_of(tx, task.parent_session_id):
            made = for_persona(made, new.agent, persona, self._directory)
        if new.does is TaskAction.TELL:
            made = self._addressed(tx, made)
        rows.emit_tx(tx, EventType.TASK_CREATED, task, task.created_at, name=task.name)
        if new.schedule is None and new.start:
            run = self.start_tx(tx, made, RunKind.TASK, made.prompt, asker, is_stored=False)
            made = rows.begun(made, run)
        rows.add_task_tx(tx, made)
        return made

    def start_tx(
        self,
        tx: Tx,
        task: Task,
        kind: RunKind,
        prompt: str,
        asker: Asker | None,
        *,
        slot_at: int | None = None,
        key: str = "",
        is_stored: bool = True,
    ) -> Run:
        """Start a run of the task with ``prompt``.

        With ``key`` a repeated start gives the same run. ``is_stored`` False: the task's row is not
        there yet and is not changed. Raises ``RightsLost`` and what ``Runs.start_tx`` raises.
        """
        self._check_agent(task)
        at, parent = self._context.clock.now_ms(), asker.lease.message if asker else None
        if parent is not None and parent.agent_id != task.agent_id:
            parent = None
        # A scheduled run that a turn has set up is as deep as a run that the turn delegates.
        above, since = 0, task.parent_session_id if parent is None else ""
        if since and kind is RunKind.SCHEDULED:
            above = rows.depth_in(tx, task.parent_message_id, since)
        expires_at = None if task.timeout_s is None else at + round(task.timeout_s * 1000)
        run = self._runs.start_tx(
            tx,
            NewRun(
                kind=kind,
                agent_id=task.agent_id,
                prompt=prompt,
                principal=self._acting(task, asker),
                deliver_to=task.deliver_to,
                target=task.target,
                label=task.name,
                parent=parent,
                above=above,
                part_of=task.parent_message_id if since else "",
                key=key,
                key_by=task.owner,
                session_key=f"{keys.OF_TASKS}{task.task_id}",
                priority=task.priority,
                expires_at=expires_at,
                max_usd=task.max_usd,
                task_id=task.task_id,
                run_no=task.runs + 1,
                slot_at=slot_at,
                summary=f"task {task.task_id[-SHOWN_ID_CHARS:]} “{task.name}”",
            ),
        )
        if task.parent_session_id and not lineage.subject_of(task.target)[0]:
            # The task was created with a persona: the run gets that persona, perhaps in a role.
            session_targets.inherit_persona_tx(tx, run.session_id, task.parent_session_id)
        if is_stored and run.run_no > task.runs:  # else the key was known and the run is an old one
            rows.begin_tx(tx, task.task_id, run)
        return run

    def resume_tx(
        self,
        tx: Tx,
        task: Task,
        prompt: str,
        caller: Principal,
        asker: Asker | None,
        *,
        key: str = "",
        shown_in: asking.Conversation | None = None,
    ) -> None:
        """Start a todo, continue an ended task, or answer the open question of a waiting one, once
        for each ``key``. Raises what ``TaskHub.resume`` raises."""
        if task.does is TaskAction.TELL:
            raise BadRequest(
                f"task {task.task_id} is a reminder and has no turns: give it another time",
                field="task_id",
            )
        is_known = bool(key) and rows.is_entered(tx, task.owner, key)
        if not is_known and asking.resumed_tx(
            self._runs.mailbox, tx, task, prompt, caller, key=key, shown_in=shown_in
        ):
            return
        if not is_known:
            rows.check_rests(tx, task, "it goes on by itself")
        # Without a prompt only a todo is started, or that start is repeated (same key).
        text = prompt or (task.prompt if task.runs == 0 or is_known else "")
        if not text.strip():
            raise BadRequest("say what it is to do now", field="prompt")
        kind = RunKind.RESUME if task.runs else RunKind.TASK
        self.start_tx(tx, task, kind, text, asker, key=key)
        faults.point("task.before_commit")

    def _check_agent(self, task: Task) -> None:
        if self._directory.by_id(task.agent_id) is None:
            raise NotFound("the agent whose work it is was removed", task_id=task.task_id)

    def _addressed(self, reader: Reader, task: Task) -> Task:
        """The reminder with a chat as its target.

        That is the chat where the work was asked for, else the one in which its person last talked
        to the agent.
        """
        chat = keys.root_chat(task.deliver_to)
        if chat is None:
            channel, conversation = notices.latest_conversation(
                reader, task.agent_id, task.owner.person, self._context.role_now
            )
            chat = DeliverTo("chat", channel=channel, conversation=conversation)
        return replace(task, deliver_to=replace(chat, agent_id=chat.agent_id or task.agent_id))

    def check_schedule_tx(self, tx: Tx, task: Task, asker: Asker | None) -> None:
        """Check the limits of a schedule that a turn creates, and of a reminder.

        Its runs must not be deeper than those that the turn may delegate, and its agent may have at
        most ``MAX_SCHEDULES``; a person at most ``MAX_REMINDERS``. Raises ``DepthExceeded``,
        ``Overloaded`` and ``LeaseLost`` (the turn was stopped).
        """
        is_reminder = task.does is TaskAction.TELL
        if asker is None and not is_reminder:
            return
        owner, limit = task.owner, MAX_REMINDERS
        if asker is not None:
            message, limit = leased_tx(self._context, tx, asker.lease), MAX_SCHEDULES
            if not is_reminder:  # it has no turns that could be too deep
                lineage.check_depth(1 + rows.depth_in(tx, message.message_id, message.session_id))
        count = rows.count_schedules(tx, owner)
        if count >= limit:
            raise Overloaded(
                f"{owner.label} has {count} schedules that go on, the most allowed are "
                f"{limit}: cancel tasks that are no longer needed",
                queue="schedules",
                size=count,
                limit=limit,
            )

    def _check_todo_tx(self, tx: Tx, task: Task) -> None:
        """Check how many tasks an agent writes down without beginning them. Raises ``Overloaded``."""
        if task.owner.kind is not PrincipalKind.AGENT:
            return
        of_turn, count = rows.count_todos(tx, task.owner, task.parent_message_id)
        is_turns = bool(task.parent_message_id) and of_turn >= MAX_TODOS_OF_TURN
        if not is_turns and count < MAX_TODOS:
            return
        size, limit = (of_turn, MAX_TODOS_OF_TURN) if is_turns else (count, MAX_TODOS)
        whose = "this turn" if is_turns else task.owner.label
        raise Overloaded(
            f"{whose} has written down {size} tasks that are not begun, the most allowed are "
            f"{limit}: begin or cancel some, or put several into one",
            queue="todos",
            size=size,
            limit=limit,
        )

    def acting(self, task: Task) -> Principal:
        """The principal as which the task is done now. Raises ``RightsLost``.

        It is the owner, with the lesser of the rights at the task's creation and now.
        """
        return current_rights.principal_of_owner(task.owner, task.asked_by, self._context.role_now)

    def _acting(self, task: Task, asker: Asker | None) -> Principal:
        now = self.acting(task)
        language = asker.lease.message.principal.language if asker is not None else ""
        return replace(now, language=language) if language else now

    # -- times of a schedule -----------------------------------------------------------------------

    def start_occurrence_tx(self, tx: Tx, task_id: str, slot_at: int) -> Run | None:
        """Start the run of one time of the schedule; None if that time has a row already.

        The run of a reminder is over at once. Raises what ``start_tx`` raises.
        """
        if _is_decided(tx, task_id, slot_at):
            return None
        task = rows.need_task(tx, task_id)
        if task.does is TaskAction.TELL:
            return self._tell_tx(tx, task, slot_at)
        return self.start_tx(tx, task, RunKind.SCHEDULED, task.prompt, None, slot_at=slot_at)

    def skip_occurrence_tx(
        self, tx: Tx, task_id: str, slot_at: int, skipped: SkippedOccurrence, *, at: int
    ) -> None:
        """Record a time of the schedule that is passed over, once."""
        if _is_decided(tx, task_id, slot_at):
            return
        run = self._occurrence(rows.need_task(tx, task_id), slot_at, at)
        rows.add_run_tx(tx, replace(run, state="skipped", skipped=skipped))

    def _tell_tx(self, tx: Tx, task: Task, slot_at: int) -> Run:
        self._check_agent(task)
        self.acting(task)
        at = self._context.clock.now_ms()
        run = self._occurrence(replace(task, runs=task.runs + 1), slot_at, at)
        tell_tx(tx, task, run, self._offer, at=at)
        return run

    def _occurrence(self, task: Task, slot_at: int, at: int) -> Run:
        """The record of a time of the schedule that has no message."""
        return Run(
            run_id=self._context.entropy.new_id("slot"),
            task_id=task.task_id,
            run_no=task.runs,
            kind=RunKind.SCHEDULED,
            agent_id=AgentId(task.agent_id),
            target=task.target,
            label=task.name,
            depth=1,
            slot_at=slot_at,
            state="done",
            created_at=at,
        )


def _is_decided(tx: Tx, task_id: str, slot_at: int) -> bool:
    """Whether a time of the schedule has a row: it was run or passed over."""
    found = tx.scalar("SELECT 1 FROM runs WHERE task_id = ? AND slot_at = ?", (task_id, slot_at))
    return found is not None
