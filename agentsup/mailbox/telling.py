"""Events of what happens to a message; of a run, its task's event with it."""

from __future__ import annotations

from typing import Any

from agentsup.model.event import EventType
from agentsup.model.message import Kind, Message
from agentsup.store.database import Tx
from agentsup.store.events import append

__all__ = ["tell", "tell_task"]

_TASK = """
INSERT INTO events (at, type, agent_id, session_id, message_id, data)
SELECT ?, ?, agent_id, session_id, task_id,
    json_object('task_id', task_id, 'state', state, 'runs', runs)
FROM tasks WHERE current_run = ?
"""


def tell(tx: Tx, event: EventType, message: Message, at: int, data: dict[str, Any]) -> None:
    """The event of what happened to a message, in the conversation it came from."""
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
    tell_task(tx, message, at)


def tell_task(tx: Tx, message: Message, at: int) -> None:
    """The event of the task whose current run the message is, under the task's id. Only messages
    that are runs pay for the look."""
    if message.kind is Kind.TASK:
        tx.execute(_TASK, (at, EventType.TASK_CHANGED.value, message.message_id))
