"""Accepting many messages by a few statements, because a statement costs more than a row.

Only the common case is done so: a text of which nobody else is told, with room in the queue, in an
existing session, under unused keys. If any message of a group is different, nothing of the group is
stored here: each message is accepted by itself, which also reports what is wrong with it. Serves
P1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from agentsup.kit import faults
from agentsup.mailbox.messages.values import MailboxContext
from agentsup.mailbox.queue import accept, admission, idempotency, message_events
from agentsup.mailbox.queue.draft import PreparedMessage, draft
from agentsup.model.message import Accepted, Lease, MessageKind, NewMessage
from agentsup.store import Database, Tx, append_all

_Also = Callable[[Tx, Accepted], None]


@dataclass(frozen=True, slots=True)
class PendingAccept:
    """A message to be accepted."""

    ready: PreparedMessage
    waiter: Lease | None
    also: _Also | None


class BatchAcceptor:
    """Accepts messages, each in its own transaction or many in one."""

    def __init__(self, db: Database, ctx: MailboxContext) -> None:
        """Accept into ``db``."""
        self._db = db
        self._context = ctx
        self._jointly = partial(_accept_all_tx, ctx)

    async def accept(
        self, new: NewMessage, *, waiter: Lease | None = None, also: _Also | None = None
    ) -> Accepted:
        """Store ``new``; returns once it is durable. Raises what ``accept_tx`` raises."""
        return await self.store(self.prepare(new, waiter=waiter, also=also))

    def prepare(
        self, new: NewMessage, *, waiter: Lease | None = None, also: _Also | None = None
    ) -> PendingAccept:
        """Give ``new`` its id. Raises ``TooLarge`` and ``BadRequest``."""
        return PendingAccept(draft(self._context, new), waiter, also)

    async def store(self, entry: PendingAccept) -> Accepted:
        """Store a prepared message; as ``accept``."""
        is_joint = entry.waiter is None and _is_common(entry.ready.new)
        return await self._db.write(
            partial(_accept_tx, self._context, entry),
            name="mailbox.accept",
            joint=self._jointly if is_joint else None,
            item=entry,
        )


def _is_common(new: NewMessage) -> bool:
    """Whether accepting it needs only its queue position: no asker, no limits of a path, no notice,
    and a result for which no stop counts."""
    return (
        new.kind is MessageKind.CHAT
        and new.deliver_to.kind != "mailbox"
        and not message_events.is_shown(new)
        and not new.new_session
        and not (new.sender_agent_id or new.path or new.root_id or new.in_reply_to)
    )


def _accept_tx(ctx: MailboxContext, entry: PendingAccept, tx: Tx) -> Accepted:
    accepted = accept.accept_tx(ctx, tx, entry.ready, waiter=entry.waiter)
    if entry.also is not None:
        entry.also(tx, accepted)
    return accepted


def _accept_all_tx(
    ctx: MailboxContext, tx: Tx, entries: Sequence[PendingAccept]
) -> list[Accepted] | None:
    """Store every message and return the results, or None if one is not the common case.

    Raises ``Overloaded`` for a full queue and ``sqlite3.IntegrityError`` for a key that was used.
    """
    at = ctx.clock.now_ms()
    positions: dict[tuple[str | None, ...], tuple[NewMessage, admission.QueuePosition]] = {}
    ahead: dict[str, int] = {}
    waiting: dict[str, int] = {}
    results = []
    for entry in entries:
        new, to = entry.ready.new, entry.ready.new.deliver_to
        who = (new.principal.person, new.principal.asker_name)
        where = (new.agent_id, new.session_key, to.channel, to.conversation, *who)
        if where not in positions:
            positions[where] = (new, admission.queue_position(tx, new))
        there = positions[where][1]
        if there.session_id is None or there.pointed_by is not None:
            return None
        before = ahead.get(new.agent_id, 0)
        ahead[new.agent_id] = before + 1
        admission.check_room(ctx, tx, new.agent_id, there.open + before)
        in_session = there.queued + waiting.get(there.session_id, 0)
        waiting[there.session_id] = waiting.get(there.session_id, 0) + 1
        results.append(
            accept.queued_tx(
                ctx, tx, entry.ready, there.session_id, in_session, is_busy=there.is_busy
            )
        )
    _insert_all_tx(ctx, tx, entries, results, at)
    for new, there in positions.values():
        if message_events.is_of_chat(new):
            message_events.touch_conversation_tx(tx, new, at, there.last_at, accept.person_of(new))
    for agent_id, count in ahead.items():
        ctx.loads.change_tx(tx, agent_id, count, at=at)
        tx.touch(f"agent:{agent_id}")
    for entry, accepted in zip(entries, results, strict=True):
        if entry.also is not None:
            entry.also(tx, accepted)
    return results


def _insert_all_tx(
    ctx: MailboxContext,
    tx: Tx,
    entries: Sequence[PendingAccept],
    results: Sequence[Accepted],
    at: int,
) -> None:
    """Write the rows, their keys and their events."""
    keys, rows, events = [], [], []
    step_ms = ctx.steady.step_ms()
    for entry, accepted in zip(entries, results, strict=True):
        ready, new = entry.ready, entry.ready.new
        message_id, session_id = ready.message_id, accepted.session_id
        keys += [(k.source, k.external_id, message_id, k.body_hash, at) for k in ready.keys]
        rows.append(
            accept.columns_of(
                ready, session_id, at, new.epochs, accept.person_of(new), step_ms=step_ms
            )
        )
        events.append(message_events.event_of(ready, session_id, at))
        faults.point("mailbox.accept.before_insert")
    tx.insert(idempotency.LEDGER_SQL, keys)
    tx.insert(accept.INSERT_SQL, rows)
    append_all(tx, events)
