"""Events about a message; for the current run of a task, an event about the task too."""

from __future__ import annotations

from typing import Any

from agentsup.model.event import EventType
from agentsup.model.message import Message, MessageKind
from agentsup.store import Tx, append, append_selected

_TASK = """
SELECT ?, ?, agent_id, session_id, task_id, '',
    json_object('task_id', task_id, 'state', state, 'runs', runs)
FROM tasks WHERE current_run = ?
"""


def emit_message_event(
    tx: Tx, event: EventType, message: Message, at: int, data: dict[str, Any]
) -> None:
    """Write an event about a message, in the conversation that it came from."""
    to = message.deliver_to
    append(
        tx,
        event,
        at=at,
        agent_id=message.agent_id,
        session_id=message.session_id,
        message_id=message.message_id,
        conversation=f"{to.channel}:{to.conversation}" if to.kind == "chat" else "",
        data=data,
    )
    emit_task_event(tx, message, at)


def emit_task_event(tx: Tx, message: Message, at: int) -> None:
    """Write an event about the task whose current run the message is, under the task's id.

    Nothing is read for messages that are no runs.
    """
    if message.kind is MessageKind.TASK:
        append_selected(tx, _TASK, (at, EventType.TASK_CHANGED.value, message.message_id))
