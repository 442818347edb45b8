"""A message that waits behind others is told so, once it has waited a while."""

from __future__ import annotations

from agentsup.channels.telegram import compose
from agentsup.channels.telegram.updates import CHANNEL
from agentsup.kit.clock import Clock
from agentsup.kit.tasks import OwnerClosed, TaskOwner
from agentsup.mailbox import outbox
from agentsup.mailbox.mailbox import Mailbox
from agentsup.model.errors import NotFound, Overloaded, StoreUnavailable
from agentsup.model.message import Accepted
from agentsup.store.database import Database, Reader, Tx

__all__ = ["Waiting", "ahead_of"]

_AHEAD = (
    "SELECT COUNT(*) FROM messages WHERE agent_id = ? AND session_id = ?"
    " AND state IN ('queued', 'leased', 'parked') AND message_id < ?"
)


def ahead_of(reader: Reader, agent_id: str, accepted: Accepted) -> int:
    """Open messages of the same session that were there before it; their ids sort by time."""
    return int(reader.scalar(_AHEAD, (agent_id, accepted.session_id, accepted.message_id)))


class Waiting:
    """Watches messages of one bot that have others before them.

    A note is status, not an answer: it is given once per conversation as long as one waits, and a
    crash may forget it.
    """

    def __init__(
        self, *, agent_id: str, database: Database, mailbox: Mailbox, clock: Clock, after_s: float
    ) -> None:
        """``after_s``: how long a message has to wait before people are told."""
        self._agent_id = agent_id
        self._database = database
        self._mailbox = mailbox
        self._clock = clock
        self._after_s = after_s
        self._owner = TaskOwner("telegram waiting")
        self._noted: set[str] = set()

    def watch(self, message_id: str, conversation: str) -> None:
        """Look after it, unless the conversation has a note already. Never blocks."""
        if conversation in self._noted:
            return
        self._noted.add(conversation)
        try:
            self._owner.spawn(self._serve(message_id, conversation), name=f"waiting:{conversation}")
        except OwnerClosed:
            return

    async def _serve(self, message_id: str, conversation: str) -> None:
        try:
            await self._clock.sleep(self._after_s)
            await self._database.write(
                lambda tx: self._note_tx(tx, message_id, conversation), name="telegram.waiting"
            )
            await self._mailbox.wait_done(message_id, None)
        except (StoreUnavailable, Overloaded, NotFound):
            return
        finally:
            self._noted.discard(conversation)

    def _note_tx(self, tx: Tx, message_id: str, conversation: str) -> None:
        row = tx.one("SELECT session_id, state FROM messages WHERE message_id = ?", (message_id,))
        if row is None or row["state"] != "queued":
            return
        ahead = int(tx.scalar(_AHEAD, (self._agent_id, row["session_id"], message_id)))
        if not ahead:
            return
        outbox.add_tx(
            tx,
            agent_id=self._agent_id,
            channel=CHANNEL,
            conversation=conversation,
            kind="notice",
            body={
                "text": compose.waiting_note(ahead, None),
                "plain": True,
                "cancel": message_id,
            },
            at=self._clock.now_ms(),
        )

    async def close(self) -> None:
        """Forget what is watched."""
        await self._owner.close(1.0)
