"""TaskHub: background work with an owner, from its creation to its deletion.

A task is a row; its runs are messages of the mailbox. Who may do what is in ``tasks.permissions``.
Triggers in the store make a task's state follow its current run (``0017_tasks.sql``).
"""

from __future__ import annotations

import builtins
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from agentsup.kit import faults
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.mailbox import Mailbox
from agentsup.mailbox.mail import AgentDirectory, Asker
from agentsup.mailbox.messages import AGENTS
from agentsup.model.errors import BadRequest, Conflict
from agentsup.model.event import Event, EventType
from agentsup.model.message import DeliverTo, MessageState
from agentsup.model.principal import PERSON_MARK, Principal, PrincipalKind, is_one_persons
from agentsup.model.question import Question
from agentsup.model.task import (
    ENDED,
    NewSchedule,
    NewTask,
    RunKind,
    Schedule,
    SkippedSlot,
    SlotSkipReason,
    Task,
    TaskAction,
    TaskState,
)
from agentsup.store import Database, Reader, Tx, of_task
from agentsup.tasks import asking, permissions, rows, schedules, session_targets, slot_times
from agentsup.tasks.composing import digest, for_persona, task_from
from agentsup.tasks.folders import FolderMaker, Folders
from agentsup.tasks.listing import TaskCard, card_of, list_tasks, reminders_for
from agentsup.tasks.runs import Runs
from agentsup.tasks.slot_times import machine_zone
from agentsup.tasks.starting import Offer, Starter, again_tx, check_has_runs, offer_nothing

LEAST_ID_CHARS = 4
"""The shortest ending of an id that names a task."""


class TaskHub:
    """The tasks of this node. ``caller`` is who acts: an operator, a person, or an agent."""

    def __init__(
        self,
        *,
        mailbox: Mailbox,
        database: Database,
        clock: Clock,
        entropy: Entropy,
        directory: AgentDirectory,
        runs: Runs,
        folders: Folders,
        abort: Callable[[str], Awaitable[None]],
        zone_of: Callable[[str, str], str] = lambda agent_id, person: "",
        offer: Offer = offer_nothing,
    ) -> None:
        """``abort`` ends the turn of a cancelled message; ``zone_of`` names the zone of a person
        (by subject) or agent; ``offer`` makes buttons of reminders."""
        self._mailbox = mailbox
        self._database = database
        self._clock = clock
        self._entropy = entropy
        self._directory = directory
        self._folders = folders
        self._maker = FolderMaker(folders)
        self._abort = abort
        self._zone_of = zone_of
        self.runs_of = runs
        self.starter = Starter(mailbox, directory, runs, entropy, offer)

    # -- creating ----------------------------------------------------------------------------------

    async def create(self, new: NewTask, *, caller: Principal, asker: Asker | None = None) -> Task:
        """Create a task, and start it unless it has a schedule or is a plain todo.

        The same idempotency key of the same owner gives the same task. Raises ``BadRequest``,
        ``NotFound`` and ``Gone`` (the agent), ``Forbidden``, ``Conflict`` (the key), and what
        ``Runs.start_tx`` raises.
        """
        task = task_from(
            new,
            task_id=self._entropy.new_id("task"),
            caller=caller,
            parent=asker.lease.message if asker is not None else None,
            directory=self._directory,
            at=self._clock.now_ms(),
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
                schedule = slot_times.parse(new.schedule, task.task_id, now_ms=at, zone=zone)
                self.starter.check_schedule_tx(tx, task, asker)
            elif not new.start:
                self.starter.check_todo_tx(tx, task)
            if new.parent_task_id:
                permissions.check_sees(rows.need_task(tx, new.parent_task_id), caller)
            made = task
            if asker is not None:
                made = rows.asked_for(tx, task, asker.lease.message)
            if persona := session_targets.persona_of(tx, task.parent_session_id):
                made = for_persona(made, new.agent, persona, self._directory)
            if new.does is TaskAction.TELL:
                made = self.starter.addressed(tx, made)
            rows.emit_tx(tx, EventType.TASK_CREATED, task, at, name=task.name)
            if schedule is None and new.start:
                run = self.starter.start_tx(
                    tx, made, RunKind.TASK, made.prompt, asker, is_stored=False
                )
                made = rows.begun(made, run)
            rows.add_task_tx(tx, made)
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
        return await self._database.read(self._seen, task_id, caller, name="tasks.get")

    def _seen(self, reader: Reader, task_id: str, caller: Principal) -> Task:
        """The task, which ``caller`` may see. Raises what ``get`` raises."""
        found = self._find(reader, task_id)
        permissions.check_sees(found, caller)
        return found

    def _owned(self, reader: Reader, task_id: str, caller: Principal) -> Task:
        """The task, which ``caller`` may change. Raises what ``get`` raises."""
        found = self._find(reader, task_id)
        permissions.check_owns(found, caller)
        return found

    def _find(self, reader: Reader, task_id: str) -> Task:
        if task_id.startswith("task_") or len(task_id) < LEAST_ID_CHARS:
            return rows.need_task(reader, task_id)
        found = rows.ending_with(reader, task_id.casefold())
        if len(found) > 1:
            raise Conflict(f"several tasks end with {task_id}: {', '.join(found)}", task_ids=found)
        return rows.need_task(reader, found[0] if found else task_id)

    async def card(self, task_id: str, *, caller: Principal, runs: int = 50) -> TaskCard:
        """The task with its schedule, its questions and the last ``runs`` runs, by one read.

        Raises what ``get`` raises.
        """
        return await self._database.read(
            lambda r: card_of(r, self._seen(r, task_id, caller), runs=runs), name="tasks.card"
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
        task = await self.get(task_id, caller=caller)
        return await self._database.read(
            lambda r: of_task(r, task.task_id, limit=tail), name="tasks.log"
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
            check_has_runs(task)
            key = f"resume:{task.task_id}:{idempotency_key}" if idempotency_key else ""
            is_known = bool(key) and rows.is_entered(tx, task.owner, key)
            if not is_known and asking.resumed_tx(
                self._mailbox, tx, task, prompt, caller, key=key, at=at, shown_in=shown_in
            ):
                return
            if not is_known:
                rows.check_rests(tx, task, "it goes on by itself")
            # Without a prompt only a todo is started, or that start is repeated (same key).
            text = prompt or (task.prompt if task.runs == 0 or is_known else "")
            if not text.strip():
                raise BadRequest("say what it is to do now", field="prompt")
            kind = RunKind.RESUME if task.runs else RunKind.TASK
            self.starter.start_tx(tx, task, kind, text, asker, key=key)
            faults.point("task.before_commit")

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
            task = self._seen(tx, task_id, caller)
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
            task = self._owned(tx, task_id, caller)
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
                SkippedSlot(SlotSkipReason.CANCELLED, {"who": caller.label}),
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
        for message_id in running:
            await self._abort(message_id)
        return found

    async def delete(self, task_id: str, *, caller: Principal) -> None:
        """Delete a task; its folder is moved to the deleted ones, not removed.

        Raises ``Conflict`` while it works.
        """

        def do(tx: Tx, task: Task, at: int) -> None:
            rows.check_rests(tx, task, "cancel it first")
            schedules.end_tx(
                tx, task.task_id, self.starter, SkippedSlot(SlotSkipReason.DELETED), at=at
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
        task = await self.get(task_id, caller=caller)

        def write(tx: Tx) -> None:
            now, at = rows.need_task(tx, task.task_id), self._clock.now_ms()
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
                    why = SkippedSlot(SlotSkipReason.SET, facts)
                    schedules.end_tx(tx, now.task_id, self.starter, why, at=at)
                rows.set_tx(tx, now, state, at)

        await self._database.write(write, name="tasks.update")
        if note.strip():
            try:
                add = partial(self._folders.note, task.task_id, task.name, note)
                await self._folders.run(add, key=task.task_id)
            except OSError as error:
                warning = f"the note can't be kept, all else was: {error}"
                raise Conflict(warning, task_id=task.task_id) from error
        return await self.get(task.task_id, caller=caller)

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
            changed = slot_times.parse(schedule, task.task_id, now_ms=at, zone=zone)
            why = SkippedSlot(SlotSkipReason.CHANGED, {"who": caller.label})
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
            task = self._owned(tx, task_id, caller)
            do(tx, task, self._clock.now_ms())
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
        if caller.is_operator:
            owner, where, within = None, agent_id, ""
        elif caller.kind in AGENTS:
            owner = replace(caller, kind=PrincipalKind.AGENT)
            where, within = caller.subject, agent_id
        else:
            owner, where, within = caller, "", agent_id
        whose = partial(list_tasks, owner=owner, agent_id=where, within=within)
        look = partial(whose, parent_task_id=parent_task_id, states=states)
        return await self._database.read(
            partial(look, before=before, limit=limit), name="tasks.list"
        )
