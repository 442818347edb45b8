"""Composing a task before anything is written. Pure, except for the directory of agents."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace

from agentsup.mailbox.mail import AgentDirectory, DirectoryEntry, check_may_send, to_asker
from agentsup.mailbox.messages import AGENTS
from agentsup.model.agent import MAIN
from agentsup.model.errors import BadRequest, Forbidden, NotFound
from agentsup.model.ids import AgentId
from agentsup.model.message import IN_STORE, DeliverTo, Message
from agentsup.model.principal import NOBODY, Principal, PrincipalKind
from agentsup.model.task import (
    MAX_NAME_CHARS,
    MAX_PROMPT_CHARS,
    MAX_REMINDER_CHARS,
    NewTask,
    Task,
    TaskAction,
    TaskState,
)
from agentsup.tasks import lineage, permissions


def one_line(text: str, most: int = MAX_NAME_CHARS) -> str:
    """``text`` on one line of at most ``most`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"


def task_from(
    new: NewTask,
    *,
    task_id: str,
    caller: Principal,
    parent: Message | None,
    directory: AgentDirectory,
    at: int,
) -> Task:
    """Compose a new task. ``parent`` is the message of the turn that creates it.

    Raises ``NotFound`` and ``Gone`` (an agent), ``Forbidden`` and ``BadRequest``.
    """
    permissions.check_may_create(caller)
    check_new_task(new)
    worker, target = _worker(new, caller, directory)
    deliver_to = new.deliver_to
    if deliver_to is None and parent is not None:
        deliver_to = to_asker(parent, waited=False)
    elif deliver_to is None and caller.kind in AGENTS:
        deliver_to = DeliverTo("mailbox", agent_id=caller.subject)
    # A run acts as its agent, and the agent acts for the person of the turn.
    owner = caller
    if caller.kind is PrincipalKind.RUN:
        owner = replace(caller, kind=PrincipalKind.AGENT)
    if parent is not None and owner.kind is PrincipalKind.AGENT:
        owner = replace(owner, behalf=parent.person or NOBODY)
    task = new_task(new, task_id=task_id, owner=owner, agent_id=worker.agent_id, at=at)
    return replace(
        task,
        target=target,
        parent_message_id=parent.message_id if parent is not None else "",
        deliver_to=deliver_to or IN_STORE,
        parent_session_id=(
            parent.session_id if parent and parent.agent_id == worker.agent_id else ""
        ),
    )


def new_task(new: NewTask, *, task_id: str, owner: Principal, agent_id: AgentId, at: int) -> Task:
    """The task of a request that was checked, without what a turn adds to it."""
    return Task(
        task_id=task_id,
        name=one_line(new.name or new.prompt),
        owner=owner,
        agent_id=agent_id,
        target="",
        state=TaskState.TODO,
        prompt=new.prompt,
        priority=new.priority,
        timeout_s=new.timeout_s,
        max_usd=new.max_usd,
        parent_task_id=new.parent_task_id,
        parent_message_id="",
        created_at=at,
        deliver_to=new.deliver_to or IN_STORE,
        does=new.does,
    )


def for_persona(task: Task, agent: str, persona: str, directory: AgentDirectory) -> Task:
    """The task as a turn with a persona creates it.

    ``persona`` is the id of the persona, ``agent`` the name that the turn gave for the task. No
    name: the task is unchanged. The persona's own name: it runs in that persona. Another name: the
    persona must be allowed to delegate to that agent, too.

    Raises ``NotFound`` (the persona was removed since), ``Forbidden`` and ``LoopDetected``.
    """
    if not agent:
        return task
    own, other = directory.by_id(persona), directory.lookup(agent)
    if own is None:
        raise NotFound("the agent in whose place this is done was removed", agent=persona)
    if other.agent_id == own.agent_id:
        return replace(task, target="")
    lineage.check_new(other.agent_id, (task.agent_id,))
    _check_hands_on(own, other)
    return task


def _worker(
    new: NewTask, caller: Principal, directory: AgentDirectory
) -> tuple[DirectoryEntry, str]:
    """The agent whose mailbox the runs go to, and the target (a role or agent) as which they run.

    The task of an agent uses that agent's own slots, whatever its target; the task of a person
    uses those of the agent that gets it.
    """
    role = lineage.role_target(new.role) if new.role else ""
    if caller.kind not in AGENTS:
        return directory.lookup(new.agent or MAIN), role
    own = directory.by_id(caller.subject)
    if own is None:
        raise NotFound("the calling agent no longer exists", agent=caller.subject)
    if not new.agent:
        return own, role
    other = directory.lookup(new.agent)
    if other.agent_id == own.agent_id:
        return own, role
    if role:
        raise BadRequest("name an agent or a role, not both", field="role")
    _check_hands_on(own, other)
    return own, lineage.agent_target(other.agent_id)


def _check_hands_on(own: DirectoryEntry, other: DirectoryEntry) -> None:
    check_may_send(own, other)
    if own.can_delegate_to is None and other.role.casefold() not in ("", own.role.casefold()):
        raise Forbidden(
            f"{other.name} is in the role {other.role}, and work is handed across roles only where "
            f'that is granted: write "can_delegate_to": ["{other.name}"] into the entry of '
            f"{own.name} in agents.json",
            agent=other.name,
        )


def check_new_task(new: NewTask) -> None:
    """Raise ``BadRequest`` for what can't be a task."""
    if not new.prompt.strip():
        raise BadRequest("the prompt is empty", field="prompt")
    if len(new.prompt) > MAX_PROMPT_CHARS:
        raise BadRequest(f"the prompt has over {MAX_PROMPT_CHARS} characters", field="prompt")
    if new.does is TaskAction.TELL:
        if new.schedule is None:
            raise BadRequest("a reminder needs a time", field="schedule")
        if len(new.prompt) > MAX_REMINDER_CHARS:
            raise BadRequest(
                f"a reminder has at most {MAX_REMINDER_CHARS} characters", field="prompt"
            )
    if new.timeout_s is not None and not 0 < new.timeout_s <= 366 * 86_400:
        raise BadRequest("timeout must be over 0 and at most a year", field="timeout")
    if new.max_usd is not None and not 0 < new.max_usd <= 1e6:
        raise BadRequest("max_usd must be over 0 and at most 1,000,000", field="max_usd")


def digest(new: NewTask) -> str:
    """The hash by which two requests under one key are compared.

    A reminder "in two hours" has another time when it is repeated, so its time does not count.
    """
    fields = asdict(new)
    if new.does is TaskAction.TELL:
        del fields["schedule"]
    else:
        del fields["does"]  # so that keys of earlier versions stay valid
    body = json.dumps(fields, sort_keys=True, default=str)
    return hashlib.sha256(body.encode("utf-8", "replace")).hexdigest()
