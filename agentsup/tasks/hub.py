"""TaskHub: background work with an owner, from its creation to its deletion.

A task is a row; its runs are messages of the mailbox. Who may do what is in ``tasks.permissions``.
Triggers in the store make a task's state follow its current run (``0017_tasks.sql``).
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path

from agentsup.kit import faults
from agentsup.mailbox.mail import AgentDirectory, Asker
from agentsup.model.errors import BadRequest, Conflict
from agentsup.model.event import Event, EventType
from agentsup.model.message import DeliverTo, MessageState
from agentsup.model.principal import PERSON_MARK, Principal, is_one_persons
from agentsup.model.question import Question
from agentsup.model.task import (
    ENDED,
    NewSchedule,
    NewTask,
    OccurrenceSkipReason,
    Schedule,
    SkippedOccurrence,
    Task,
    TaskAction,
    TaskState,
)
from agentsup.store import Tx, of_task
from agentsup.tasks import asking, occurrences, permissions, rows, schedules
from agentsup.tasks.composing import digest, task_from
from agentsup.tasks.folders import FolderMaker, Folders
from agentsup.tasks.listing import (
    TaskCard,
    card_of,
    list_tasks,
    owned_task,
    reminders_for,
    seen_task,
)
from agentsup.tasks.occurrences import machine_zone
from agentsup.tasks.runs import Runs
from agentsup.tasks.starting import Offer, Starter, again_tx


class TaskHub:
    """The tasks of this node. ``caller`` is who acts: an operator, a person, or an agent."""

    def __init__(
        self,
        runs: Runs,
        directory: AgentDirectory,
        folders: Folders,
        zone_of: Callable[[str, str], str],
        offer: Offer,
    ) -> None:
        """``zone_of`` names the zone of a person (by subject) or agent; ``offer`` makes buttons of
        reminders."""
        self._runs = runs
        self._mailbox = runs.mailbox
        self._database = runs.database
        self._context = runs.mailbox.context
        self._directory = directory
        self._folders = folders
        self._maker = FolderMaker(folders)
        self._zone_of = zone_of
        self.starter = Starter(runs, directory, offer)

    # -- creating ----------------------------------------------------------------------------------

    async def create(self, new: NewTask, *, caller: Principal, asker: Asker | None = None) -> Task:
        """Create a task, and start it unless it has a schedule or is a plain todo.

        The same idempotency key of the same owner gives the same task. Raises ``BadRequest``,
        ``NotFound`` and ``Gone`` (the agent), ``Forbidden``, ``Conflict`` (the key), and what
        ``Runs.start_tx`` raises.
        """
        task = task_from(
            new,
            task_id=self._context.entropy.new_id("task"),
            caller=caller,
            parent=asker.lease.message if asker is not None else None,
            directory=self._directory,
            at=self._context.clock.now_ms(),
        )
        zone = self.zone_for(task.agent_id, task.owner) if new.schedule is not None else ""

        def write(tx: Tx) -> Task:
            at, schedule = task.created_at, None
            if new.idempotency_key:
                body = digest(new)
                known = rows.enter_tx(tx, task.owner, new.idempotency_key, task.task_id, body, at)
                if known is not None:
                    return rows.need_task(tx, known)
            if new.schedule is not None:  # after the key: its time may be past when it is repeated
                schedule = occurrences.parse(new.schedule, task.task_id, now_ms=at, zone=zone)
            if new.parent_task_id:
                permissions.check_sees(rows.need_task(tx, new.parent_task_id), caller)
            made = self.starter.create_tx(tx, new, task, asker)
            if schedule is not None:
                schedules.add_tx(tx, schedule)
            tx.after_commit(partial(faults.point, "task.after_commit"))
            faults.point("task.before_commit")
            return made

        made = await self._database.write(write, name="tasks.create")
        if new.does is TaskAction.TURN:
            # Also for a known task: the daemon may have ended before it made the folder.
            await self._maker.prepare(made.task_id)
        return made

    def zone_for(self, agent_id: str, who: Principal) -> str:
        """The time zone of a person, or of whom an agent acts for; else the agent's or machine's."""
        person = who.asker_name or ""
        if is_one_persons(who.person):
            person = who.person.removeprefix(PERSON_MARK)
        return self._zone_of(agent_id, person) or machine_zone()

    # -- looking -----------------------------------------------------------------------------------

    async def get(self, task_id: str, *, caller: Principal) -> Task:
        """The task with that id, or the only one whose id ends so.

        Raises ``NotFound``, ``Forbidden`` and ``Conflict`` (several ids end so).
        """
        return await self._database.read(seen_task, task_id, caller, name="tasks.get")

    async def card(self, task_id: str, *, caller: Principal, runs: int = 50) -> TaskCard:
        """The task with its schedule, its questions and the last ``runs`` runs, by one read.

        Raises what ``get`` raises.
        """
        return await self._database.read(
            lambda r: card_of(r, seen_task(r, task_id, caller), runs=runs), name="tasks.card"
        )

    async def schedules(self, tasks: Sequence[Task]) -> dict[str, Schedule]:
        """The schedules of listed tasks by task id; tasks without one are left out."""
        wanted = [task.task_id for task in tasks]
        return await self._database.read(schedules.of_tasks, wanted, name="tasks.schedules")

    async def reminders(
        self, chat: DeliverTo, *, caller: Principal
    ) -> Sequence[tuple[Task, Schedule]]:
        """The caller's reminders that are ahead, the next one first; an operator's also those that
        come to ``chat``."""
        return await self._database.read(reminders_for, caller, chat, name="tasks.reminders")

    async def log(self, task_id: str, *, caller: Principal, tail: int = 20) -> Sequence[Event]:
        """The latest events of its runs, oldest first."""
        return await self._database.read(
            lambda r: of_task(r, seen_task(r, task_id, caller).task_id, limit=tail),
            name="tasks.log",
        )

    def folder_of(self, task_id: str) -> Path:
        """The folder with a task's files."""
        return self._folders.of(task_id)

    # -- steering ----------------------------------------------------------------------------------

    async def resume(
        self,
        task_id: str,
        prompt: str = "",
        *,
        caller: Principal,
        asker: Asker | None = None,
        idempotency_key: str = "",
        shown_in: asking.Conversation | None = None,
    ) -> Task:
        """Start a todo, continue an ended task, or answer the open question of a waiting one.

        An ended task goes on in its session with ``prompt``; for a waiting task ``prompt`` is the
        answer to its one open question (``shown_in`` as for ``answer``). Raises ``Conflict`` while
        it works or asks several questions, ``BadRequest`` for an ended task without a prompt, and
        what ``Runs.start_tx`` raises.
        """

        def do(tx: Tx, task: Task, at: int) -> None:
            key = f"resume:{task.task_id}:{idempotency_key}" if idempotency_key else ""
            self.starter.resume_tx(tx, task, prompt, caller, asker, key=key, shown_in=shown_in)

        return await self._steer(task_id, caller, do, name="tasks.resume")

    async def ask_parent(
        self,
        task_id: str,
        text: str,
        *,
        caller: Principal,
        options: Sequence[str] = (),
    ) -> Question:
        """Ask those who gave the task a question, in the name of its running turn.

        The turn's end then waits for the answer, with which the run goes on. The same text is not
        asked twice. Raises ``Conflict`` if no turn of the task runs.
        """

        def write(tx: Tx) -> Question:
            task = seen_task(tx, task_id, caller)
            working = rows.open_runs(tx, task.task_id)  # later ones may be queued behind the first
            run_id, of = working[0][0] if working else task.current_run, f"task {task.task_id}"
            return asking.ask_tx(self._mailbox, tx, run_id, text, options, of=of)

        return await self._database.write(write, name="tasks.ask_parent")

    async def answer(
        self,
        task_id: str,
        text: str,
        *,
        caller: Principal,
        question_id: str = "",
        shown_in: asking.Conversation | None = None,
    ) -> Question:
        """Answer its open question (the one with ``question_id``, if there are several).

        In a chat (``shown_in``), an answer that allows a call is accepted only if the whole call
        was shown there. Raises ``NotFound`` (it has none), ``Conflict`` (several, too late, or
        ``NotSeen``) and ``BadRequest``.
        """

        def write(tx: Tx) -> Question:
            task = owned_task(tx, task_id, caller)
            return asking.answer_tx(self._mailbox, tx, task, text, caller, question_id, shown_in)

        return await self._database.write(write, name="tasks.answer")

    async def cancel(self, task_id: str, *, caller: Principal) -> Task:
        """Cancel a task: its runs with all processes, and its schedule.

        Raises ``Conflict`` if it has ended and has no open run and no schedule.
        """
        running: list[str] = []

        def do(tx: Tx, task: Task, at: int) -> None:
            had_schedule = schedules.end_tx(
                tx,
                task.task_id,
                self.starter,
                SkippedOccurrence(OccurrenceSkipReason.CANCELLED, {"who": caller.label}),
                at=at,
            )
            working = rows.open_runs(tx, task.task_id)
            for run_id, was in working:
                running.extend(self._mailbox.control.cancel_tx(tx, run_id, caller).with_it)
                if was != MessageState.QUEUED:
                    running.append(run_id)
            if task.state is TaskState.TODO:
                rows.set_tx(tx, task, TaskState.CANCELLED, at)
            elif not working and not had_schedule:
                raise Conflict(
                    f"task {task.task_id} is already {task.state.value}",
                    task_id=task.task_id,
                    state=task.state.value,
                )

        found = await self._steer(task_id, caller, do, name="tasks.cancel", urgent=True)
        await self._runs.end_turns(*running)
        return found

    async def delete(self, task_id: str, *, caller: Principal) -> None:
        """Delete a task; its folder is moved to the deleted ones, not removed.

        Raises ``Conflict`` while it works.
        """

        def do(tx: Tx, task: Task, at: int) -> None:
            rows.check_rests(tx, task, "cancel it first")
            schedules.end_tx(
                tx,
                task.task_id,
                self.starter,
                SkippedOccurrence(OccurrenceSkipReason.DELETED),
                at=at,
            )
            rows.orphan_tx(tx, task.task_id)
            tx.execute("DELETE FROM tasks WHERE task_id = ?", (task.task_id,))
            rows.emit_tx(tx, EventType.TASK_DELETED, task, at, by=caller.label)

        found = await self._steer(task_id, caller, do, name="tasks.delete")
        await self._maker.move_to_deleted(found.task_id)

    async def update(
        self,
        task_id: str,
        *,
        caller: Principal,
        progress: str | None = None,
        percent: int | None = None,
        note: str = "",
        state: TaskState | None = None,
        name: str | None = None,
    ) -> Task:
        """Report the progress of a task, set its state, rename it, or add a note.

        Everybody who may see the task may set ``progress`` and ``percent``, and add a ``note`` to
        its TASKMEMORY.md. Only its owner may set ``name`` and ``state`` (todo, done or cancelled,
        for a task without runs). Raises ``BadRequest``, ``Conflict`` and ``Forbidden``.
        """
        if percent is not None and not 0 <= percent <= 100:
            raise BadRequest("percent must be from 0 to 100", field="percent")

        def write(tx: Tx) -> Task:
            now, at = seen_task(tx, task_id, caller), self._context.clock.now_ms()
            if state is not None or name is not None:
                permissions.check_owns(now, caller)
            if name is not None:
                rows.rename_tx(tx, now, name)
            if progress is not None or percent is not None:
                rows.progress_tx(tx, now, progress, percent, at)
            if state is not None and state is not now.state:
                rows.check_settable(now, state)
                if state in ENDED:
                    facts = {"state": state.value, "who": caller.label}
                    why = SkippedOccurrence(OccurrenceSkipReason.SET, facts)
                    schedules.end_tx(tx, now.task_id, self.starter, why, at=at)
                rows.set_tx(tx, now, state, at)
            return rows.need_task(tx, now.task_id)

        task = await self._database.write(write, name="tasks.update")
        if note.strip():
            await self._maker.note(task, note)
        return task

    async def pause(self, task_id: str, *, caller: Principal, is_paused: bool) -> Task:
        """Pause its schedule or let it go on; times that come while it is paused are passed over.

        Raises ``NotFound`` for a task without a schedule and, if it is to go on, ``RightsLost``.
        """

        def do(tx: Tx, task: Task, at: int) -> None:
            if not is_paused:
                self.starter.acting(task)
            schedules.pause_tx(tx, task.task_id, self.starter, is_paused=is_paused, at=at)

        return await self._steer(task_id, caller, do, name="tasks.pause")

    async def reschedule(
        self, task_id: str, schedule: NewSchedule, *, caller: Principal, asker: Asker | None = None
    ) -> Task:
        """Give a task with a schedule other times from now on.

        Raises ``NotFound`` for a task without a schedule, ``BadRequest`` for invalid times and what
        ``create`` raises.
        """

        def do(tx: Tx, task: Task, at: int) -> None:
            self.starter.acting(task)
            zone = self.zone_for(task.agent_id, task.owner)
            changed = occurrences.parse(schedule, task.task_id, now_ms=at, zone=zone)
            why = SkippedOccurrence(OccurrenceSkipReason.CHANGED, {"who": caller.label})
            if schedules.change_tx(tx, changed, self.starter, why, at=at):
                self.starter.check_schedule_tx(tx, task, asker)
            again_tx(tx, task, at)

        return await self._steer(task_id, caller, do, name="tasks.reschedule")

    async def _steer(
        self,
        task_id: str,
        caller: Principal,
        do: Callable[[Tx, Task, int], None],
        *,
        name: str,
        urgent: bool = False,
    ) -> Task:
        """Change a task that ``caller`` owns, in one transaction; return it as it is after that.

        ``do`` gets the wall time in ms.
        """

        def write(tx: Tx) -> Task:
            task = owned_task(tx, task_id, caller)
            do(tx, task, self._context.clock.now_ms())
            return rows.find_task(tx, task.task_id) or task

        return await self._database.write(write, name=name, urgent=urgent)

    async def list(  # last: its name hides the builtin
        self,
        *,
        caller: Principal,
        states: Collection[TaskState] = (),
        agent_id: str = "",
        parent_task_id: str = "",
        before: str = "",
        limit: int = 100,
    ) -> builtins.list[Task]:
        """Tasks that ``caller`` may see, the newest first.

        ``agent_id`` selects those that run in that agent's mailbox, ``parent_task_id`` the parts of
        that task.
        """
        look = partial(list_tasks, caller=caller, agent_id=agent_id, parent_task_id=parent_task_id)
        return await self._database.read(
            partial(look, states=states, before=before, limit=limit), name="tasks.list"
        )
