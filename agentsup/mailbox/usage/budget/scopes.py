"""The values of budgets: amounts, scopes with their periods, and limits. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from enum import StrEnum

NANO = 1_000_000_000
"""Billionths of a US dollar in one dollar: money is counted in whole numbers, so sums are exact."""
QUARTER_MS = 900_000
MOST_NANO = 1_000_000 * NANO
"""No single report of an engine counts for more."""


class ScopeKind(StrEnum):
    """The kinds of scopes. Limits of ``team`` and ``task`` are rows, those of others settings."""

    TURN = "turn"
    TREE = "tree"
    AGENT_DAY = "agent_day"
    AGENT_MONTH = "agent_month"
    DAEMON_DAY = "daemon_day"
    DAEMON_MONTH = "daemon_month"
    TEAM = "team"
    TASK = "task"


SETTINGS = {
    ScopeKind.TURN: "budget.per_turn",
    ScopeKind.TREE: "budget.per_tree",
    ScopeKind.AGENT_DAY: "budget.per_day",
    ScopeKind.AGENT_MONTH: "budget.per_month",
    ScopeKind.DAEMON_DAY: "budget.per_day",
    ScopeKind.DAEMON_MONTH: "budget.per_month",
    ScopeKind.TEAM: "",
    ScopeKind.TASK: "",
}
"""The setting of a scope's limit, without its unit; the daemon's is in config.toml."""

BOUND_BY_ROWS = (ScopeKind.TEAM, ScopeKind.TASK)
WITHIN_A_TURN = (ScopeKind.TURN,)
"""Scopes that end with one turn: no notice is sent when they run low."""


@dataclass(frozen=True, slots=True)
class Amount:
    """Money in billionths of a US dollar, and tokens in and out together."""

    nano_usd: int = 0
    tokens: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.nano_usd + other.nano_usd, self.tokens + other.tokens)

    def less(self, other: Amount) -> Amount:
        """The difference; never below zero."""
        return Amount(max(0, self.nano_usd - other.nano_usd), max(0, self.tokens - other.tokens))

    def at_least(self, other: Amount) -> Amount:
        """The larger of both, for money and tokens separately."""
        return Amount(max(self.nano_usd, other.nano_usd), max(self.tokens, other.tokens))


NOTHING = Amount()


@dataclass(frozen=True, slots=True)
class BudgetScope:
    """The subject of a limit, and its period.

    ``subject`` is the id of a message, a root, an agent, a team or a task; empty for the daemon.
    ``since`` and ``until`` (wall ms) are the period; without an end, ``until`` is None.
    """

    kind: ScopeKind
    subject: str = ""
    since: int = 0
    until: int | None = None


@dataclass(frozen=True, slots=True)
class Limit:
    """The most that may be used in a scope; None: no limit."""

    scope: BudgetScope
    nano_usd: int | None = None
    tokens: int | None = None

    @property
    def is_set(self) -> bool:
        return self.nano_usd is not None or self.tokens is not None


def nano(usd: float | None) -> int | None:
    """US dollars as billionths."""
    return None if usd is None else round(usd * NANO)


def day_of(at: int, zone: tzinfo | None) -> tuple[int, int]:
    """The day in ``zone`` (None: the machine's) that ``at`` is in, as [since, until) in wall ms."""
    here = _local(at, zone)
    since = _midnight(here.year, here.month, here.day, zone)
    # 36 hours after midnight is within the next day, however long this one is.
    then = _local(since + 36 * 3_600_000, zone)
    return since, _midnight(then.year, then.month, then.day, zone)


def month_of(at: int, zone: tzinfo | None) -> tuple[int, int]:
    """As ``day_of``, for the month."""
    here = _local(at, zone)
    year, month = (here.year + 1, 1) if here.month == 12 else (here.year, here.month + 1)
    return _midnight(here.year, here.month, 1, zone), _midnight(year, month, 1, zone)


def _local(at: int, zone: tzinfo | None) -> datetime:
    return datetime.fromtimestamp(at / 1000, tz=UTC).astimezone(zone)


def _midnight(year: int, month: int, day: int, zone: tzinfo | None) -> int:
    return round(datetime(year, month, day, tzinfo=zone).timestamp() * 1000)
