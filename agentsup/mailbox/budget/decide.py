"""Whether a turn may begin and go on, what to hold for it, and when to warn. Pure.

A turn holds what it will probably use before it begins, and after each report of its engine what
the next request will probably use, as far as that fits. In a scope that turns share it may begin if

    used + held for others + min(wanted, limit) <= limit,

so that one turn may always begin where nothing was used. It must not go on once used >= limit: it
makes no further call, and ends with its engine's next report. A scope is therefore overrun by no
more than what single requests cost beyond what was held for them: at the most, the last request of
each turn that was running.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agentsup.mailbox.budget.scopes import (
    BOUND_BY_ROWS,
    NANO,
    NOTHING,
    WITHIN_A_TURN,
    Amount,
    Limit,
    ScopeKind,
)

WARN_SHARE = 0.8
BYTES_PER_TOKEN = 4
INSTRUCTION_TOKENS = 1000
"""What instructions and tools add to a request, roughly."""
ANSWER_TOKENS = 500
FLOOR = Amount(NANO // 1000, INSTRUCTION_TOKENS + ANSWER_TOKENS)
"""Held at least: a tenth of a cent."""
USD, TOKENS = "usd", "tokens"


@dataclass(frozen=True, slots=True)
class Standing:
    """A limit, what was used of it, and what is held for others."""

    limit: Limit
    used: Amount = NOTHING
    held: Amount = NOTHING


@dataclass(frozen=True, slots=True)
class Over:
    """A limit that a turn would overrun, in ``unit``. Where ``by_holds`` is true, it would not if
    other turns had ended: trying again may help."""

    limit: Limit
    unit: str
    used: int
    held: int
    most: int
    by_holds: bool


@dataclass(frozen=True, slots=True)
class Crossed:
    """A limit that is used up, or nearly: ``level`` is warned or exhausted."""

    limit: Limit
    unit: str
    level: str
    used: int
    most: int


def estimate(request_bytes: int, rate: Amount | None, recent: Amount | None) -> Amount:
    """What a turn will probably use.

    ``request_bytes`` is the size of the message and of what the session remembers. ``rate`` is the
    price in billionths of a dollar of a million tokens in (``nano_usd``) and out (``tokens``), if
    the model's price is known. ``recent`` is the mean of the agent's latest turns, if it has any:
    then the estimate is that, or what the request alone costs to be read, if that is more. Before
    the first turn it is a request of that size with instructions and a short answer, and no less
    than a floor.
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


def over(standings: Sequence[Standing], wanted: Amount) -> Over | None:
    """The first limit that ``wanted`` would overrun, for good rather than for the moment."""
    found = [
        Over(each.limit, unit, used, held, most, by_holds=_fits(each.limit, used, 0, wants, most))
        for each in standings
        for unit, used, held, wants, most in _units(each, wanted)
        if not _fits(each.limit, used, held, wants, most)
    ]
    return next((one for one in found if not one.by_holds), found[0] if found else None)


def used_up(standings: Sequence[Standing]) -> Over | None:
    """The first limit that is used up: a turn that runs must not go on."""
    for each in standings:
        for unit, used, held, _, most in _units(each, NOTHING):
            if used >= most:
                return Over(each.limit, unit, used, held, most, by_holds=False)
    return None


def crossed(standings: Sequence[Standing]) -> list[Crossed]:
    """What operators should hear of, in scopes longer than a turn."""
    found = []
    for each in standings:
        if each.limit.scope.kind in WITHIN_A_TURN:
            continue
        for unit, used, _, _, most in _units(each, NOTHING):
            if used >= most:
                found.append(Crossed(each.limit, unit, "exhausted", used, most))
            elif used >= WARN_SHARE * most:
                found.append(Crossed(each.limit, unit, "warned", used, most))
    return found


def refusing(one: Over | None) -> list[Crossed]:
    """The same of a limit that has just refused a turn, though something of it is left."""
    if one is None or one.by_holds or one.limit.scope.kind in WITHIN_A_TURN:
        return []
    return [Crossed(one.limit, one.unit, "exhausted", one.used, one.most)]


def money_left(standings: Sequence[Standing]) -> float | None:
    """US dollars that the turn may use, for an engine that can see to it itself; None: any."""
    left = [
        max(0, each.limit.nano_usd - each.used.nano_usd - each.held.nano_usd)
        for each in standings
        if each.limit.nano_usd is not None
    ]
    return min(left) / NANO if left else None


def rank(kind: ScopeKind) -> int:
    """Where a scope stands in a list for people: the narrowest first."""
    order = (
        *(ScopeKind.TURN, ScopeKind.TREE, *BOUND_BY_ROWS),
        *(ScopeKind.AGENT_DAY, ScopeKind.AGENT_MONTH, ScopeKind.DAEMON_DAY, ScopeKind.DAEMON_MONTH),
    )
    return order.index(kind)


def _fits(limit: Limit, used: int, held: int, wants: int, most: int) -> bool:
    if used >= most:
        return False
    if limit.scope.kind in WITHIN_A_TURN:
        return True
    return used + held + min(wants, most) <= most


def _units(one: Standing, wanted: Amount) -> Iterator[tuple[str, int, int, int, int]]:
    limit, used, held = one.limit, one.used, one.held
    if limit.nano_usd is not None:
        yield USD, used.nano_usd, held.nano_usd, wanted.nano_usd, limit.nano_usd
    if limit.tokens is not None:
        yield TOKENS, used.tokens, held.tokens, wanted.tokens, limit.tokens
