"""A task with all that is shown of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentsup.mailbox.queue import delivery_of
from agentsup.model.question import Question, QuestionState
from agentsup.model.task import ENDED, DeliveryState, Run, Schedule, Task
from agentsup.store import Reader
from agentsup.tasks import asking, rows, schedules


@dataclass(frozen=True, slots=True)
class TaskCard:
    """A task and what belongs to it, as of one moment.

    ``runs`` are its runs and the times that were passed over, the latest first; ``questions`` those
    of its runs, open or not, oldest first; ``delivery`` is that of its result.
    """

    task: Task
    schedule: Schedule | None
    questions: Sequence[Question]
    runs: Sequence[Run]
    delivery: DeliveryState

    @property
    def open_question(self) -> Question | None:
        """The oldest of its open questions."""
        return next((q for q in self.questions if q.state is QuestionState.OPEN), None)


def card_of(reader: Reader, task: Task, *, runs: int) -> TaskCard:
    """The card of a task, with at most ``runs`` runs."""
    delivery = DeliveryState.NONE
    if task.state in ENDED:
        delivery = delivery_of(reader, task.current_run, task.deliver_to)
    return TaskCard(
        task,
        schedules.get(reader, task.task_id),
        asking.questions_of(reader, task.task_id),
        rows.runs_of(reader, task.task_id, limit=runs),
        delivery,
    )
