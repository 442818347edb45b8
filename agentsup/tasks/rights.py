"""Who may do what with a task. Pure."""

from __future__ import annotations

from agentsup.mailbox.naming import AGENTS, is_of_work
from agentsup.model.errors import Forbidden
from agentsup.model.principal import PersonRole, Principal, PrincipalKind
from agentsup.model.task import Task

__all__ = ["check_may_create", "check_owns", "check_sees", "is_theirs"]


def is_theirs(task: Task, who: Principal) -> bool:
    """Whether the task is ``who``'s own: a run acts for its agent, for the person of its turn, and
    what an agent has begun for a person is that person's, too."""
    if who.kind in AGENTS:
        is_agents = task.owner.kind in AGENTS and task.owner.subject == who.subject
        return is_agents and is_of_work(who.person, task.owner.person)
    if who.kind is PrincipalKind.PERSON and task.asked_by == who.subject:
        return True
    return (task.owner.kind, task.owner.subject) == (who.kind, who.subject)


def check_may_create(who: Principal) -> None:
    """Raise ``Forbidden`` for a person who may only look."""
    if who.kind is PrincipalKind.PERSON and who.role < PersonRole.USER:
        raise Forbidden("viewers can't give tasks; an operator can make you a user")


def check_sees(task: Task, who: Principal) -> None:
    """Raise ``Forbidden`` unless ``who`` owns the task, works on it, or is an operator."""
    works_on_it = (
        who.kind in AGENTS
        and task.agent_id == who.subject
        and is_of_work(who.person, task.owner.person)
    )
    if not (who.is_operator or works_on_it or is_theirs(task, who)):
        raise _refusal(task)


def check_owns(task: Task, who: Principal) -> None:
    """Raise ``Forbidden`` unless ``who`` may steer the task: its owner, or an operator."""
    if who.kind is PrincipalKind.PERSON and who.role < PersonRole.USER:
        raise _refusal(task)
    if not (who.is_operator or is_theirs(task, who)):
        raise _refusal(task)


def _refusal(task: Task) -> Forbidden:
    return Forbidden(f"task {task.task_id} is somebody else's", task_id=task.task_id)
