"""Where a message would stand: its session, what is open before it, the conversation it is from.

Every accepted message pays for these lookups, and a statement costs more than the row it finds;
so they are one statement. Serves P1 and P6.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentsup.mailbox.notices import name_of
from agentsup.mailbox.values import Desk
from agentsup.model.errors import Overloaded
from agentsup.model.message import NewMessage
from agentsup.store.database import Reader

__all__ = ["Place", "check_room", "look"]

_OPEN = """
  (SELECT count FROM counts WHERE agent_id = ?1 AND state = 'queued'),
  (SELECT count FROM counts WHERE agent_id = ?1 AND state = 'leased'),
  (SELECT count FROM counts WHERE agent_id = ?1 AND state = 'parked')
"""

_LOOK = f"""
SELECT {_OPEN},
  (SELECT session_id FROM pointers WHERE agent_id = ?1 AND key = ?2),
  (SELECT last_at FROM conversations
    WHERE agent_id = ?1 AND channel = ?3 AND conversation = ?4 AND person IN (?5, '*'))
"""  # noqa: S608 - of two constants


@dataclass(frozen=True, slots=True)
class Place:
    """What stands where a message is to go.

    ``queued`` of the ``open`` messages of its agent wait to be begun; ``session_id`` is what its
    session key points at now; ``last_at`` (wall ms) is when its conversation was last noted as
    this person's or as that of several.
    """

    queued: int
    open: int
    session_id: str | None
    last_at: int | None


def look(reader: Reader, new: NewMessage) -> Place:
    """The place of ``new``."""
    to = new.deliver_to
    person = new.principal.person
    row = reader.one(_LOOK, (new.agent_id, new.session_key, to.channel, to.conversation, person))
    assert row is not None, "a row of scalars always comes"
    queued, leased, parked, session_id, last_at = row
    queued = queued or 0
    return Place(queued, queued + (leased or 0) + (parked or 0), session_id, last_at)


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
