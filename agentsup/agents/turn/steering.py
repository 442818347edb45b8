"""Notes to a running task: they are added to the result of its next call.

A note is a message that is queued in the run's session. It is shown here and closed with the end of
the segment that has shown it, so after a crash in between it is shown again and never lost. A run
that makes no further call reads the note in another turn. So does a run whose note comes from
somebody with other rights by now: the start of that turn decides about the note (P7).
"""

from __future__ import annotations

from agentsup.agents.turn.services import TurnContext
from agentsup.mailbox.lifecycle import closing
from agentsup.mailbox.messages import MailboxContext, current_rights, find_message
from agentsup.model.errors import RightsLost
from agentsup.model.message import Message, MessageKind, MessageState
from agentsup.store import Reader, Tx


class SteeringNotes:
    """The notes that one segment has shown. Only runs get notes."""

    def __init__(self, turn: TurnContext, shown: list[str]) -> None:
        """``shown`` collects the ids of the notes that were shown, for ``close_notes_tx``."""
        self._turn = turn
        self._shown = shown

    async def behind(self, text: str) -> str:
        """The call's result ``text``, with the notes that came since the previous call."""
        if self._turn.message.kind is not MessageKind.TASK:
            return text
        waiting = await self._turn.services.database.read(self._waiting, name="turn.notes")
        fresh = [note for note in waiting if note.message_id not in self._shown]
        self._shown += [note.message_id for note in fresh]
        lines = [f"[Note from {note.principal.label}] {note.text}" for note in fresh]
        return "\n\n".join([text, *lines])

    def _waiting(self, reader: Reader) -> list[Message]:
        message = self._turn.message
        notes = closing.queued_for(reader, message, MessageKind.DIRECTIVE, message.message_id)
        return [
            note
            for note in notes
            if note.deliver_to.kind != "question" and self._keeps_rights(reader, note)
        ]

    def _keeps_rights(self, reader: Reader, note: Message) -> bool:
        now, role_now = (note.principal, note.person), self._turn.services.mailbox.context.role_now
        try:
            return now == current_rights.acting_for_message(
                reader, *now, note.message_id, note.root_id, role_now
            )
        except RightsLost:
            return False


def close_notes_tx(ctx: MailboxContext, tx: Tx, shown: list[str], by: Message, *, at: int) -> None:
    """Close the notes as read, with the end of the segment that has shown them."""
    notes = [find_message(tx, message_id) for message_id in shown]
    queued = [note for note in notes if note and note.state is MessageState.QUEUED]
    closing.collect_tx(ctx, tx, queued, by, at=at)
