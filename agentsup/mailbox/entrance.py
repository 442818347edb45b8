"""The way in: many who write at once are accepted by a few statements, as a statement costs more
than a row.

Only the common case is done so: a text in a chat, with room in the queue, in a session that
exists, under keys that nobody used. Where one message of a group is anything else, nothing of the
group is done here and each is accepted by itself, which also says what is wrong with it. Serves P1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from agentsup.kit import faults
from agentsup.mailbox import accept, place
from agentsup.mailbox.draft import Draft, draft
from agentsup.mailbox.naming import below_operator
from agentsup.mailbox.values import Desk
from agentsup.model.event import EventType
from agentsup.model.message import Accepted, Kind, Lease, NewMessage
from agentsup.store.database import Database, Tx
from agentsup.store.events import append_all

__all__ = ["Entrance"]

_Also = Callable[[Tx, Accepted], None]


@dataclass(frozen=True, slots=True)
class _Entry:
    """One message on its way in."""

    ready: Draft
    waiter: Lease | None
    also: _Also | None


class Entrance:
    """Accepts messages, each in a transaction of its caller's or many in one."""

    def __init__(self, db: Database, desk: Desk) -> None:
        """Accept into ``db``."""
        self._db = db
        self._desk = desk
        self._jointly = partial(_accept_all_tx, desk)

    async def accept(
        self, new: NewMessage, *, waiter: Lease | None = None, also: _Also | None = None
    ) -> Accepted:
        """Store ``new``; returns once it is durable. Raises what ``accept_tx`` raises."""
        entry = _Entry(draft(self._desk, new), waiter, also)
        return await self._db.write(
            partial(_accept_tx, self._desk, entry),
            name="mailbox.accept",
            joint=self._jointly if waiter is None and _is_common(new) else None,
            item=entry,
        )


def _is_common(new: NewMessage) -> bool:
    """Whether accepting it asks for nothing but its place: no asker, no bounds of a chain."""
    return (
        new.kind is Kind.CHAT
        and new.deliver_to.kind == "chat"
        and not new.new_session
        and not (new.sender_agent_id or new.path or new.root_id)
    )


def _accept_tx(desk: Desk, entry: _Entry, tx: Tx) -> Accepted:
    accepted = accept.accept_tx(desk, tx, entry.ready, waiter=entry.waiter)
    if entry.also is not None:
        entry.also(tx, accepted)
    return accepted


def _accept_all_tx(desk: Desk, tx: Tx, entries: Sequence[_Entry]) -> list[Accepted] | None:
    """Store every message and return what became of it, or None where one is no common case.

    Raises ``Overloaded`` for a full queue and ``sqlite3.IntegrityError`` for a key that was used.
    """
    at = desk.clock.now_ms()
    places: dict[tuple[str, ...], place.Place] = {}
    ahead: dict[str, int] = {}
    waiting: dict[str, int] = {}
    results = []
    for entry in entries:
        new, to = entry.ready.new, entry.ready.new.deliver_to
        who = (new.principal.person, below_operator(new.principal))
        where = (new.agent_id, new.session_key, to.channel, to.conversation, *who)
        there = places.get(where)
        if there is None:
            places[where] = there = place.look(tx, new)
        if there.session_id is None:
            return None
        before = ahead.get(new.agent_id, 0)
        ahead[new.agent_id] = before + 1
        place.check_room(desk, tx, new.agent_id, there.open + before)
        in_session = there.queued + waiting.get(there.session_id, 0)
        waiting[there.session_id] = waiting.get(there.session_id, 0) + 1
        results.append(
            accept.queued_tx(
                desk, tx, entry.ready, there.session_id, in_session, is_busy=there.is_busy
            )
        )
    _insert_all_tx(desk, tx, entries, results, at)
    for (agent_id, _, *talk), there in places.items():
        channel, conversation, person, own = talk
        accept.visit_tx(tx, agent_id, channel, conversation, at, there.last_at, person, own)
    for agent_id in ahead:
        tx.touch(f"agent:{agent_id}")
    for entry, accepted in zip(entries, results, strict=True):
        if entry.also is not None:
            entry.also(tx, accepted)
    return results


def _insert_all_tx(
    desk: Desk, tx: Tx, entries: Sequence[_Entry], results: Sequence[Accepted], at: int
) -> None:
    """Write the rows, their keys and their events."""
    keys, rows, events = [], [], []
    told, step_ms = EventType.CHAT_IN.value, desk.steady.step_ms()
    for entry, accepted in zip(entries, results, strict=True):
        ready, new, to = entry.ready, entry.ready.new, entry.ready.new.deliver_to
        message_id, session_id = ready.message_id, accepted.session_id
        keys += [(k.source, k.external_id, message_id, k.body_hash, at) for k in ready.keys]
        person = new.principal.person
        rows.append(accept.columns_of(ready, session_id, at, new.epochs, person, step_ms=step_ms))
        place_name = f"{to.channel}:{to.conversation}"
        events.append((at, told, new.agent_id, session_id, message_id, place_name, ready.facts))
        faults.point("mailbox.accept.before_insert")
    tx.insert(accept.LEDGER_SQL, keys)
    tx.insert(accept.INSERT_SQL, rows)
    append_all(tx, events)
