"""The mailbox's queries about runs. Their rows belong to ``agentsup.tasks``, a ring above."""

from __future__ import annotations

from collections.abc import Iterable

from agentsup.mailbox.messages.rows import encode
from agentsup.model.message import Message, MessageKind
from agentsup.store import Reader


def is_slot(reader: Reader, message_id: str) -> bool:
    """Whether the message is a run that a schedule has started."""
    return bool(
        reader.scalar("SELECT 1 FROM runs WHERE run_id = ? AND kind = 'slot'", (message_id,))
    )


def tasks_of(reader: Reader, messages: Iterable[Message]) -> dict[str, str]:
    """The task of each run among the messages; empty for a run of its own."""
    runs = [message.message_id for message in messages if message.kind is MessageKind.TASK]
    rows = reader.all(
        "SELECT run_id, task_id FROM runs WHERE run_id IN (SELECT value FROM json_each(?))",
        (encode(runs),),
    )
    return {row["run_id"]: row["task_id"] for row in rows}
