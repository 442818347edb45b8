"""Where a message would stand: its session, what is open before it, the conversation it is from.

Every accepted message pays for these lookups, and a statement costs more than the row it finds;
so they are one statement. Serves P1 and P6.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from agentsup.mailbox.notices import name_of
from agentsup.mailbox.rows import HOLDS_SQL, OPEN_SQL, question_of
from agentsup.mailbox.values import Desk
from agentsup.model.errors import Overloaded
from agentsup.model.message import NewMessage
from agentsup.model.question import Question
from agentsup.store.database import Reader

__all__ = ["Place", "check_room", "held_by", "look"]


def _qualified(condition: str) -> str:
    """The condition on rows of ``messages``, for a statement that joins another table."""
    return re.sub(r"\b(state|seq)\b", r"messages.\1", condition)


_OPEN = """
  (SELECT count FROM counts WHERE agent_id = ?1 AND state = 'queued'),
  (SELECT count FROM counts WHERE agent_id = ?1 AND state = 'leased'),
  (SELECT count FROM counts WHERE agent_id = ?1 AND state = 'parked')
"""

_LOOK = f"""
SELECT {_OPEN},
  (SELECT session_id FROM pointers WHERE agent_id = ?1 AND key = ?2),
  (SELECT COUNT(*) FROM messages WHERE agent_id = ?1
    AND session_id = (SELECT session_id FROM pointers WHERE agent_id = ?1 AND key = ?2)
    AND {OPEN_SQL} AND state = 'queued'),
  (SELECT last_at FROM conversations
    WHERE agent_id = ?1 AND channel = ?3 AND conversation = ?4 AND person IN (?5, '*'))
"""  # noqa: S608 - of two constants


_HELD = f"""
SELECT q.* FROM messages JOIN questions AS q ON q.message_id = messages.message_id
WHERE messages.agent_id = ? AND messages.session_id = ? AND {_qualified(OPEN_SQL)}
  AND {_qualified(HOLDS_SQL)}
  AND q.state = 'open' AND q.put_as = ''
ORDER BY q.question_id LIMIT 1
"""  # noqa: S608 - of constants


@dataclass(frozen=True, slots=True)
class Place:
    """What stands where a message is to go.

    ``queued`` messages wait before it in its own session, which alone hold it up, and ``open`` ones
    there are with its agent; ``session_id`` is what its session key points at now; ``last_at`` (wall
    ms) is when its conversation was last noted as
    this person's or as that of several.
    """

    queued: int
    open: int
    session_id: str | None
    last_at: int | None
    is_busy: bool = False
    """Something of its agent has begun, and may hold the session."""


def look(reader: Reader, new: NewMessage) -> Place:
    """The place of ``new``."""
    to = new.deliver_to
    person = new.principal.person
    row = reader.one(_LOOK, (new.agent_id, new.session_key, to.channel, to.conversation, person))
    assert row is not None, "a row of scalars always comes"
    queued, leased, parked, session_id, before, last_at = row
    asks = bool(parked or leased)
    return Place(before, (queued or 0) + (leased or 0) + (parked or 0), session_id, last_at, asks)


def held_by(reader: Reader, agent_id: str, session_id: str) -> Question | None:
    """The open question to people for which a session waits, if it does."""
    row = reader.one(_HELD, (agent_id, session_id))
    return None if row is None else question_of(row)  # type: ignore[arg-type]  # Row is a mapping in all but name


def check_room(desk: Desk, reader: Reader, agent_id: str, size: int | None = None) -> None:
    """Raises ``Overloaded`` if the agent's queue is full; ``size`` is what is open, if known."""
    if size is None:
        row = reader.one(f"SELECT {_OPEN}", (agent_id,))
        assert row is not None, "a row of scalars always comes"
        size = sum(count or 0 for count in row)
    limit = desk.limits.queue_limit_for(agent_id)
    if size >= limit:
        name = name_of(reader, agent_id)
        raise Overloaded(
            f"the queue of {name} is full: {size} messages are open, the most allowed are "
            f"{limit}. Try again later, or raise its queue_limit",
            queue=f"agent:{agent_id}",
            size=size,
            limit=limit,
        )
