"""Reservations (holds) and usage in the store. Each function is part of a caller's transaction.

A hold is taken in the transaction that has checked every scope it counts in, so turns that begin
together can't exceed a limit together. It shrinks in the transaction that records what was used,
and ends with the turn. A hold counts only while its message has the same lease, so a turn that ends
in another way (a stop, a crash, a kill) leaves no hold behind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

from agentsup.mailbox.usage.budget.decide import (
    BOUND_BY_ROWS,
    MOST_NANO,
    NANO,
    NOTHING,
    QUARTER_MS,
    Amount,
    BudgetNotice,
    BudgetScope,
    Limit,
    LimitExceededBy,
    LimitUsage,
    ScopeKind,
    crossed,
    money_left,
    over,
    refusing,
    used_up,
)
from agentsup.model.engine import Usage
from agentsup.store import Pruned, Reader, Retention, Tx, from_row

TOPIC = "budget"
"""Touched when there is a notice for operators, or a hold has ended."""
_TURNS_LOOKED_AT = 20
_REPORTS_LOOKED_AT = 200

_RESERVED = (
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
class HoldOwner:
    """The turn that a hold belongs to, under one lease."""

    message_id: str
    fence: int
    boot_id: str
    agent_id: str
    root_id: str


@dataclass(frozen=True, slots=True)
class HoldResult:
    """The result of ``hold_tx``: the limit that refused it, or what is left for the turn.

    ``usd_left`` None: no limit.
    """

    over: LimitExceededBy | None = None
    usd_left: float | None = None


def amount_of(usage: Usage) -> Amount:
    """The amount of a recorded report."""
    money = round((usage.usd or 0.0) * NANO)
    return Amount(min(max(0, money), MOST_NANO), usage.input_tokens + usage.output_tokens)


# -- holds -----------------------------------------------------------------------------------------


def hold_tx(
    tx: Tx, owner: HoldOwner, limits: Sequence[Limit], wanted: Amount, *, at: int
) -> HoldResult:
    """Hold ``wanted`` for a turn if every limit allows it. Its earlier hold is replaced."""
    found = usages(tx, owner, limits, boot_id=owner.boot_id)
    refused = over(found, wanted)
    note_tx(tx, [*crossed(found), *refusing(refused)], at=at)
    if refused is not None:
        release_tx(tx, owner.message_id, owner.fence)
        return HoldResult(refused)
    _put(tx, owner, wanted, at)
    return HoldResult(usd_left=money_left(found))


def charge_tx(
    tx: Tx, owner: HoldOwner, limits: Sequence[Limit], used: Amount, *, at: int
) -> LimitExceededBy | None:
    """Subtract ``used``, which was just recorded for the turn, from its hold.

    The next request will probably use as much again: that amount is held if the rest does not cover
    it and the limits allow it. Returns the limit that is used up by now, if one is.
    """
    row = tx.one(
        "SELECT nano_usd, tokens FROM budget_holds WHERE message_id = ? AND fence = ?",
        (owner.message_id, owner.fence),
    )
    rest = Amount(row[0], row[1]).less(used) if row is not None else NOTHING
    found = usages(tx, owner, limits, boot_id=owner.boot_id)
    note_tx(tx, crossed(found), at=at)
    wanted = rest.at_least(used)
    _put(tx, owner, rest if over(found, wanted) else wanted, at)
    return used_up(found)


def release_tx(tx: Tx, message_id: str, fence: int) -> None:
    """Release the hold of the turn under this lease."""
    cursor = tx.execute(
        "DELETE FROM budget_holds WHERE message_id = ? AND fence = ?", (message_id, fence)
    )
    if cursor.rowcount:
        tx.touch(TOPIC)


def drop_void_tx(tx: Tx, boot_id: str) -> int:
    """Delete the rows of holds that no longer count; return how many there were."""
    return tx.execute(
        "DELETE FROM budget_holds WHERE boot_id <> ? OR NOT EXISTS (SELECT 1 FROM messages m"
        " WHERE m.message_id = budget_holds.message_id AND m.state = 'leased'"
        " AND m.fence = budget_holds.fence AND m.lease_boot = budget_holds.boot_id)",
        (boot_id,),
    ).rowcount


def _put(tx: Tx, owner: HoldOwner, wanted: Amount, at: int) -> None:
    tx.execute(
        "INSERT INTO budget_holds VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (message_id)"
        " DO UPDATE SET fence = excluded.fence, boot_id = excluded.boot_id,"
        " nano_usd = excluded.nano_usd, tokens = excluded.tokens, at = excluded.at",
        (*astuple(owner), *astuple(wanted), at),
    )


# -- what was used, what is reserved -------------------------------------------------------------


def usages(
    reader: Reader, owner: HoldOwner | None, limits: Sequence[Limit], *, boot_id: str
) -> list[LimitUsage]:
    """Every limit with what was used of it, and what is reserved for turns other than ``owner``."""
    own = owner.message_id if owner is not None else ""
    return [
        LimitUsage(limit, _used(reader, limit.scope), _reserved(reader, limit.scope, boot_id, own))
        for limit in limits
        if limit.is_set
    ]


def _used(reader: Reader, scope: BudgetScope) -> Amount:
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
    return _amount(reader, f"SELECT {source}", facts)


def _reserved(reader: Reader, scope: BudgetScope, boot_id: str, own: str) -> Amount:
    facts = {"boot": boot_id, "own": own, "kind": scope.kind, "subject": scope.subject}
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
    return _amount(reader, _RESERVED + which, facts)


def _amount(reader: Reader, sql: str, facts: dict[str, Any]) -> Amount:
    row = reader.one(sql, facts)
    assert row is not None, "a row of sums always comes"
    return Amount(*row)


# -- what a turn will probably use -----------------------------------------------------------------


def recent(reader: Reader, agent_id: str) -> Amount | None:
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


# -- teams, tasks ----------------------------------------------------------------------------------


def set_limit_tx(
    tx: Tx, kind: ScopeKind, subject: str, *, nano_usd: int | None, tokens: int | None, at: int
) -> None:
    """Set the limit of a team or a task; with neither value the limit is removed."""
    assert kind in BOUND_BY_ROWS, "the others are bounded by settings"
    if nano_usd is None and tokens is None:
        tx.execute("DELETE FROM budget_limits WHERE kind = ? AND subject = ?", (kind, subject))
        return
    tx.execute(
        "INSERT INTO budget_limits VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
        " nano_usd = excluded.nano_usd, tokens = excluded.tokens, set_at = excluded.set_at",
        (kind, subject, nano_usd, tokens, at),
    )


def join_tx(tx: Tx, message_id: str, kind: ScopeKind, subject: str) -> None:
    """Count the turns of this message for that team or task from now on."""
    assert kind in BOUND_BY_ROWS, "the others know their turns"
    tx.execute(
        "INSERT INTO budget_members VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        (message_id, kind, subject),
    )


def join_as_tx(tx: Tx, message_id: str, other_id: str) -> None:
    """Count the turns of this message for the same teams and tasks as those of the other one."""
    tx.execute(
        "INSERT INTO budget_members SELECT ?, kind, subject FROM budget_members"
        " WHERE message_id = ? ON CONFLICT DO NOTHING",
        (message_id, other_id),
    )


def limits_by_rows(reader: Reader, message_id: str) -> list[Limit]:
    """The limits of the teams and tasks that a message counts for."""
    rows = reader.all(
        "SELECT l.kind, l.subject, l.nano_usd, l.tokens FROM budget_members m JOIN budget_limits l"
        " ON l.kind = m.kind AND l.subject = m.subject WHERE m.message_id = ?",
        (message_id,),
    )
    return [Limit(BudgetScope(ScopeKind(row[0]), row[1]), row[2], row[3]) for row in rows]


# -- notices ---------------------------------------------------------------------------------------


def note_tx(tx: Tx, found: Sequence[BudgetNotice], *, at: int) -> None:
    """Record the notices for operators, each once in the period of its scope."""
    for each in found:
        scope = each.scope
        cursor = tx.execute(
            "INSERT INTO budget_notices (kind, subject, since, level, unit, used, most, until, at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (
                *(scope.kind, scope.subject, scope.since, each.level, each.unit),
                *(each.used, each.most, scope.until, at),
            ),
        )
        if cursor.rowcount:
            tx.touch(TOPIC)


def pending_notices(reader: Reader) -> list[BudgetNotice]:
    """The notices that were not sent yet, oldest first (at most 50)."""
    rows = reader.all("SELECT * FROM budget_notices WHERE told = 0 ORDER BY at LIMIT 50")
    return [
        from_row(BudgetNotice, row, scope=from_row(BudgetScope, row, kind=ScopeKind(row["kind"])))
        for row in rows
    ]


def mark_notified_tx(tx: Tx, one: BudgetNotice) -> None:
    """Mark a notice as sent."""
    scope = one.scope
    tx.execute(
        "UPDATE budget_notices SET told = 1 WHERE kind = ? AND subject = ? AND since = ?"
        " AND level = ? AND unit = ?",
        (scope.kind.value, scope.subject, scope.since, one.level, one.unit),
    )


_DAY_MS = 86_400_000
_LEAST_DAYS = 62
"""The longest period of a budget is a month, wherever it begins."""
_SPENT = ("agent_id", "quarter", "nano_usd", "tokens")
_EARLIER = 0
"""The quarter of an hour (the first of 1970) under which the sums of removed rows are stored."""


def retention_rules(*, keep_days: int = 90) -> tuple[Retention, ...]:
    """Remove quarters of an hour that no budget needs any more, and notices about ended periods.

    Notices about a team, a task or a request stay as long as that exists. Use it with ``fold_tx``,
    which preserves the sums.
    """
    keep_ms = max(keep_days, _LEAST_DAYS) * _DAY_MS
    return (
        Retention(
            "budget_spent",
            f"quarter > {_EARLIER} AND quarter < :cutoff / {QUARTER_MS}",
            keep_ms,
            key="agent_id, quarter",
            count_by=_SPENT,
        ),
        Retention(
            "budget_notices",
            "told = 1 AND at < :cutoff AND (until < :cutoff OR kind = 'tree' AND NOT EXISTS"
            " (SELECT 1 FROM messages m WHERE m.message_id = budget_notices.subject)"
            " OR kind IN ('team', 'task') AND NOT EXISTS (SELECT 1 FROM budget_limits l"
            " WHERE l.kind = budget_notices.kind AND l.subject = budget_notices.subject))",
            keep_ms,
            key="kind, subject, since, level, unit",
        ),
    )


def fold_tx(tx: Tx, pruned: Pruned) -> None:
    """The hook of ``prune``: add what was spent in removed quarters to one row per agent.

    So each agent's sum over all rows does not change.
    """
    if pruned.rule.count_by != _SPENT:
        return
    nano_usd, tokens = Counter[object](), Counter[object]()
    for agent_id, _, nano, used in pruned.counts:
        nano_usd[agent_id] += nano  # type: ignore[operator]  # columns of whole numbers
        tokens[agent_id] += used  # type: ignore[operator]  # as above
    tx.executemany(
        "INSERT INTO budget_spent VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
        " nano_usd = nano_usd + excluded.nano_usd, tokens = tokens + excluded.tokens",
        [(agent_id, _EARLIER, nano_usd[agent_id], tokens[agent_id]) for agent_id in tokens],
    )
