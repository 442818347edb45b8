"""The wait-for graph: who waits for whom, and the refusal of a wait that would never end.

Explicit edges lead from a turn (message and fence) to the message it waits for; they count only
while that turn holds its lease. Implicit edges lead from a queued message to the messages before it
in its session. Of those only the one that holds the session can wait for anything, so the search
follows queued message → holder → what the holder waits for. Serves P6.
"""

from __future__ import annotations

from typing import Any

from agentsup.mailbox.messages.rows import HOLDS_SQL, IN_SESSION_SQL, OPEN_SQL
from agentsup.mailbox.messages.values import MailboxContext
from agentsup.model.errors import LeaseLost, WouldDeadlock
from agentsup.model.message import Lease, MessageState
from agentsup.store import Reader, Tx, name_of


def need_lease(ctx: MailboxContext, reader: Reader, lease: Lease) -> Any:
    """The row of the message of ``lease``. Raises ``LeaseLost`` unless it is still valid."""
    row = reader.one("SELECT * FROM messages WHERE message_id = ?", (lease.message.message_id,))
    if (
        row is None
        or row["state"] != MessageState.LEASED
        or row["fence"] != lease.fence
        or row["lease_boot"] != ctx.boot_id
    ):
        raise LeaseLost(
            f"message {lease.message.message_id} is no longer this turn's: it is "
            f"{'gone' if row is None else row['state']}; drop the work",
            message_id=lease.message.message_id,
        )
    return row


def wait_tx(ctx: MailboxContext, tx: Tx, lease: Lease, target_id: str) -> None:
    """Record that the turn of ``lease`` waits for an existing message, unless that has ended.

    Raises ``LeaseLost`` if the turn does not hold its message any more, ``WouldDeadlock`` if the
    target waits, directly or indirectly, for this very turn.
    """
    need_lease(ctx, tx, lease)
    state = tx.scalar(
        f"SELECT state FROM messages WHERE message_id = ? AND {OPEN_SQL}",  # noqa: S608 - a constant
        (target_id,),
    )
    if state is None:
        return
    own = lease.message.message_id
    chain: list[str] = [own] if target_id == own else _chain(ctx, tx, [target_id], own)
    if chain:
        raise _refusal(tx, own, chain)
    add_tx(tx, lease, target_id)


def check_session(ctx: MailboxContext, reader: Reader, lease: Lease, session_id: str) -> None:
    """As ``wait_tx`` checks, for a message about to be queued at the end of ``session_id``."""
    need_lease(ctx, reader, lease)
    own = lease.message.message_id
    chain = _chain(ctx, reader, holders(reader, session_id), own)
    if chain:
        raise _refusal(reader, own, chain)


def add_tx(tx: Tx, lease: Lease, target_id: str) -> None:
    """Record the edge without a search for a cycle."""
    tx.execute(
        "INSERT INTO waits (waiter_id, waiter_fence, target_id) VALUES (?, ?, ?)"
        " ON CONFLICT DO UPDATE SET waiter_fence = excluded.waiter_fence",
        (lease.message.message_id, lease.fence, target_id),
    )


def end_tx(tx: Tx, lease: Lease, target_id: str) -> None:
    """Remove the edge: the turn waits no longer (answered, or timed out)."""
    tx.execute(
        "DELETE FROM waits WHERE waiter_id = ? AND target_id = ?",
        (lease.message.message_id, target_id),
    )


def expect_tx(tx: Tx, message_id: str) -> None:
    """Mark the message as waited for: the turn gets the answer itself, and no reply message."""
    tx.execute(
        f"UPDATE messages SET deliver_to = json_set(deliver_to, '$.waited', json('true'))"  # noqa: S608 - a constant
        f" WHERE message_id = ? AND {OPEN_SQL} AND deliver_to ->> '$.kind' = 'mailbox'",
        (message_id,),
    )


def give_up_tx(tx: Tx, lease: Lease, target_id: str) -> bool:
    """End the turn's wait after a time-out: a later answer is delivered as a reply message.

    False if the message has ended, so that no answer follows.
    """
    end_tx(tx, lease, target_id)
    changed = tx.execute(
        f"UPDATE messages SET deliver_to = json_remove(deliver_to, '$.waited')"  # noqa: S608 - a constant
        f" WHERE message_id = ? AND {OPEN_SQL}",
        (target_id,),
    ).rowcount
    return changed > 0


def end_waits_tx(tx: Tx, message_id: str, *, as_target: bool = True) -> None:
    """Remove the edges of a message that stopped running, and those towards it if it ended.

    Delegated work that it waited for delivers its result as a message from now on: after a crash
    the turn may never wait for it again; if it does, it collects that message.
    """
    edges = "waiter_id = ?1 OR target_id = ?1" if as_target else "waiter_id = ?1"
    gone = tx.all(
        f"DELETE FROM waits WHERE {edges} RETURNING waiter_id, target_id",  # noqa: S608 - constants
        (message_id,),
    )
    for waiter_id, target_id in gone:
        if waiter_id == message_id:
            tx.execute(
                "UPDATE messages SET deliver_to = json_remove(deliver_to, '$.waited')"  # noqa: S608 - a constant
                f" WHERE message_id = ? AND kind = 'task' AND {OPEN_SQL}",
                (target_id,),
            )


def _chain(ctx: MailboxContext, reader: Reader, start: list[str], goal: str) -> list[str]:
    """The messages from one of ``start`` to ``goal`` along the edges; empty if there is no path."""
    came_from: dict[str, str] = {}
    seen = set(start)
    frontier = list(start)
    while frontier:
        current = frontier.pop()
        if current == goal:
            chain = [current]
            while current in came_from:
                current = came_from[current]
                chain.append(current)
            return chain[::-1]
        for following in targets(ctx, reader, current):
            if following not in seen:
                seen.add(following)
                came_from[following] = current
                frontier.append(following)
    return []


def targets(ctx: MailboxContext, reader: Reader, message_id: str) -> list[str]:
    """The messages that this one waits for now: the holder of its session while it is queued, and
    while a turn has it or it is parked, those that its turn awaits or has put questions to."""
    row = reader.one(
        "SELECT state, session_id, fence, lease_boot FROM messages WHERE message_id = ?",
        (message_id,),
    )
    if row is None:
        return []
    if row["state"] == MessageState.QUEUED:
        return holders(reader, row["session_id"])
    if row["state"] == MessageState.LEASED and row["lease_boot"] == ctx.boot_id:
        rows = reader.all(
            "SELECT target_id FROM waits WHERE waiter_id = ? AND waiter_fence = ?",
            (message_id, row["fence"]),
        )
        # A turn that has asked goes on, but its end waits for the answer.
        return [*(row["target_id"] for row in rows), *_put_to_agents(reader, message_id)]
    if (
        row["state"] == MessageState.PARKED
    ):  # waits for a person, or for an agent that got its question
        return _put_to_agents(reader, message_id)
    return []  # ended, or leased by an earlier boot: waits for nothing


def _put_to_agents(reader: Reader, message_id: str) -> list[str]:
    """The messages by which open questions about that message were put to agents."""
    rows = reader.all(
        "SELECT put_as FROM questions WHERE message_id = ? AND state = 'open' AND put_as <> ''",
        (message_id,),
    )
    return [row["put_as"] for row in rows]


def is_waiting(reader: Reader, message_id: str) -> bool:
    """Whether the turn on that message waits for another message."""
    return bool(reader.scalar("SELECT 1 FROM waits WHERE waiter_id = ? LIMIT 1", (message_id,)))


def holders(reader: Reader, session_id: str) -> list[str]:
    """The message that holds the session: one, or none."""
    rows = reader.all(
        f"SELECT message_id FROM messages WHERE {IN_SESSION_SQL} AND {OPEN_SQL}"  # noqa: S608 - constants
        f" AND {HOLDS_SQL}",
        (session_id, session_id),
    )
    return [row["message_id"] for row in rows]


def _refusal(reader: Reader, waiter_id: str, chain: list[str]) -> WouldDeadlock:
    ids = chain if chain[0] == waiter_id else [waiter_id, *chain]
    agents = []
    for message_id in ids:
        agent_id = reader.scalar(
            "SELECT agent_id FROM messages WHERE message_id = ?", (message_id,)
        )
        agents.append(name_of(reader, str(agent_id)))
    names = [name for i, name in enumerate(agents) if i == 0 or name != agents[i - 1]]
    circle = " → ".join(names if len(names) > 1 else [*names, *names])
    return WouldDeadlock(
        f"waiting here would never end, because the answer waits for this turn ({circle}). "
        "Ask without waiting, or answer with what you know",
        cycle=names,
        message_ids=ids,
    )
