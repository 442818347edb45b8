"""Lists of tasks: whose they are, by the indexes there are for each of them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from agentsup.model.principal import NOBODY, Principal, PrincipalKind
from agentsup.model.task import Task, TaskState
from agentsup.store.database import Reader
from agentsup.tasks.rows import task_of

__all__ = ["list_tasks"]

_PERSON_SQL = (
    "CASE owner_kind WHEN 'agent' THEN coalesce(owner ->> '$.behalf', '')"
    " WHEN 'person' THEN iif((owner ->> '$.role') >= 2, 'operator', 'person:' || owner_id)"
    " ELSE 'operator' END"
)
"""``Principal.person`` of a task's owner."""


def list_tasks(
    reader: Reader,
    *,
    owner: Principal | None = None,
    agent_id: str = "",
    within: str = "",
    parent_task_id: str = "",
    states: Collection[TaskState] = (),
    before: str = "",
    limit: int = 100,
) -> list[Task]:
    """Tasks, the newest first: of an owner (of a person also those that their messages led to) and
    (``agent_id``) those that run in that mailbox; with both, either is enough. An agent's are those
    of the person it acts for in a turn, and nobody's. Without ``owner``, of everyone. ``within`` leaves those of one mailbox, ``parent_task_id`` the parts of one."""
    whose: list[tuple[str, list[str]]] = [("agent_id = ?", [agent_id])] if agent_id else []
    if owner is not None:
        whose.append(("owner_kind = ? AND owner_id = ?", [owner.kind.value, owner.subject]))
        if owner.kind is PrincipalKind.PERSON:
            whose.append(("asked_by = ?", [owner.subject]))
    more, values = "", [state.value for state in states]
    if states:
        more += f" AND state IN ({','.join('?' * len(states))})"
    if owner is not None and owner.kind is PrincipalKind.AGENT and owner.behalf:
        more += f" AND {_PERSON_SQL} IN ('', '{NOBODY}', ?)"
        values.append(owner.person)
    if before:
        more += " AND task_id < ?"
        values.append(before)
    for column, wanted in (("agent_id", within), ("parent_task_id", parent_task_id)):
        if wanted:
            more += f" AND {column} = ?"
            values.append(wanted)
    # The newest of each, by its index: whoever has many tasks has not all of them read.
    found, params = [], list[Any]()
    for clause, named in whose or [("1", [])]:
        found.append(
            f"SELECT task_id FROM tasks WHERE {clause}{more} ORDER BY task_id DESC LIMIT ?"  # noqa: S608 - constants and marks
        )
        params += [*named, *values, limit]
    ids = " UNION ALL ".join(f"SELECT * FROM ({each})" for each in found)  # noqa: S608 - as above
    rows = reader.all(
        f"SELECT * FROM tasks WHERE task_id IN ({ids}) ORDER BY task_id DESC LIMIT ?",  # noqa: S608 - as above
        (*params, limit),
    )
    return [task_of(row) for row in rows]  # type: ignore[arg-type]  # as above
