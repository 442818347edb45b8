"""The messages that end with a turn: runs that it has delegated, and questions to other agents.

Everything that the turn waits for ends with it, at any depth, because nobody needs it any more. Its
background work goes on, unless the turn was a run: with a run ends everything that it has started.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentsup.mailbox.messages.rows import FOLLOWING_SQL, OPEN_SQL, encode, message_of
from agentsup.model.message import TERMINAL, Message, MessageKind, MessageState
from agentsup.store import Reader

_NO_TASK = "NOT EXISTS (SELECT 1 FROM runs r WHERE r.run_id = m.message_id AND r.task_id <> '')"
"""Runs of tasks go on: a task belongs to its owner."""


def ending_with(
    reader: Reader, messages: Sequence[Message], *, background: bool = False
) -> list[Message]:
    """The open messages that end with the turns on ``messages``, in the order of delegation.

    With ``background``, the background work of these turns is included.
    """
    known = {message.message_id for message in messages}
    found: list[Message] = []
    turns: list[Message] = [m for m in messages if m.state is not MessageState.QUEUED or m.attempts]
    runs = [m.message_id for m in turns if m.kind is MessageKind.TASK]
    whole = [m.message_id for m in turns] if background else runs
    while turns:
        below = [
            message
            for message in _below(reader, [m.message_id for m in turns], whole, runs)
            if message.message_id not in known
        ]
        known.update(message.message_id for message in below)
        found += (message for message in below if message.state not in TERMINAL)
        turns = below
        # All messages below a run belong to it, also the turns on results that come back to it.
        whole = runs = [
            m.message_id for m in below if m.kind in (MessageKind.TASK, MessageKind.REPLY)
        ]
    return found


def _below(
    reader: Reader, turns: Sequence[str], whole: Sequence[str], runs: Sequence[str]
) -> list[Message]:
    """The messages directly below these turns.

    These are: what ``turns`` wait for; all runs that ``whole`` have started, ended or not, because
    an ended run may have open work below it; and requests of ``runs`` to other agents.
    """
    return reader.values(
        message_of,
        "SELECT m.* FROM messages m WHERE m.kind = 'task'"  # noqa: S608 - constants
        f" AND {FOLLOWING_SQL} AND in_reply_to IN (SELECT value FROM json_each(?1)) AND {_NO_TASK}"
        f" AND {OPEN_SQL} AND deliver_to ->> '$.waited'"
        f" UNION SELECT m.* FROM messages m WHERE {FOLLOWING_SQL}"
        f" AND in_reply_to IN (SELECT value FROM json_each(?2)) AND {_NO_TASK}"
        " UNION SELECT m.* FROM waits w JOIN messages m ON m.message_id = w.target_id"
        f" WHERE w.waiter_id IN (SELECT value FROM json_each(?1)) AND m.in_reply_to = w.waiter_id AND m.kind = 'chat' AND m.{OPEN_SQL}"
        f" UNION SELECT m.* FROM messages m INDEXED BY messages_open WHERE {OPEN_SQL}"
        " AND m.kind = 'chat' AND in_reply_to IN (SELECT value FROM json_each(?3))"
        " ORDER BY seq",
        (encode(list(turns)), encode(list(whole)), encode(list(runs))),
    )
