"""The queue position of a new message: its session, the messages before it, its conversation.

These lookups are made for every accepted message, and a statement costs more than the row it
finds; so they are one statement. Serves P1 and P6.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from agentsup.mailbox.messages.keys import speaker_of
from agentsup.mailbox.messages.rows import HOLDS_SQL, OPEN_SQL, question_of
from agentsup.mailbox.messages.values import MailboxContext
from agentsup.model.errors import Overloaded
from agentsup.model.message import NewMessage
from agentsup.model.question import Question
from agentsup.store import Reader, name_of


def _qualified(condition: str) -> str:
    """The condition on rows of ``messages``, for a statement that joins another table."""
    return re.sub(r"\b(state|seq)\b", r"messages.\1", condition)


_OPEN = """
  (SELECT count FROM counts WHERE agent_id = ?1 AND state = 'queued'),
  (SELECT count FROM counts WHERE agent_id = ?1 AND state = 'leased'),
  (SELECT count FROM counts WHERE agent_id = ?1 AND state = 'parked')
"""

_COUNTED = 256
"""The most messages of one session that are counted for a new one: each accept pays for them."""

_LOOK = f"""
SELECT {_OPEN},
  (SELECT session_id FROM pointers WHERE agent_id = ?1 AND key = ?2),
  (SELECT COUNT(*) FROM (SELECT 1 FROM messages WHERE agent_id = ?1
    AND session_id = (SELECT session_id FROM pointers WHERE agent_id = ?1 AND key = ?2)
    AND {OPEN_SQL} AND state = 'queued' LIMIT {_COUNTED})),
  (SELECT last_at FROM conversations
    WHERE agent_id = ?1 AND channel = ?3 AND conversation = ?4 AND person IN (?5, '*')
      AND (speaker = ?6 OR ?6 IS NULL)),
  (SELECT pointed_by FROM pointers WHERE agent_id = ?1 AND key = ?2)
"""  # noqa: S608 - of two constants


_IN_QUEUE = f"""
SELECT q.* FROM messages JOIN questions AS q ON q.message_id = messages.message_id
WHERE messages.agent_id = ? AND messages.session_id = ? AND {_qualified(OPEN_SQL)}
  AND {_qualified(HOLDS_SQL)}
  AND q.state = 'open' AND q.put_as = ''
ORDER BY q.question_id LIMIT 1
"""  # noqa: S608 - of constants


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """The queue position of a new message.

    ``queued`` is the number of messages before it in its own session, since only those delay it. If
    there are many, it is the number of the whole agent, which is kept and needs no counting.
    ``open`` is the number of open messages of its agent. ``session_id`` is the session that its key
    points at now. ``last_at`` (wall ms) is when its conversation was last noted with this speaker,
    as this person's conversation or as that of several.
    """

    queued: int
    open: int
    session_id: str | None
    last_at: int | None
    is_busy: bool = False
    """A message of its agent is leased or parked, and may hold the session."""
    pointed_by: str | None = None
    """The operator who pointed its key at another chat's session, as
    ``mailbox.messages.keys.speaker_of`` names them."""


def queue_position(reader: Reader, new: NewMessage) -> QueuePosition:
    """The queue position of ``new``."""
    to = new.deliver_to
    person = new.principal.person
    where = (new.agent_id, new.session_key, to.channel, to.conversation)
    row = reader.one(_LOOK, (*where, person, speaker_of(new.principal)))
    assert row is not None, "a row of scalars always comes"
    queued, leased, parked, session_id, before, last_at, pointed_by = row
    queued, at_work = queued or 0, (leased or 0) + (parked or 0)
    ahead = before if before < _COUNTED else queued
    return QueuePosition(ahead, queued + at_work, session_id, last_at, at_work > 0, pointed_by)


def holder_of_session(reader: Reader, agent_id: str, session_id: str) -> Question | None:
    """The open question to people that a session waits for, or None."""
    return reader.value(question_of, _IN_QUEUE, (agent_id, session_id))


def check_room(ctx: MailboxContext, reader: Reader, agent_id: str, size: int | None = None) -> None:
    """Raise ``Overloaded`` if the agent's queue is full; ``size``: its open messages, if known."""
    if size is None:
        row = reader.one(f"SELECT {_OPEN}", (agent_id,))
        assert row is not None, "a row of scalars always comes"
        size = sum(count or 0 for count in row)
    limit = ctx.limits.queue_limit_for(agent_id)
    if size >= limit:
        name = name_of(reader, agent_id)
        raise Overloaded(
            f"the queue of {name} is full: {size} messages are open, the most allowed are "
            f"{limit}. Try again later, or raise its queue_limit",
            queue=f"agent:{agent_id}",
            size=size,
            limit=limit,
        )
