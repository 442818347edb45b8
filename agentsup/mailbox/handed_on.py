"""What a turn that is ended leaves behind: runs that it has handed on, and questions to other agents.

What it waits for ends with it, at any depth: nobody is left who wants it. What it has begun in the
background goes on, unless the turn was a run: with a run ends all that it has set going.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentsup.mailbox.rows import FOLLOWING_SQL, OPEN_SQL, encode, message_of
from agentsup.model.message import TERMINAL, Kind, Message, State
from agentsup.store.database import Reader

__all__ = ["ending_with"]

_NO_TASK = "NOT EXISTS (SELECT 1 FROM runs r WHERE r.run_id = m.message_id AND r.task_id <> '')"
"""Runs of tasks go on: a task is its owner's."""


def ending_with(
    reader: Reader, messages: Sequence[Message], *, background: bool = False
) -> list[Message]:
    """The open messages that end with the turns on ``messages``, in the order in which they were
    handed on; with ``background`` also what these have begun in the background."""
    known = {message.message_id for message in messages}
    found: list[Message] = []
    turns: list[Message] = [m for m in messages if m.state is not State.QUEUED or m.attempts]
    runs = [m.message_id for m in turns if m.kind is Kind.TASK]
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
        # What is below a run belongs to it, the turns on results that come back to it included.
        whole = runs = [m.message_id for m in below if m.kind in (Kind.TASK, Kind.REPLY)]
    return found


def _below(
    reader: Reader, turns: Sequence[str], whole: Sequence[str], runs: Sequence[str]
) -> list[Message]:
    """What ``turns`` wait for; all runs that those in ``whole`` have set going, ended or not, since of
    work that has ended something may still be under way; and what ``runs`` have asked other agents."""
    rows = reader.all(
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
    return [message_of(row) for row in rows]  # type: ignore[arg-type]  # Row is a mapping in all but name
