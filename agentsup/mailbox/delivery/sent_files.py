"""A file that an agent sends during its turn: a part of the outbox, at most one for each call."""

from __future__ import annotations

from agentsup.mailbox.delivery import outbox
from agentsup.model.message import Message, MessageKind
from agentsup.store import Tx

MOST_FILES = 20
"""As many files a turn may send."""


def is_sent(tx: Tx, message_id: str, call_id: str) -> bool:
    """Whether that call has put its file into the outbox already."""
    found = tx.scalar(
        "SELECT 1 FROM outbox WHERE message_id = ? AND kind = 'file'"
        " AND json_extract(body, '$.call_id') = ?",
        (message_id, call_id),
    )
    return found is not None


def count(tx: Tx, message_id: str) -> int:
    """Number of files that the turn on a message has sent."""
    return int(
        tx.scalar(
            "SELECT count(*) FROM outbox WHERE message_id = ? AND kind = 'file'"
            " AND json_extract(body, '$.call_id') IS NOT NULL",
            (message_id,),
        )
    )


def send_tx(
    tx: Tx, message: Message, *, call_id: str, path: str, name: str, text: str, at: int
) -> None:
    """Put a file of the workspace into the outbox, for the chat to which the answer goes."""
    to = message.deliver_to
    body = {"path": path, "name": name, "text": text, "call_id": call_id}
    if message.kind is MessageKind.TASK:
        body["of_work"] = message.summary
    outbox.add_tx(
        tx,
        message_id=message.message_id,
        agent_id=message.agent_id,
        channel=to.channel,
        conversation=to.conversation,
        kind="file",
        body=body,
        at=at,
    )
