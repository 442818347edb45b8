"""TaskHub: background work with an owner, from its creation to its deletion.

A task is a row; what it does are its runs, messages of the one mailbox. Who may do what is in
``rights``; its state follows its run by the store's own law (``0017_tasks.sql``).
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
from agentsup.mailbox.bus import AgentDirectory, Asker
from agentsup.mailbox.mailbox import Mailbox
from agentsup.model.errors import BadRequest, Conflict
from agentsup.model.event import Event, EventType
from agentsup.model.message import State
from agentsup.model.principal import Principal, PrincipalKind
from agentsup.model.question import Question
from agentsup.model.task import (
    ENDED,
    DeliveryState,
    NewSchedule,
    NewTask,
    Run,
    RunKind,
    Schedule,
    Task,
    TaskState,
)
from agentsup.store.database import Database, Reader, Tx
from agentsup.store.events import of_task
from agentsup.tasks import asking, changes, rights, rows, schedules, skips, slots
from agentsup.tasks.folders import FolderMaker, Folders
from agentsup.tasks.listing import list_tasks
from agentsup.tasks.making import AGENTS, as_stand_in, digest, task_from
from agentsup.tasks.runs import Runs
from agentsup.tasks.starting import Starter
from agentsup.tasks.zones import machine_zone

__all__ = ["TaskHub"]

SHORT_ID_CHARS = 4
"""An ending of an id that long is enough to name a task."""


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
        zone_of: Callable[[str], str] = lambda agent_id: "",
    ) -> None:
        """``abort`` ends the turn of a cancelled message; ``zone_of`` tells an agent's time zone."""
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
        self.starter = Starter(mailbox, directory, runs, entropy)

    # -- creating ----------------------------------------------------------------------------------

    async def create(self, new: NewTask, *, caller: Principal, asker: Asker | None = None) -> Task:
        """Write a task down, and start it unless it waits for its time or is a plain todo.

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
        zone = self._zone_of(task.agent_id) or machine_zone() if new.schedule is not None else ""

        def write(tx: Tx) -> Task:
            at, parsed = task.created_at, None
            if new.idempotency_key:
                body = digest(new)
                known = rows.enter_tx(tx, task.owner, new.idempotency_key, task.task_id, body, at)
                if known is not None:
                    return rows.need_task(tx, known)
            if new.schedule is not None:  # after the key: its time may be past when it is repeated
                parsed = slots.parse(new.schedule, now_ms=at, zone=zone)
                self.starter.check_schedule_tx(tx, task, asker)
            if new.parent_task_id:
                rights.check_sees(rows.need_task(tx, new.parent_task_id), caller)
            made = task
            if asker is not None:
                made = replace(task, asked_by=rows.asked_by(tx, asker.lease.message))
            if persona := rows.persona_in(tx, task.parent_session_id):
                made = as_stand_in(made, new.agent, persona, self._directory)
            changes.tell_tx(tx, EventType.TASK_CREATED, task, at, name=task.name)
            if parsed is None and new.start:
                run = self.starter.first_tx(tx, made, asker)
                made = rows.begun(made, run)
            rows.add_task_tx(tx, made)
            if parsed is not None:
                schedules.add_tx(tx, task.task_id, parsed)
            tx.after_commit(partial(faults.point, "task.after_commit"))
            faults.point("task.before_commit")
            return made

        made = await self._database.write(write, name="tasks.create")
        if made.task_id == task.task_id:
            await self._maker.prepare(made.task_id)
        return made

    # -- looking -----------------------------------------------------------------------------------

    async def get(self, task_id: str, *, caller: Principal) -> Task:
        """The task of that id, or of the only id that ends so. Raises ``NotFound``, ``Forbidden``
        and ``Conflict`` (several ids end so)."""

        def look(reader: Reader) -> Task:
            found = self._find(reader, task_id)
            rights.check_sees(found, caller)
            return found

        return await self._database.read(look, name="tasks.get")

    def _find(self, reader: Reader, task_id: str) -> Task:
        if task_id.startswith("task_") or len(task_id) < SHORT_ID_CHARS:
            return rows.need_task(reader, task_id)
        found = rows.ending_with(reader, task_id.casefold())
        if len(found) > 1:
            raise Conflict(f"several tasks end with {task_id}: {', '.join(found)}", task_ids=found)
        return rows.need_task(reader, found[0] if found else task_id)

    async def runs(self, task_id: str, *, caller: Principal, limit: int = 50) -> builtins.list[Run]:
        """Its runs and the times that were let pass, the latest first."""
        task = await self.get(task_id, caller=caller)
        return await self._database.read(
            lambda r: rows.runs_of(r, task.task_id, limit=limit), name="tasks.runs"
        )

    async def questions(self, task_id: str, *, caller: Principal) -> builtins.list[Question]:
        """What its runs have asked, open or not, oldest first."""
        task = await self.get(task_id, caller=caller)
        return await self._database.read(
            lambda r: asking.questions_of(r, task.task_id), name="tasks.questions"
        )

    async def schedule(self, task_id: str, *, caller: Principal) -> Schedule | None:
        """When it runs; None for a task without a schedule."""
        task = await self.get(task_id, caller=caller)
        return await self._database.read(
            lambda r: schedules.get(r, task.task_id), name="tasks.schedule"
        )

    async def delivery(self, task: Task) -> DeliveryState:
        """What became of its result."""
        if task.state not in ENDED:
            return DeliveryState.NONE
        return await self._database.read(
            lambda r: rows.delivery_of(r, task.current_run, task.deliver_to), name="tasks.delivery"
        )

    async def log(self, task_id: str, *, caller: Principal, tail: int = 20) -> Sequence[Event]:
        """The latest events of its runs, oldest first."""
        task = await self.get(task_id, caller=caller)

        def look(reader: Reader) -> Sequence[Event]:
            return of_task(reader, task.task_id, limit=tail)

        return await self._database.read(look, name="tasks.log")

    def folder_of(self, task_id: str) -> Path:
        """Where its files are."""
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
        """Start a todo, let a task that has ended go on in its session, told ``prompt``, or answer
        with it the one open question of a task that waits (``shown_in`` as for ``answer``).

        Raises ``Conflict`` while it works or asks several questions, ``BadRequest`` for an ended task
        without a prompt, and what ``Runs.start_tx`` raises.
        """

        def do(tx: Tx, task: Task, at: int) -> None:
            key = f"resume:{task.task_id}:{idempotency_key}" if idempotency_key else ""
            is_known = bool(key) and rows.is_entered(tx, task.owner, key)
            if not is_known and asking.resumed_tx(
                self._mailbox, tx, task, prompt, caller, key=key, at=at, shown_in=shown_in
            ):
                return
            if not is_known:
                rows.check_rests(tx, task, "it goes on by itself")
            # Without a prompt only a todo is begun, and known by that beginning.
            text = prompt or (task.prompt if task.runs == 0 or is_known else "")
            if not text.strip():
                raise BadRequest("say what it is to do now", field="prompt")
            kind = RunKind.RESUME if task.runs else RunKind.TASK
            self.starter.start_tx(tx, task, kind, text, asker, key=key)
            faults.point("task.before_commit")

        return await self.get(
            await self._steer(task_id, caller, do, name="tasks.resume"), caller=caller
        )

    async def ask_parent(
        self,
        task_id: str,
        text: str,
        *,
        caller: Principal,
        options: Sequence[str] = (),
    ) -> Question:
        """Ask whoever gave the task, in the name of its running turn. The turn's end then waits for
        the answer, with which the run goes on. The same open question is not put twice.

        Raises ``Conflict`` where no turn of it runs.
        """

        def write(tx: Tx) -> Question:
            task = self._find(tx, task_id)
            rights.check_sees(task, caller)
            working = rows.open_runs(tx, task.task_id)  # later ones may wait behind the one at work
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
        """Answer its open question (the one of that id, where there are several). In a chat what
        allows a call counts for one that was shown whole there (``shown_in``).

        Raises ``NotFound`` (it has none), ``Conflict`` (several, too late, or ``NotSeen``) and
        ``BadRequest``.
        """

        def write(tx: Tx) -> Question:
            task = self._find(tx, task_id)
            rights.check_owns(task, caller)
            return asking.answer_tx(self._mailbox, tx, task, text, caller, question_id, shown_in)

        return await self._database.write(write, name="tasks.answer")

    async def cancel(self, task_id: str, *, caller: Principal) -> Task:
        """End it: its runs with all processes, and its schedule. Raises ``Conflict`` once it has
        ended and nothing of it is to come."""
        running: list[str] = []

        def do(tx: Tx, task: Task, at: int) -> None:
            had_schedule = schedules.end_tx(
                tx, task.task_id, self.starter, skips.because("cancelled", who=caller.label), at=at
            )
            working = rows.open_runs(tx, task.task_id)
            for run_id, was in working:
                running.extend(self._mailbox.cancel_tx(tx, run_id, caller).with_it)
                if was != State.QUEUED:
                    running.append(run_id)
            if task.state is TaskState.TODO:
                changes.set_tx(tx, task, TaskState.CANCELLED, at)
            elif not working and not had_schedule:
                raise Conflict(
                    f"task {task.task_id} is already {task.state.value}",
                    task_id=task.task_id,
                    state=task.state.value,
                )

        found = await self._steer(task_id, caller, do, name="tasks.cancel", urgent=True)
        for message_id in running:
            await self._abort(message_id)
        return await self.get(found, caller=caller)

    async def delete(self, task_id: str, *, caller: Principal) -> None:
        """Forget a task that does not work; its folder is put away, not removed. Raises
        ``Conflict`` while it works."""

        def do(tx: Tx, task: Task, at: int) -> None:
            rows.check_rests(tx, task, "cancel it first")
            schedules.end_tx(tx, task.task_id, self.starter, skips.because("deleted"), at=at)
            rows.orphan_tx(tx, task.task_id)
            tx.execute("DELETE FROM tasks WHERE task_id = ?", (task.task_id,))
            changes.tell_tx(tx, EventType.TASK_DELETED, task, at, by=caller.label)

        found = await self._steer(task_id, caller, do, name="tasks.delete")
        await self._maker.put_away(found)

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
        """Tell how far it is (whoever works on it), or set a task without runs to todo, done or
        cancelled and rename it (its owner); ``note`` goes into its TASKMEMORY.md.

        Raises ``BadRequest`` and ``Conflict``.
        """
        if percent is not None and not 0 <= percent <= 100:
            raise BadRequest("percent must be from 0 to 100", field="percent")
        task = await self.get(task_id, caller=caller)
        if note.strip():
            try:
                step = partial(self._folders.note, task.task_id, task.name, note)
                await self._folders.run(step, key=task.task_id)
            except OSError as error:
                raise Conflict(f"the note can't be kept: {error}", task_id=task.task_id) from error

        def write(tx: Tx) -> None:
            now, at = rows.need_task(tx, task.task_id), self._clock.now_ms()
            if state is not None or name is not None:
                rights.check_owns(now, caller)
            if name is not None:
                changes.rename_tx(tx, now, name)
            if progress is not None or percent is not None:
                changes.progress_tx(tx, now, progress, percent, at)
            if state is not None and state is not now.state:
                changes.check_settable(now, state)
                if state in ENDED:
                    why = skips.because("set", state=state.value, who=caller.label)
                    schedules.end_tx(tx, now.task_id, self.starter, why, at=at)
                changes.set_tx(tx, now, state, at)

        await self._database.write(write, name="tasks.update")
        return await self.get(task.task_id, caller=caller)

    async def pause(self, task_id: str, *, caller: Principal, is_paused: bool) -> Task:
        """Let its schedule rest, or go on: times that passed meanwhile are let pass. Raises
        ``NotFound`` for a task without a schedule."""

        def do(tx: Tx, task: Task, at: int) -> None:
            schedules.pause_tx(tx, task.task_id, self.starter, is_paused=is_paused, at=at)

        return await self.get(
            await self._steer(task_id, caller, do, name="tasks.pause"), caller=caller
        )

    async def reschedule(
        self, task_id: str, schedule: NewSchedule, *, caller: Principal, asker: Asker | None = None
    ) -> Task:
        """Give a task with a schedule other times from now on. Raises ``NotFound`` for one without a
        schedule, ``BadRequest`` for times that make no sense and what ``create`` raises."""

        def do(tx: Tx, task: Task, at: int) -> None:
            zone = self._zone_of(task.agent_id) or machine_zone()
            parsed = slots.parse(schedule, now_ms=at, zone=zone)
            why = skips.because("changed", who=caller.label)
            if schedules.change_tx(tx, task.task_id, parsed, self.starter, why, at=at):
                self.starter.check_schedule_tx(tx, task, asker)

        return await self.get(
            await self._steer(task_id, caller, do, name="tasks.reschedule"), caller=caller
        )

    async def _steer(
        self,
        task_id: str,
        caller: Principal,
        do: Callable[[Tx, Task, int], None],
        *,
        name: str,
        urgent: bool = False,
    ) -> str:
        """Do something to a task that ``caller`` has the right to, in one transaction; ``do`` is
        given the wall time in ms. Returns the task's whole id."""

        def write(tx: Tx) -> str:
            task = self._find(tx, task_id)
            rights.check_owns(task, caller)
            do(tx, task, self._clock.now_ms())
            return task.task_id

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
        """Tasks that ``caller`` may see, the newest first; with ``agent_id`` those that run in that
        agent's mailbox, with ``parent_task_id`` the parts of that one."""
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
            lambda r: look(r, before=before, limit=limit), name="tasks.list"
        )
