"""Scopes, periods, estimates and verdicts of budgets."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from agentsup.mailbox.usage.budget.decide import (
    FLOOR,
    NANO,
    Amount,
    BudgetScope,
    Limit,
    LimitUsage,
    ScopeKind,
    crossed,
    day_of,
    estimate,
    money_left,
    month_of,
    over,
)

DAY = BudgetScope(ScopeKind.AGENT_DAY, "a", 0, 100)
TURN = BudgetScope(ScopeKind.TURN, "m")


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def standing(
    *, most: int | None = None, used: int = 0, held: int = 0, scope: BudgetScope = DAY
) -> LimitUsage:
    return LimitUsage(Limit(scope, tokens=most), Amount(0, used), Amount(0, held))


@pytest.mark.parametrize(
    "at, zone, since, until",
    [
        ("2027-01-16T12:00", "UTC", "2027-01-16T00:00", "2027-01-17T00:00"),
        ("2027-01-16T12:00", "Europe/Zurich", "2027-01-15T23:00", "2027-01-16T23:00"),
        ("2027-01-15T23:00", "Europe/Zurich", "2027-01-15T23:00", "2027-01-16T23:00"),
        ("2027-01-15T22:59:59.999", "Europe/Zurich", "2027-01-14T23:00", "2027-01-15T23:00"),
        # Clocks go forward: a day of 23 hours; and back: one of 25.
        ("2027-03-28T12:00", "Europe/Zurich", "2027-03-27T23:00", "2027-03-28T22:00"),
        ("2027-10-31T12:00", "Europe/Zurich", "2027-10-30T22:00", "2027-10-31T23:00"),
        ("2027-01-16T12:00", "Asia/Kathmandu", "2027-01-15T18:15", "2027-01-16T18:15"),
        # There is no midnight on this day: its clocks go from 23:59 to 1:00.
        ("2024-09-08T12:00", "America/Santiago", "2024-09-08T04:00", "2024-09-09T03:00"),
    ],
)
def test_a_day_is_that_of_the_people(at: str, zone: str, since: str, until: str) -> None:
    assert day_of(ms(at), ZoneInfo(zone)) == (ms(since), ms(until))


def test_a_month_ends_where_the_next_begins() -> None:
    zurich = ZoneInfo("Europe/Zurich")
    assert month_of(ms("2026-12-31T22:59"), zurich) == (
        ms("2026-11-30T23:00"),
        ms("2026-12-31T23:00"),
    )
    assert month_of(ms("2026-12-31T23:00"), zurich) == (
        ms("2026-12-31T23:00"),
        ms("2027-01-31T23:00"),
    )


def test_without_a_zone_a_day_is_the_machines() -> None:
    at = ms("2027-01-16T12:00")
    since, until = day_of(at, None)
    assert since <= at < until
    assert datetime.fromtimestamp(since / 1000, tz=UTC).astimezone().hour == 0


def test_before_the_first_turn_an_estimate_goes_by_size_and_price() -> None:
    assert estimate(0, None, None) == FLOOR
    assert estimate(40_000, None, None) == Amount(FLOOR.nano_usd, 11_500)
    # $3 for a million tokens in, $15 out: 11,000 in and 500 out.
    rate = Amount(3 * NANO, 15 * NANO)
    assert estimate(40_000, rate, None) == Amount(40_500_000, 11_500)


def test_later_it_goes_by_the_mean_or_by_what_is_read_again() -> None:
    rate = Amount(3 * NANO, 15 * NANO)
    assert estimate(0, rate, Amount(4_000_000, 130)) == Amount(4_000_000, 130)
    assert estimate(40_000, rate, Amount(4_000_000, 130)) == Amount(30_000_000, 10_000)
    assert estimate(40_000, None, Amount(0, 130)) == Amount(0, 10_000)


@pytest.mark.parametrize(
    "one, wanted, fits, by_holds",
    [
        (standing(most=10), 4, True, False),
        (standing(most=10, used=6), 4, True, False),
        (standing(most=10, used=7), 4, False, False),
        (standing(most=10, used=2, held=5), 4, False, True),
        (standing(most=10, used=10), 0, False, False),
        # One turn may always begin where nothing was used; but not beside another.
        (standing(most=10), 400, True, False),
        (standing(most=10, held=1), 400, False, True),
        (standing(most=10, used=1), 400, False, False),
        # Nothing may be used at all.
        (standing(most=0), 0, False, False),
        # A turn's own limit asks only whether it is used up.
        (standing(most=10, used=9, scope=TURN), 400, True, False),
        (standing(most=10, used=10, scope=TURN), 1, False, False),
        (standing(most=None, used=10**12), 400, True, False),
    ],
)
def test_what_fits(one: LimitUsage, wanted: int, fits: bool, by_holds: bool) -> None:
    found = over([one], Amount(0, wanted))
    assert (found is None) is fits
    if found is not None:
        assert found.by_holds is by_holds


def test_a_limit_that_is_used_up_is_named_before_one_that_others_hold() -> None:
    held = standing(most=10, held=10)
    spent = standing(most=10, used=10, scope=BudgetScope(ScopeKind.TREE, "r"))
    found = over([held, spent], Amount(0, 1))
    assert found is not None
    assert found.limit.scope.kind is ScopeKind.TREE


def test_operators_hear_from_80_percent_on_and_never_of_a_single_turn() -> None:
    assert crossed([standing(most=10, used=7)]) == []
    assert [one.level for one in crossed([standing(most=10, used=8)])] == ["warned"]
    assert [one.level for one in crossed([standing(most=10, used=10)])] == ["exhausted"]
    assert crossed([standing(most=10, used=10, scope=TURN)]) == []


def test_an_engine_is_given_the_least_that_is_left() -> None:
    def money(most: float | None, used: float, held: float = 0) -> LimitUsage:
        nanos = [round(each * NANO) for each in (used, held)]
        limit = Limit(DAY, None if most is None else round(most * NANO))
        return LimitUsage(limit, Amount(nanos[0]), Amount(nanos[1]))

    assert money_left([money(10, 1, 2), money(5, 0.5), money(None, 3)]) == pytest.approx(4.5)
    assert money_left([money(1, 3)]) == 0
    assert money_left([money(None, 3)]) is None
