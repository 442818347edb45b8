"""Retention of the tables of budgets, with their sums preserved."""

from __future__ import annotations

from collections import Counter

from agentsup.mailbox.usage.budget.scopes import QUARTER_MS
from agentsup.store import Pruned, Retention, Tx

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
