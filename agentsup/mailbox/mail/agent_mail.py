"""An agent's mail: messages from other agents and broadcasts, and which of them were read.

Mail is read once it is marked or its turn has begun, because the turn has its text. Messages of
people in chats are no mail: they belong to their conversations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentsup.mailbox.messages.rows import OPEN_SQL, encode, message_of
from agentsup.mailbox.service import Service, in_reader, in_writer
from agentsup.model.errors import NotFound
from agentsup.model.message import Message
from agentsup.store import Reader, Tx

MAX_PAGE = 200
_MAIL_SQL = "(m.sender_agent_id <> '' OR m.kind = 'broadcast') AND m.kind <> 'task'"
"""Written out like the condition of the partial index, which SQLite uses only on this match."""
_UNREAD_SQL = (
    f"m.{OPEN_SQL} AND m.state = 'queued' AND m.started_at IS NULL"  # noqa: S608 - a constant
    f" AND {_MAIL_SQL}"
    " AND NOT EXISTS (SELECT 1 FROM read_marks r WHERE r.message_id = m.message_id)"
)
"""Unread mail is open, so that ended messages are not scanned."""


@dataclass(frozen=True, slots=True)
class ReceivedMail:
    """One received mail, and since when it is read (wall ms; None: unread)."""

    message: Message
    read_at: int | None


class AgentMailbox(Service):
    """Lists the mail of agents and marks it as read."""

    @in_reader("mail.history")
    def history(
        self,
        reader: Reader,
        agent_id: str,
        *,
        limit: int = 50,
        before: int | None = None,
        unread_only: bool = False,
        person: str | None = None,
    ) -> list[ReceivedMail]:
        """Received mail, newest first; ``before`` is the ``seq`` of the last one of a page.

        With ``person``, only mail of that person's work and of nobody's.
        """
        which = _UNREAD_SQL if unread_only else _MAIL_SQL
        last = 2**62 if before is None else before
        return reader.values(
            lambda row: ReceivedMail(message_of(row), row["read_at"]),
            "SELECT m.*, coalesce(r.read_at, m.started_at) AS read_at FROM messages m"  # noqa: S608 - constants
            " LEFT JOIN read_marks r ON r.message_id = m.message_id"
            f" WHERE m.agent_id = ?1 AND {which} AND (?4 IS NULL OR m.person IN ('', ?4))"
            " AND m.seq < ?2 ORDER BY m.seq DESC LIMIT ?3",
            (agent_id, last, max(1, min(limit, MAX_PAGE)), person),
        )

    @in_writer("mail.mark_read")
    def mark_read(self, tx: Tx, agent_id: str, message_ids: Sequence[str]) -> int:
        """Mark mail of an agent as read; return how many weren't marked before.

        Raises ``NotFound`` for a message that isn't its mail; nothing is marked then.
        """
        marked, at = 0, self.context.clock.now_ms()
        for message_id in message_ids:
            is_own = tx.scalar(
                f"SELECT 1 FROM messages m WHERE m.message_id = ? AND m.agent_id = ? AND {_MAIL_SQL}",  # noqa: S608 - a constant
                (message_id, agent_id),
            )
            if not is_own:
                raise NotFound(
                    f"there is no message {message_id} in this mailbox", message_id=message_id
                )
            marked += tx.execute(
                "INSERT OR IGNORE INTO read_marks (message_id, read_at) VALUES (?, ?)",
                (message_id, at),
            ).rowcount
        return marked

    @in_writer("mail.mark_all")
    def mark_all_read(self, tx: Tx, agent_id: str) -> int:
        """Mark all unread mail of an agent as read; return how many there were."""
        return tx.execute(
            "INSERT OR IGNORE INTO read_marks (message_id, read_at)"  # noqa: S608 - constants
            f" SELECT m.message_id, ? FROM messages m WHERE m.agent_id = ? AND {_UNREAD_SQL}",
            (self.context.clock.now_ms(), agent_id),
        ).rowcount

    @in_reader("mail.unread")
    def unread_counts(
        self,
        reader: Reader,
        agent_ids: Sequence[str] | None = None,
        *,
        person: str | None = None,
    ) -> dict[str, int]:
        """Unread mail per agent (of those, if given); agents without any are left out."""
        among = None if agent_ids is None else encode(list(agent_ids))
        rows = reader.all(
            f"SELECT m.agent_id, COUNT(*) FROM messages m WHERE {_UNREAD_SQL}"  # noqa: S608 - constants
            " AND (?1 IS NULL OR m.agent_id IN (SELECT value FROM json_each(?1)))"
            " AND (?2 IS NULL OR m.person IN ('', ?2)) GROUP BY m.agent_id",
            (among, person),
        )
        return {row[0]: row[1] for row in rows}
