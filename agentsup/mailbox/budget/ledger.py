"""Holds and what was used, in the store. Each function is part of a transaction of the caller.

A hold is taken in the transaction that has checked every scope it counts in, so turns that begin
together can't overrun a limit together. It shrinks in the transaction that records what was used,
and ends with the turn. What a hold counts for is decided by the lease of its message, so nothing
that ends a turn in another way (a stop, a crash, a kill) can leave one behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentsup.mailbox.budget.decide import (
    Crossed,
    Over,
    Standing,
    crossed,
    money_left,
    over,
    refusing,
    used_up,
)
from agentsup.mailbox.budget.scopes import (
    BOUND_BY_ROWS,
    MOST_NANO,
    NANO,
    NOTHING,
    QUARTER_MS,
    Amount,
    Limit,
    Scope,
    ScopeKind,
)
from agentsup.model.engine import Usage
from agentsup.store.database import Reader, Tx

__all__ = [
    "ROWS_TOPIC",
    "TOPIC",
    "Claim",
    "Notice",
    "Taken",
    "amount_of",
    "charge_tx",
    "drop_void_tx",
    "has_rows",
    "hold_tx",
    "join_as_tx",
    "join_tx",
    "limits_by_rows",
    "mark_told_tx",
    "note_tx",
    "recent",
    "release_tx",
    "request_bytes",
    "set_limit_tx",
    "standings",
    "untold",
]

TOPIC = "budget"
"""Touched when there is something to tell operators, or a hold has ended."""
ROWS_TOPIC = "budget:rows"
"""Touched when a team or a task is bounded."""
_TURNS_LOOKED_AT = 20
_REPORTS_LOOKED_AT = 200
_ENTRIES_LOOKED_AT = 100

_HELD = (
    "SELECT coalesce(sum(h.nano_usd), 0), coalesce(sum(h.tokens), 0) FROM budget_holds h"
    " JOIN messages m ON m.message_id = h.message_id AND m.state = 'leased' AND m.fence = h.fence"
    " AND m.lease_boot = h.boot_id WHERE h.boot_id = :boot AND h.message_id <> :own"
)
_AMOUNTS = (
    "coalesce(sum(CAST(round(coalesce(u.usd, 0.0) * 1e9) AS INTEGER)), 0),"
    " coalesce(sum(u.input_tokens + u.output_tokens), 0)"
)
_OF_TREE = (
    " FROM usage u WHERE u.message_id = :subject OR u.message_id IN"
    " (SELECT message_id FROM messages WHERE root_id = :subject AND root_id <> message_id)"
)
_MEMBERS = "SELECT message_id FROM budget_members WHERE kind = :kind AND subject = :subject"


@dataclass(frozen=True, slots=True)
class Claim:
    """Whose hold it is: a turn under one lease."""

    message_id: str
    fence: int
    boot_id: str
    agent_id: str
    root_id: str


@dataclass(frozen=True, slots=True)
class Taken:
    """What came of asking for a hold: why not, or ``usd_left`` for this turn (None: any)."""

    over: Over | None = None
    usd_left: float | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    """What operators are still to be told."""

    scope: Scope
    level: str
    unit: str
    used: int
    most: int


def amount_of(usage: Usage) -> Amount:
    """What a recorded report counts for."""
    money = round((usage.usd or 0.0) * NANO)
    return Amount(min(max(0, money), MOST_NANO), usage.input_tokens + usage.output_tokens)


# -- holds -----------------------------------------------------------------------------------------


def hold_tx(tx: Tx, claim: Claim, limits: Sequence[Limit], wanted: Amount, *, at: int) -> Taken:
    """Hold ``wanted`` for a turn if every limit allows it. What it held before is given up."""
    found = standings(tx, claim, limits, boot_id=claim.boot_id)
    refused = over(found, wanted)
    note_tx(tx, [*crossed(found), *refusing(refused)], at=at)
    if refused is not None:
        release_tx(tx, claim.message_id, claim.fence)
        return Taken(refused)
    _put(tx, claim, wanted, at)
    return Taken(usd_left=money_left(found))


def charge_tx(
    tx: Tx, claim: Claim, limits: Sequence[Limit], used: Amount, *, at: int
) -> Over | None:
    """``used`` has just been recorded for the turn: it comes out of the hold, and the next request,
    which will probably use as much again, is held if the rest does not cover it and it fits.

    Returns the limit that is used up by now, if one is.
    """
    row = tx.one(
        "SELECT nano_usd, tokens FROM budget_holds WHERE message_id = ? AND fence = ?",
        (claim.message_id, claim.fence),
    )
    rest = Amount(row[0], row[1]).less(used) if row is not None else NOTHING
    found = standings(tx, claim, limits, boot_id=claim.boot_id)
    note_tx(tx, crossed(found), at=at)
    wanted = rest.at_least(used)
    _put(tx, claim, rest if over(found, wanted) else wanted, at)
    return used_up(found)


def release_tx(tx: Tx, message_id: str, fence: int) -> None:
    """The turn under this lease needs nothing any more."""
    cursor = tx.execute(
        "DELETE FROM budget_holds WHERE message_id = ? AND fence = ?", (message_id, fence)
    )
    if cursor.rowcount:
        tx.touch(TOPIC)


def drop_void_tx(tx: Tx, boot_id: str) -> int:
    """Drop the rows of holds that count for nothing; returns how many there were."""
    return tx.execute(
        "DELETE FROM budget_holds WHERE boot_id <> ? OR NOT EXISTS (SELECT 1 FROM messages m"
        " WHERE m.message_id = budget_holds.message_id AND m.state = 'leased'"
        " AND m.fence = budget_holds.fence AND m.lease_boot = budget_holds.boot_id)",
        (boot_id,),
    ).rowcount


def _put(tx: Tx, claim: Claim, wanted: Amount, at: int) -> None:
    tx.execute(
        "INSERT INTO budget_holds VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (message_id)"
        " DO UPDATE SET fence = excluded.fence, boot_id = excluded.boot_id,"
        " nano_usd = excluded.nano_usd, tokens = excluded.tokens, at = excluded.at",
        (
            claim.message_id,
            claim.fence,
            claim.boot_id,
            claim.agent_id,
            claim.root_id,
            wanted.nano_usd,
            wanted.tokens,
            at,
        ),
    )


# -- what was used, what is held -----------------------------------------------------------------


def standings(
    reader: Reader | Tx, claim: Claim | None, limits: Sequence[Limit], *, boot_id: str
) -> list[Standing]:
    """Every limit with what was used of it, and what is held for others than ``claim``."""
    own = claim.message_id if claim is not None else ""
    return [
        Standing(limit, _used(reader, limit.scope), _held(reader, limit.scope, boot_id, own))
        for limit in limits
        if limit.is_set
    ]


def _used(reader: Reader | Tx, scope: Scope) -> Amount:
    until = scope.until if scope.until is not None else 1 << 62
    facts = {
        "kind": scope.kind.value,
        "subject": scope.subject,
        "since": scope.since // QUARTER_MS,
        "until": until // QUARTER_MS,
    }
    match scope.kind:
        case ScopeKind.TURN:
            source = f"{_AMOUNTS} FROM usage u WHERE u.message_id = :subject"
        case ScopeKind.TREE:
            # In two parts, because each has its index.
            source = _AMOUNTS + _OF_TREE
        case ScopeKind.TEAM | ScopeKind.TASK:
            source = f"{_AMOUNTS} FROM usage u WHERE u.message_id IN ({_MEMBERS})"
        case _:
            source = (
                "coalesce(sum(nano_usd), 0), coalesce(sum(tokens), 0) FROM budget_spent"
                " WHERE quarter >= :since AND quarter < :until"
            )
            if scope.kind in {ScopeKind.AGENT_DAY, ScopeKind.AGENT_MONTH}:
                source += " AND agent_id = :subject"
    row = reader.one(f"SELECT {source}", facts)
    assert row is not None
    return Amount(row[0], row[1])


def _held(reader: Reader | Tx, scope: Scope, boot_id: str, own: str) -> Amount:
    facts = {
        "boot": boot_id,
        "own": own,
        "kind": scope.kind.value,
        "subject": scope.subject,
    }
    match scope.kind:
        case ScopeKind.TURN:
            return Amount()
        case ScopeKind.TREE:
            which = " AND h.root_id = :subject"
        case ScopeKind.TEAM | ScopeKind.TASK:
            which = f" AND h.message_id IN ({_MEMBERS})"
        case ScopeKind.AGENT_DAY | ScopeKind.AGENT_MONTH:
            which = " AND h.agent_id = :subject"
        case _:
            which = ""
    row = reader.one(_HELD + which, facts)
    assert row is not None
    return Amount(row[0], row[1])


# -- what a turn will probably use -------------------------------------------------------------------


def recent(reader: Reader | Tx, agent_id: str) -> Amount | None:
    """The mean of the agent's latest turns; None before its first."""
    row = reader.one(
        "SELECT count(*), avg(nano), avg(tokens) FROM (SELECT"
        " sum(CAST(round(usd * 1e9) AS INTEGER)) AS nano, sum(input_tokens + output_tokens) AS tokens"
        " FROM (SELECT message_id, usd, input_tokens, output_tokens, at FROM usage"
        " WHERE agent_id = ? ORDER BY at DESC LIMIT ?) GROUP BY message_id"
        " ORDER BY max(at) DESC LIMIT ?)",
        (agent_id, _REPORTS_LOOKED_AT, _TURNS_LOOKED_AT),
    )
    if row is None or not row[0]:
        return None
    return Amount(round(row[1] or 0), round(row[2] or 0))


def request_bytes(reader: Reader | Tx, session_id: str) -> int:
    """How much of its session an engine will read again, roughly."""
    kept = reader.scalar(
        "SELECT length(engine_state) FROM sessions WHERE session_id = ?", (session_id,)
    )
    if kept:
        return int(kept)
    said = reader.scalar(
        "SELECT sum(length(text)) FROM (SELECT text FROM transcript WHERE session_id = ?"
        " ORDER BY entry_id DESC LIMIT ?)",
        (session_id, _ENTRIES_LOOKED_AT),
    )
    return int(said or 0)


# -- teams, tasks ------------------------------------------------------------------------------------


def set_limit_tx(
    tx: Tx, kind: ScopeKind, subject: str, *, nano_usd: int | None, tokens: int | None, at: int
) -> None:
    """Bound a team or a task; with neither value the bound is lifted."""
    assert kind in BOUND_BY_ROWS, "the others are bounded by settings"
    tx.touch(ROWS_TOPIC)
    if nano_usd is None and tokens is None:
        tx.execute("DELETE FROM budget_limits WHERE kind = ? AND subject = ?", (kind, subject))
        return
    tx.execute(
        "INSERT INTO budget_limits VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
        " nano_usd = excluded.nano_usd, tokens = excluded.tokens, set_at = excluded.set_at",
        (kind, subject, nano_usd, tokens, at),
    )


def join_tx(tx: Tx, message_id: str, kind: ScopeKind, subject: str) -> None:
    """From now on, the turns of this message count for that team or task."""
    assert kind in BOUND_BY_ROWS, "the others know their turns"
    tx.execute(
        "INSERT INTO budget_members VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        (message_id, kind, subject),
    )


def join_as_tx(tx: Tx, message_id: str, other_id: str) -> None:
    """From now on, its turns count for what those of the other message count for."""
    tx.execute(
        "INSERT INTO budget_members SELECT ?, kind, subject FROM budget_members"
        " WHERE message_id = ? ON CONFLICT DO NOTHING",
        (message_id, other_id),
    )


def has_rows(reader: Reader) -> bool:
    """Whether any team or task is bounded."""
    return bool(reader.scalar("SELECT 1 FROM budget_limits LIMIT 1"))


def limits_by_rows(reader: Reader | Tx, message_id: str) -> list[Limit]:
    """The limits of the teams and tasks that a message counts for."""
    rows = reader.all(
        "SELECT l.kind, l.subject, l.nano_usd, l.tokens FROM budget_members m JOIN budget_limits l"
        " ON l.kind = m.kind AND l.subject = m.subject WHERE m.message_id = ?",
        (message_id,),
    )
    return [Limit(Scope(ScopeKind(row[0]), row[1]), row[2], row[3]) for row in rows]


# -- notices -------------------------------------------------------------------------------------------


def note_tx(tx: Tx, found: Sequence[Crossed], *, at: int) -> None:
    """Have operators told of each, once in its period."""
    for each in found:
        scope = each.limit.scope
        cursor = tx.execute(
            "INSERT INTO budget_notices (kind, subject, since, level, unit, used, most, until, at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (
                scope.kind.value,
                scope.subject,
                scope.since,
                each.level,
                each.unit,
                each.used,
                each.most,
                scope.until,
                at,
            ),
        )
        if cursor.rowcount:
            tx.touch(TOPIC)


def untold(reader: Reader) -> list[Notice]:
    """What operators are still to be told, oldest first."""
    rows = reader.all("SELECT * FROM budget_notices WHERE told = 0 ORDER BY at LIMIT 50")
    return [
        Notice(
            Scope(ScopeKind(row["kind"]), row["subject"], row["since"], row["until"]),
            row["level"],
            row["unit"],
            row["used"],
            row["most"],
        )
        for row in rows
    ]


def mark_told_tx(tx: Tx, one: Notice) -> None:
    """It has been told."""
    scope = one.scope
    tx.execute(
        "UPDATE budget_notices SET told = 1 WHERE kind = ? AND subject = ? AND since = ?"
        " AND level = ? AND unit = ?",
        (scope.kind.value, scope.subject, scope.since, one.level, one.unit),
    )
