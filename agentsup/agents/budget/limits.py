"""Which limits hold for a turn, from the settings of now. Pure."""

from __future__ import annotations

from datetime import tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from agentsup.config.settings import BudgetSettings
from agentsup.mailbox.budget.scopes import Limit, Scope, ScopeKind, day_of, month_of, nano
from agentsup.model.agent import AgentSpec, Budget


def zone_of(name: str | None) -> tzinfo | None:
    """The zone of that name; None, the machine's, without one or for one that is not there."""
    try:
        return ZoneInfo(name) if name else None
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def of_agent(spec: AgentSpec, agent_id: str, *, at: int) -> list[Limit]:
    """What an agent may use in the day and the month that ``at`` (wall ms) is in, as its people
    count them."""
    zone, budget = zone_of(spec.user_timezone), spec.budget
    return [
        Limit(
            Scope(ScopeKind.AGENT_DAY, agent_id, *day_of(at, zone)),
            nano(budget.per_day_usd),
            budget.per_day_tokens,
        ),
        Limit(
            Scope(ScopeKind.AGENT_MONTH, agent_id, *month_of(at, zone)), nano(budget.per_month_usd)
        ),
    ]


def of_daemon(settings: BudgetSettings, zone: tzinfo | None, *, at: int) -> list[Limit]:
    """What all agents together may use."""
    return [
        Limit(
            Scope(ScopeKind.DAEMON_DAY, "", *day_of(at, zone)),
            nano(settings.per_day_usd),
            settings.per_day_tokens,
        ),
        Limit(Scope(ScopeKind.DAEMON_MONTH, "", *month_of(at, zone)), nano(settings.per_month_usd)),
    ]


def of_turn(
    budget: Budget, root_budget: Budget | None, settings: BudgetSettings, *, message: str, root: str
) -> list[Limit]:
    """What one turn may use, and everything that its root set off: the less of what the settings
    say and of what the agent says with which it began (``root_budget``)."""
    first = root_budget or Budget()
    return [
        Limit(Scope(ScopeKind.TURN, message), nano(budget.per_turn_usd), budget.per_turn_tokens),
        Limit(
            Scope(ScopeKind.TREE, root),
            _less(nano(first.per_tree_usd), nano(settings.per_tree_usd)),
            _less(first.per_tree_tokens, settings.per_tree_tokens),
        ),
    ]


def _less(one: int | None, other: int | None) -> int | None:
    given = [each for each in (one, other) if each is not None]
    return min(given) if given else None
