"""What a run is told while it works: it stands behind the result of its next call.

Such a note is a message that waits in the run's session. It is shown here and closed with the end of
the segment that has shown it, so a crash in between has it shown again and never loses it. A run
that makes no call any more reads it in a further turn.
"""

from __future__ import annotations

import json

from agentsup.mailbox import ending
from agentsup.mailbox.rows import OPEN_SQL, message_of
from agentsup.model.message import Kind, Message, Outcome, State
from agentsup.store.database import Database, Reader, Tx

_SQL = (
    f"SELECT * FROM messages WHERE agent_id = ? AND session_id = ? AND {OPEN_SQL}"  # noqa: S608 - a constant
    " AND state = 'queued' AND kind = 'directive' AND in_reply_to = ?"
    " AND deliver_to ->> '$.kind' <> 'question' ORDER BY seq"
)


class Notes:
    """The notes that one segment has shown. Only runs are told any."""

    def __init__(self, database: Database, message: Message, told: list[str]) -> None:
        """``told`` collects the ids of what was shown, for ``close_tx``."""
        self._database = database
        self._message = message
        self._told = told

    async def behind(self, text: str) -> str:
        """A call's result, with what the run was told since its last one."""
        if self._message.kind is not Kind.TASK:
            return text
        waiting = await self._database.read(self._waiting, name="turn.notes")
        fresh = [note for note in waiting if note.message_id not in self._told]
        self._told += [note.message_id for note in fresh]
        lines = [f"[Note from {note.principal.label}] {note.text}" for note in fresh]
        return "\n\n".join([text, *lines])

    def _waiting(self, reader: Reader) -> list[Message]:
        message = self._message
        rows = reader.all(_SQL, (message.agent_id, message.session_id, message.message_id))
        return [message_of(row) for row in rows]  # type: ignore[arg-type]  # Row is a mapping in all but name


def close_tx(tx: Tx, told: list[str], by: Message, *, at: int) -> None:
    """The segment that has shown them ends: they are read."""
    if not told:
        return
    rows = tx.all(
        "SELECT * FROM messages WHERE state = 'queued'"
        " AND message_id IN (SELECT value FROM json_each(?))",
        (json.dumps(told),),
    )
    text = f"read by the turn on {by.message_id}"
    for row in rows:
        note = message_of(row)  # type: ignore[arg-type]  # as above
        ending.close_tx(
            tx, note, State.DONE, at=at, outcome=Outcome.OK, code="collected", text=text
        )
