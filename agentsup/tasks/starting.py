"""Starting the runs of tasks: at once, again, or at a time of a schedule."""

from __future__ import annotations

from dataclasses import replace

from agentsup.kit.entropy import Entropy
from agentsup.mailbox.bus import AgentDirectory, Asker
from agentsup.mailbox.ending import held_tx
from agentsup.mailbox.mailbox import Mailbox
from agentsup.model.errors import NotFound, Overloaded
from agentsup.model.ids import AgentId
from agentsup.model.principal import Principal
from agentsup.model.task import MAX_SCHEDULES, Run, RunKind, Task
from agentsup.store.database import Tx
from agentsup.tasks import lineage, rows, schedules
from agentsup.tasks.runs import NewRun, Runs

__all__ = ["Starter"]

SHORT_ID_CHARS = 6
"""Of an id's end, in texts: ``TaskHub.get`` finds the task by it."""


class Starter:
    """Puts runs of tasks into their mailboxes. Implements ``schedules.SlotStarter``."""

    def __init__(
        self, mailbox: Mailbox, directory: AgentDirectory, runs: Runs, entropy: Entropy
    ) -> None:
        self._desk = mailbox.desk
        self._directory = directory
        self._runs = runs
        self._entropy = entropy

    def first_tx(self, tx: Tx, task: Task, asker: Asker | None) -> Run:
        """The first run of a task that is about to be written. Raises as ``start_tx``."""
        return self._put_tx(tx, task, RunKind.TASK, task.prompt, asker)

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
    ) -> Run:
        """Start a run of the task, told ``prompt``; with ``key`` a repeated start gives the same.
        Raises what ``Runs.start_tx`` raises."""
        run = self._put_tx(tx, task, kind, prompt, asker, slot_at=slot_at, key=key)
        if run.run_no > task.runs:  # else its key is known, and so is the run
            rows.begin_tx(tx, task.task_id, run)
        return run

    def _put_tx(
        self,
        tx: Tx,
        task: Task,
        kind: RunKind,
        prompt: str,
        asker: Asker | None,
        *,
        slot_at: int | None = None,
        key: str = "",
    ) -> Run:
        if self._directory.by_id(task.agent_id) is None:
            raise NotFound("the agent whose work it is was removed", task_id=task.task_id)
        at, parent = self._desk.clock.now_ms(), asker.lease.message if asker is not None else None
        if parent is not None and parent.agent_id != task.agent_id:
            parent = None
        # What a turn has set going by a schedule is as deep as what it hands on itself.
        above, since = 0, task.parent_session_id if parent is None else ""
        if since and kind is RunKind.SLOT:
            above = rows.depth_in(tx, task.parent_message_id, since)
        expires_at = None if task.timeout_s is None else at + round(task.timeout_s * 1000)
        run = self._runs.start_tx(
            tx,
            NewRun(
                kind=kind,
                agent_id=task.agent_id,
                prompt=prompt,
                principal=_acting(task, asker),
                deliver_to=task.deliver_to,
                target=task.target,
                label=task.name,
                parent=parent,
                above=above,
                part_of=task.parent_message_id if since else "",
                key=key,
                session_key=f"task:{task.task_id}",
                priority=task.priority,
                expires_at=expires_at,
                max_usd=task.max_usd,
                task_id=task.task_id,
                run_no=task.runs + 1,
                slot_at=slot_at,
                summary=f"task {task.task_id[-SHORT_ID_CHARS:]} “{task.name}”",
            ),
        )
        if task.parent_session_id and not lineage.subject_of(task.target)[0]:
            # Created in another's place: it is done by that one, perhaps in a role.
            tx.execute(
                "INSERT INTO session_personas (session_id, agent_id) SELECT ?, agent_id"
                " FROM session_personas WHERE session_id = ? ON CONFLICT DO NOTHING",
                (run.session_id, task.parent_session_id),
            )
        return run

    def check_schedule_tx(self, tx: Tx, task: Task, asker: Asker | None) -> None:
        """What a turn may set going by a schedule: nothing deeper than it may hand on itself, and
        not more than ``MAX_SCHEDULES`` of its agent's. Raises ``DepthExceeded``, ``Overloaded`` and
        ``LeaseLost`` (it was stopped).
        """
        if asker is None:
            return
        message, owner = held_tx(self._desk, tx, asker.lease), task.owner
        lineage.check_depth(1 + rows.depth_in(tx, message.message_id, message.session_id))
        count = schedules.count_of(tx, owner)
        if count >= MAX_SCHEDULES:
            raise Overloaded(
                f"{owner.label} has {count} schedules that go on, the most allowed are "
                f"{MAX_SCHEDULES}: cancel tasks that are no longer needed",
                queue="schedules",
                size=count,
                limit=MAX_SCHEDULES,
            )

    # -- times of a schedule ---------------------------------------------------------------------------

    def start_slot_tx(self, tx: Tx, task_id: str, slot_at: int, *, at: int) -> Run | None:
        """Start the run of one time of the schedule; None where that time has had its run."""
        del at
        task = rows.need_task(tx, task_id)
        had = tx.scalar("SELECT 1 FROM runs WHERE task_id = ? AND slot_at = ?", (task_id, slot_at))
        if had:
            return None
        return self.start_tx(tx, task, RunKind.SLOT, task.prompt, None, slot_at=slot_at)

    def skip_slot_tx(self, tx: Tx, task_id: str, slot_at: int, why: str, *, at: int) -> None:
        """Record a time of the schedule that is let pass, once."""
        task = rows.need_task(tx, task_id)
        had = tx.scalar("SELECT 1 FROM runs WHERE task_id = ? AND slot_at = ?", (task_id, slot_at))
        if had:
            return
        run = Run(
            run_id=self._entropy.new_id("slot"),
            task_id=task_id,
            run_no=task.runs,
            kind=RunKind.SLOT,
            agent_id=AgentId(task.agent_id),
            target=task.target,
            label=task.name,
            parent_message_id="",
            root_id="",
            depth=1,
            slot_at=slot_at,
            state="skipped",
            outcome="",
            why=why,
            created_at=at,
        )
        rows.add_run_tx(tx, run)


def _acting(task: Task, asker: Asker | None) -> Principal:
    if asker is not None and asker.lease.message.principal.language:
        return replace(task.owner, language=asker.lease.message.principal.language)
    return task.owner
