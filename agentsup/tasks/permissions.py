"""Rights to tasks. Pure."""

from __future__ import annotations

from agentsup.mailbox.messages import AGENTS, is_of_work
from agentsup.model.errors import Forbidden
from agentsup.model.principal import PERSON_MARK, PersonRole, Principal, PrincipalKind
from agentsup.model.task import Task


def is_theirs(task: Task, who: Principal) -> bool:
    """Whether the task is ``who``'s own.

    A run acts for its agent, and for the person of its turn. A task that an agent has created for a
    person is that person's, too.
    """
    if who.kind in AGENTS:
        is_agents = task.owner.kind in AGENTS and task.owner.subject == who.subject
        return is_agents and _is_of_its_work(task, who)
    if who.kind is PrincipalKind.PERSON and task.asked_by == who.subject:
        return True
    return (task.owner.kind, task.owner.subject) == (who.kind, who.subject)


def check_may_create(who: Principal) -> None:
    """Raise ``Forbidden`` for a viewer."""
    if who.kind is PrincipalKind.PERSON and who.role < PersonRole.USER:
        raise Forbidden("viewers can't give tasks; an operator can make you a user")


def check_sees(task: Task, who: Principal) -> None:
    """Raise ``Forbidden`` unless ``who`` owns the task, works on it, or is an operator."""
    works_on_it = who.kind in AGENTS and task.agent_id == who.subject and _is_of_its_work(task, who)
    if not (who.is_operator or works_on_it or is_theirs(task, who)):
        raise _refusal(task)


def check_owns(task: Task, who: Principal) -> None:
    """Raise ``Forbidden`` unless ``who`` may change the task: its owner, or an operator."""
    if who.kind is PrincipalKind.PERSON and who.role < PersonRole.USER:
        raise _refusal(task)
    if not (who.is_operator or is_theirs(task, who)):
        raise _refusal(task)


def _is_of_its_work(task: Task, who: Principal) -> bool:
    """Whether an agent acts for the person for whom the task is done.

    A person who gave it as an operator and is none any more still counts.
    """
    if is_of_work(who.person, task.owner.person):
        return True
    asker = task.owner.asker_name or task.asked_by
    return bool(asker) and who.person == f"{PERSON_MARK}{asker}"


def _refusal(task: Task) -> Forbidden:
    return Forbidden(f"task {task.task_id} is somebody else's", task_id=task.task_id)
