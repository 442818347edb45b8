"""Tasks as they are shown: lists, each read by the index that fits its owner, and cards."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from agentsup.mailbox.messages import AGENTS
from agentsup.mailbox.queue import delivery_of
from agentsup.model.message import DeliverTo
from agentsup.model.principal import NOBODY, PERSON_MARK, Principal, PrincipalKind
from agentsup.model.question import Question, QuestionState
from agentsup.model.task import ENDED, DeliveryState, Run, Schedule, Task, TaskState
from agentsup.store import Reader
from agentsup.tasks import asking, permissions, rows, schedules
from agentsup.tasks.rows import task_of

_REMINDERS_MAX = 5_000

_PERSON_SQL = (
    "CASE owner_kind WHEN 'agent' THEN coalesce(owner ->> '$.behalf', '')"
    " WHEN 'person' THEN iif((owner ->> '$.role') >= 2, 'operator', 'person:' || owner_id)"
    " ELSE 'operator' END"
)
"""``Principal.person`` of a task's owner."""
_ASKER_SQL = f"'{PERSON_MARK}' || iif(owner_kind = 'person', owner_id, coalesce(owner ->> '$.asker', asked_by))"
"""The ``person`` value, without operator rights, of the person who gave the task."""
_OWNED = "owner_kind = ? AND owner_id = ?"


def seen_task(reader: Reader, name: str, caller: Principal) -> Task:
    """The task of that id, or the only one whose id ends so, if ``caller`` may see it.

    Raises ``NotFound``, ``Forbidden`` and ``Conflict`` (several ids end so).
    """
    found = rows.named_task(reader, name)
    permissions.check_sees(found, caller)
    return found


def owned_task(reader: Reader, name: str, caller: Principal) -> Task:
    """The same, if ``caller`` may change it."""
    found = rows.named_task(reader, name)
    permissions.check_owns(found, caller)
    return found


def list_tasks(
    reader: Reader,
    caller: Principal,
    *,
    agent_id: str = "",
    parent_task_id: str = "",
    states: Collection[TaskState] = (),
    before: str = "",
    limit: int = 100,
) -> list[Task]:
    """Tasks that ``caller`` may see, the newest first.

    An operator sees all, a person the own ones and those that their messages led to, an agent the
    own ones and those in its mailbox; in a turn only those of the person it acts for and of nobody.
    ``agent_id`` limits the list to one mailbox, ``parent_task_id`` to the parts of one task.
    """
    whose: list[tuple[str, list[str]]] = []
    if caller.kind in AGENTS and not caller.is_operator:
        of_agent = [PrincipalKind.AGENT.value, caller.subject]
        whose = [("agent_id = ?", [caller.subject]), (_OWNED, of_agent)]
    elif not caller.is_operator:
        whose = [(_OWNED, [caller.kind.value, caller.subject])]
        if caller.kind is PrincipalKind.PERSON:
            whose.append(("asked_by = ?", [caller.subject]))
    more, values = "", [state.value for state in states]
    if states:
        more += f" AND state IN ({','.join('?' * len(states))})"
    if caller.kind in AGENTS and caller.behalf:
        more += f" AND ({_PERSON_SQL} IN ('', '{NOBODY}', ?) OR {_ASKER_SQL} = ?)"
        values += [caller.person, caller.person]
    if before:
        more += " AND task_id < ?"
        values.append(before)
    for column, wanted in (("agent_id", agent_id), ("parent_task_id", parent_task_id)):
        if wanted:
            more += f" AND {column} = ?"
            values.append(wanted)
    # Read only the newest tasks of each clause, by its index, and not all of an owner's tasks.
    found, params = [], list[Any]()
    for clause, named in whose or [("1", [])]:
        found.append(
            f"SELECT task_id FROM tasks WHERE {clause}{more} ORDER BY task_id DESC LIMIT ?"  # noqa: S608 - constants and marks
        )
        params += [*named, *values, limit]
    ids = " UNION ALL ".join(f"SELECT * FROM ({each})" for each in found)  # noqa: S608 - as above
    return reader.values(
        task_of,
        f"SELECT * FROM tasks WHERE task_id IN ({ids}) ORDER BY task_id DESC LIMIT ?",  # noqa: S608 - as above
        (*params, limit),
    )


def counts(reader: Reader) -> dict[str, dict[str, int]]:
    """Agent id → state → number of stored tasks."""
    found: dict[str, dict[str, int]] = {}
    for agent_id, state, number in reader.all(
        "SELECT agent_id, state, count(*) FROM tasks GROUP BY agent_id, state"
    ):
        found.setdefault(agent_id, {})[state] = number
    return found


def reminders_for(reader: Reader, who: Principal, chat: DeliverTo) -> list[tuple[Task, Schedule]]:
    """The reminders ahead that are ``who``'s own, the next one first.

    For an operator also those that come to ``chat``.
    """
    found = reader.values(
        task_of,
        "SELECT t.* FROM tasks t JOIN schedules s ON s.task_id = t.task_id"
        " WHERE t.does = 'tell' AND t.state = 'todo' AND (s.next_at IS NOT NULL OR s.is_paused = 1)"
        " ORDER BY s.next_at LIMIT ?",
        (_REMINDERS_MAX,),
    )
    here = (chat.channel, chat.conversation)

    def is_shown(task: Task) -> bool:
        to = task.deliver_to
        is_here = who.is_operator and (to.channel, to.conversation) == here
        return is_here or permissions.is_theirs(task, who)

    own = [task for task in found if is_shown(task)]
    times = schedules.of_tasks(reader, [task.task_id for task in own])
    return [(task, times[task.task_id]) for task in own]


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
