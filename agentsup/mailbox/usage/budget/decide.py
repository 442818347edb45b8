"""Budgets: their values, whether a turn may begin and go on, how much to reserve, when to warn. Pure.

Before it begins, a turn reserves what it will probably use; after each report of its
engine, what the next request will probably use, as far as that fits. In a scope that turns share, a
turn may begin if

    used + reserved for others + min(wanted, limit) <= limit,

so that one turn may always begin if nothing was used. It must not go on once used >= limit: it
makes no further call, and ends with its engine's next report. A scope is therefore overrun by no
more than what single requests cost beyond their holds: at most by the last request of each turn
that was running.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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


WARN_SHARE = 0.8
BYTES_PER_TOKEN = 4
INSTRUCTION_TOKENS = 1000
"""About what instructions and tools add to a request."""
ANSWER_TOKENS = 500
FLOOR = Amount(NANO // 1000, INSTRUCTION_TOKENS + ANSWER_TOKENS)
"""The smallest hold: a tenth of a cent."""
USD, TOKENS = "usd", "tokens"


@dataclass(frozen=True, slots=True)
class LimitUsage:
    """A limit, what was used of it, and what is reserved for other turns."""

    limit: Limit
    used: Amount = NOTHING
    reserved: Amount = NOTHING


@dataclass(frozen=True, slots=True)
class LimitExceededBy:
    """A limit that a turn would exceed, in ``unit``.

    ``by_holds``: it would not be exceeded without the holds of other turns, so trying again may
    help.
    """

    limit: Limit
    unit: str
    used: int
    reserved: int
    most: int
    by_holds: bool


@dataclass(frozen=True, slots=True)
class BudgetNotice:
    """A notice for operators: the limit of a scope is used up, or nearly (``level_of``)."""

    scope: BudgetScope
    level: str
    unit: str
    used: int
    most: int


def estimate(request_bytes: int, rate: Amount | None, recent: Amount | None) -> Amount:
    """Estimate what a turn will use.

    ``request_bytes`` is the size of the message and of the session's history. ``rate`` is the price
    in billionths of a dollar of a million tokens in (``nano_usd``) and out (``tokens``), if the
    model's price is known. ``recent`` is the mean of the agent's latest turns, if it has any: then
    the estimate is that mean, or the cost of reading the request alone, if that is more. Before the
    first turn it is a request of that size with instructions and a short answer, and at least
    ``FLOOR``.
    """
    asked = request_bytes // BYTES_PER_TOKEN
    written = 0
    if recent is None:
        asked, written = asked + INSTRUCTION_TOKENS, ANSWER_TOKENS
    price = 0 if rate is None else (asked * rate.nano_usd + written * rate.tokens) // 1_000_000
    found = Amount(price, asked + written)
    if recent is not None:
        return found.at_least(recent)
    return found.at_least(FLOOR if rate is None else Amount(0, FLOOR.tokens))


def over(standings: Sequence[LimitUsage], wanted: Amount) -> LimitExceededBy | None:
    """The first limit that ``wanted`` would exceed.

    A limit that is exceeded only because of other turns' holds is returned if there is no other.
    """
    found = [
        LimitExceededBy(
            each.limit, unit, used, reserved, most, by_holds=_fits(each.limit, used, 0, wants, most)
        )
        for each in standings
        for unit, used, reserved, wants, most in _units(each, wanted)
        if not _fits(each.limit, used, reserved, wants, most)
    ]
    return next((one for one in found if not one.by_holds), found[0] if found else None)


def used_up(standings: Sequence[LimitUsage]) -> LimitExceededBy | None:
    """The first limit that is used up: a running turn must not go on."""
    for each in standings:
        for unit, used, reserved, _, most in _units(each, NOTHING):
            if used >= most:
                return LimitExceededBy(each.limit, unit, used, reserved, most, by_holds=False)
    return None


def level_of(used: int, most: int) -> str:
    """exhausted | warned, or empty as long as enough of a limit is left."""
    if used >= most:
        return "exhausted"
    return "warned" if used >= WARN_SHARE * most else ""


def crossed(standings: Sequence[LimitUsage]) -> list[BudgetNotice]:
    """The limits that operators should be notified of, in scopes longer than a turn."""
    return [
        BudgetNotice(each.limit.scope, level, unit, used, most)
        for each in standings
        if each.limit.scope.kind not in WITHIN_A_TURN
        for unit, used, _, _, most in _units(each, NOTHING)
        if (level := level_of(used, most))
    ]


def refusing(one: LimitExceededBy | None) -> list[BudgetNotice]:
    """As ``crossed``, for a limit that has just refused a turn though something of it is left."""
    if one is None or one.by_holds or one.limit.scope.kind in WITHIN_A_TURN:
        return []
    return [BudgetNotice(one.limit.scope, "exhausted", one.unit, one.used, one.most)]


def money_left(standings: Sequence[LimitUsage]) -> float | None:
    """US dollars that the turn may use, for an engine that can enforce it; None: no limit."""
    left = [
        max(0, each.limit.nano_usd - each.used.nano_usd - each.reserved.nano_usd)
        for each in standings
        if each.limit.nano_usd is not None
    ]
    return min(left) / NANO if left else None


def _fits(limit: Limit, used: int, reserved: int, wants: int, most: int) -> bool:
    if used >= most:
        return False
    if limit.scope.kind in WITHIN_A_TURN:
        return True
    return used + reserved + min(wants, most) <= most


def _units(one: LimitUsage, wanted: Amount) -> Iterator[tuple[str, int, int, int, int]]:
    limit, used, reserved = one.limit, one.used, one.reserved
    if limit.nano_usd is not None:
        yield USD, used.nano_usd, reserved.nano_usd, wanted.nano_usd, limit.nano_usd
    if limit.tokens is not None:
        yield TOKENS, used.tokens, reserved.tokens, wanted.tokens, limit.tokens
