"""What may go of the tables of budgets, and where its sums stay."""

from __future__ import annotations

from collections import Counter

from agentsup.mailbox.budget.scopes import QUARTER_MS
from agentsup.store.database import Tx
from agentsup.store.retention import Pruned, Retention

__all__ = ["fold_tx", "retention_rules"]

_DAY_MS = 86_400_000
_LEAST_DAYS = 62
"""The longest period of a budget is a month, wherever it begins."""
_SPENT = ("agent_id", "quarter", "nano_usd", "tokens")
_EARLIER = 0
"""The quarter of an hour (the first of 1970) under which all that is folded up stands."""


def retention_rules(*, keep_days: int = 90) -> tuple[Retention, ...]:
    """Quarters of an hour that no budget asks about any more, and what people were told about periods
    that are over. What a team, a task or a request was told of stays as long as there is such a one.

    Goes with ``fold_tx``, which keeps the sums.
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
    """The hook of ``prune``: what was spent in the quarters that go is added to one row of its agent,
    so that each agent's sum over all rows stays what it was."""
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
