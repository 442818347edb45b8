"""The limits that apply to a turn, from the current settings. Pure."""

from __future__ import annotations

from datetime import tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from agentsup.config import BudgetSettings
from agentsup.mailbox.usage.budget import BudgetScope, Limit, ScopeKind, day_of, month_of, nano
from agentsup.model.agent import AgentSpec, Budget


def zone_of(name: str | None) -> tzinfo | None:
    """The time zone of that name; None (the machine's zone) for an empty or unknown name."""
    try:
        return ZoneInfo(name) if name else None
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def is_lasting(budget: Budget | BudgetSettings) -> bool:
    """Whether it limits days or months, so that their bounds have to be computed."""
    return not (budget.per_day_usd is budget.per_day_tokens is budget.per_month_usd is None)


def of_agent(spec: AgentSpec, agent_id: str, *, at: int) -> list[Limit]:
    """The limits of an agent for the day and the month of ``at`` (wall-clock ms), in the time zone
    of its user."""
    zone, kinds = zone_of(spec.user_timezone), (ScopeKind.AGENT_DAY, ScopeKind.AGENT_MONTH)
    return _lasting(kinds, agent_id, spec.budget, zone, at)


def of_daemon(settings: BudgetSettings, zone: tzinfo | None, *, at: int) -> list[Limit]:
    """The limits of all agents together; ``at`` as for ``of_agent``."""
    return _lasting((ScopeKind.DAEMON_DAY, ScopeKind.DAEMON_MONTH), "", settings, zone, at)


def _lasting(
    kinds: tuple[ScopeKind, ScopeKind],
    subject: str,
    budget: Budget | BudgetSettings,
    zone: tzinfo | None,
    at: int,
) -> list[Limit]:
    day = BudgetScope(kinds[0], subject, *day_of(at, zone))
    month = BudgetScope(kinds[1], subject, *month_of(at, zone))
    return [
        Limit(day, nano(budget.per_day_usd), budget.per_day_tokens),
        Limit(month, nano(budget.per_month_usd)),
    ]


def of_turn(
    budget: Budget, root_budget: Budget | None, settings: BudgetSettings, *, message: str, root: str
) -> list[Limit]:
    """The limits of one turn, and of all work that its root message caused: the lower one of the
    settings and of the agent that got the root message (``root_budget``)."""
    first = root_budget or Budget()
    return [
        Limit(
            BudgetScope(ScopeKind.TURN, message), nano(budget.per_turn_usd), budget.per_turn_tokens
        ),
        Limit(
            BudgetScope(ScopeKind.TREE, root),
            _less(nano(first.per_tree_usd), nano(settings.per_tree_usd)),
            _less(first.per_tree_tokens, settings.per_tree_tokens),
        ),
    ]


def _less(one: int | None, other: int | None) -> int | None:
    given = [each for each in (one, other) if each is not None]
    return min(given) if given else None
