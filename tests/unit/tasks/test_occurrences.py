"""When occurrences are, and what becomes of those that passed."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsup.model.errors import BadRequest
from agentsup.model.task import Misfire, NewSchedule, Overlap, Schedule
from agentsup.tasks import occurrences
from agentsup.tasks.occurrences import DueOccurrences, describe, due, is_rewound, next_after, parse

SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000
ZURICH, NEW_YORK = "Europe/Zurich", "America/New_York"


def ms(text: str, zone: str = "UTC") -> int:
    """``text`` read in ``zone``; an offset in it rules."""
    when = datetime.fromisoformat(text)
    if when.tzinfo is None:
        when = when.replace(tzinfo=ZoneInfo(zone))
    return round(when.timestamp() * 1000)


NOW = ms("2026-11-21T12:00")


def make(new: NewSchedule, now: int = NOW, zone: str = "UTC") -> Schedule:
    return parse(new, "task_1", now_ms=now, zone=zone)


def cron(
    expression: str, zone: str = "UTC", now: int = NOW, misfire: Misfire = Misfire.ONCE
) -> Schedule:
    return make(NewSchedule(cron=expression, zone=zone, misfire=misfire), now)


def every(seconds: float, misfire: Misfire = Misfire.ONCE) -> Schedule:
    return make(NewSchedule(every_s=seconds, misfire=misfire))


def times(schedule: Schedule, after: str, count: int) -> list[str]:
    """The next ``count`` occurrences as local time with offset."""
    at, found = ms(after, schedule.zone), []
    for _ in range(count):
        occurrence = next_after(schedule, at)
        assert occurrence is not None
        assert occurrence > at
        at = occurrence
        found.append(occurrences.local_time(occurrence, schedule.zone))
    return found


# -- what is understood ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "at,zone,spec",
    [
        ("2026-12-24T18:00", ZURICH, "2026-12-24T18:00:00+01:00"),
        ("2026-12-24 18:00", ZURICH, "2026-12-24T18:00:00+01:00"),
        ("2026-12-24T18:00Z", ZURICH, "2026-12-24T19:00:00+01:00"),
        ("2026-12-24T18:00:05.25-05:00", "UTC", "2026-12-24T23:00:05.250+00:00"),
        ("20261224T18", NEW_YORK, "2026-12-24T18:00:00-05:00"),
        # A time that the clocks repeat is the first of the two.
        ("2027-10-31T02:30", ZURICH, "2027-10-31T02:30:00+02:00"),
        ("2027-10-31T02:30+01:00", ZURICH, "2027-10-31T02:30:00+01:00"),
    ],
)
def test_at_is_an_instant(at: str, zone: str, spec: str) -> None:
    schedule = make(NewSchedule(at=at), zone=zone)
    assert (schedule.kind, schedule.spec, schedule.zone) == ("at", spec, zone)
    assert schedule.next_at == schedule.anchor_at == ms(spec)
    assert next_after(schedule, ms(spec)) is None


@pytest.mark.parametrize(
    "written,spec",
    [
        ("*/5 * * * *", "*/5 * * * *"),
        ("  30   8 * * mon-fri ", "30 8 * * MON-FRI"),
        ("@daily", "0 0 * * *"),
        ("0 0 L * *", "0 0 L * *"),
    ],
)
def test_cron_is_kept_in_one_form(written: str, spec: str) -> None:
    assert cron(written).spec == spec


def test_the_schedules_own_zone_goes_before_the_owners() -> None:
    assert make(NewSchedule(cron="0 8 * * *", zone=NEW_YORK), zone=ZURICH).zone == NEW_YORK
    assert make(NewSchedule(cron="0 8 * * *"), zone=ZURICH).zone == ZURICH


@pytest.mark.parametrize(
    "new,field,words",
    [
        (NewSchedule(), "schedule", "none is given"),
        (NewSchedule(at="2026-12-24T18:00", cron="@daily"), "schedule", "2 of them is given"),
        (NewSchedule(every_s=0.5), "every_s", "between 1 s and ten years"),
        (NewSchedule(every_s=float("nan")), "every_s", "3600"),
        (NewSchedule(every_s=1e12), "every_s", "ten years"),
        (NewSchedule(at="2026-11-21T12:00"), "at", "is past: it is 2026-11-21T12:00:00+00:00 now"),
        (NewSchedule(at="tomorrow"), "at", "is no date and time"),
        (NewSchedule(at="2026-12-24"), "at", "lacks the time of day"),
        (NewSchedule(at="9999-12-31T23:59-12:00"), "at", "is no date and time"),
        (NewSchedule(at="0001-01-01T00:00+12:00"), "at", "is no date and time"),
        (NewSchedule(at="2027-03-28T02:30", zone=ZURICH), "at", "does not exist in Europe/Zurich"),
        (NewSchedule(cron="* * * *"), "cron", "has 4 fields, not five"),
        (NewSchedule(cron="0 8 * * NOON"), "cron", "bad day of week; write minute, hour"),
        (NewSchedule(cron="0 8 31 2 *"), "cron", "bad day of month"),
        (NewSchedule(cron="0 8 * * *", zone="europe/zurich"), "zone", "mean 'Europe/Zurich'"),
        (NewSchedule(cron="0 8 * * *", zone="New York"), "zone", "mean 'America/New_York'"),
        (NewSchedule(cron="0 8 * * *", zone="Europe/Zurick"), "zone", "mean 'Europe/Zurich'"),
        (NewSchedule(every_s=60, zone="localtime"), "zone", "no time zone 'localtime'"),
    ],
)
def test_what_is_wrong_is_named(new: NewSchedule, field: str, words: str) -> None:
    with pytest.raises(BadRequest) as refused:
        parse(new, "task_1", now_ms=NOW, zone="UTC")
    assert refused.value.facts["field"] == field
    assert words in refused.value.message


@given(st.text("0123456789*/,-#LWMONSATJANDEC@ ", max_size=24))
def test_any_text_is_understood_or_refused(text: str) -> None:
    try:
        schedule = cron(text)
    except BadRequest:
        return
    assert schedule.next_at is not None
    assert schedule.next_at > NOW


# -- when occurrences are ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "expression,zone,after,expected",
    [
        # Zurich goes forward at 02:00 on 2026-03-29: a fixed time comes after the gap, once.
        (
            "30 2 * * *",
            ZURICH,
            "2026-03-28T00:00",
            ["2026-03-28T02:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"],
        ),
        (
            "0,30 2,3 * * *",
            ZURICH,
            "2026-03-29T00:00",
            ["2026-03-29T03:00:00+02:00", "2026-03-29T03:30:00+02:00", "2026-03-30T02:00:00+02:00"],
        ),
        (
            "*/30 * * * *",
            ZURICH,
            "2026-03-29T01:15",
            ["2026-03-29T01:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-29T03:30:00+02:00"],
        ),
        # And back at 03:00 on 2026-10-25: a fixed time comes at its first passing only.
        (
            "30 2 * * *",
            ZURICH,
            "2026-10-25T00:00",
            ["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"],
        ),
        (
            "45 2 * * *",
            ZURICH,
            "2026-10-25T02:30+01:00",  # within the second passing
            ["2026-10-26T02:45:00+01:00"],
        ),
        (
            "0 * * * *",
            ZURICH,
            "2026-10-25T01:30",
            ["2026-10-25T02:00:00+02:00", "2026-10-25T02:00:00+01:00", "2026-10-25T03:00:00+01:00"],
        ),
        # New York: forward on 2026-03-08, back on 2026-11-01, both at 02:00.
        (
            "15 2 * * *",
            NEW_YORK,
            "2026-03-07T12:00",
            ["2026-03-08T03:00:00-04:00", "2026-03-09T02:15:00-04:00"],
        ),
        (
            "15 1 * * *",
            NEW_YORK,
            "2026-11-01T00:00",
            ["2026-11-01T01:15:00-04:00", "2026-11-02T01:15:00-05:00"],
        ),
        (
            "*/20 1 * * *",
            NEW_YORK,
            "2026-11-01T01:35-04:00",
            ["2026-11-01T01:40:00-04:00", "2026-11-01T01:00:00-05:00", "2026-11-01T01:20:00-05:00"],
        ),
        # Leap days, also over the century that has none.
        (
            "0 12 29 2 *",
            "UTC",
            "2026-01-01T00:00",
            ["2028-02-29T12:00:00+00:00", "2032-02-29T12:00:00+00:00"],
        ),
        ("0 12 29 2 *", "UTC", "2096-03-01T00:00", ["2104-02-29T12:00:00+00:00"]),
        ("0 0 31 * *", "UTC", "2026-02-01T00:00", ["2026-03-31T00:00:00+00:00"]),
        ("0 0 L * *", "UTC", "2028-02-01T00:00", ["2028-02-29T00:00:00+00:00"]),
        # Day of month or day of week, if neither is a star.
        ("0 0 13 * FRI", "UTC", "2026-11-11T00:00", ["2026-11-13T00:00:00+00:00"]),
        ("0 0 13 * FRI", "UTC", "2026-11-13T00:00", ["2026-11-20T00:00:00+00:00"]),
    ],
)
def test_cron_times(expression: str, zone: str, after: str, expected: list[str]) -> None:
    assert times(cron(expression, zone), after, len(expected)) == expected


def test_every_counts_real_seconds_over_a_change_of_clocks() -> None:
    schedule = make(
        NewSchedule(every_s=43_200, zone=ZURICH), ms("2026-03-28T20:00", ZURICH), ZURICH
    )
    assert times(schedule, "2026-03-28T20:00", 2) == [
        "2026-03-29T09:00:00+02:00",
        "2026-03-29T21:00:00+02:00",
    ]


def test_every_keeps_its_beat_to_the_millisecond() -> None:
    schedule = every(1.5)
    assert schedule.next_at == NOW + 1500
    assert next_after(schedule, NOW + 1_000_000_001) == NOW + 1_000_000_500


EXPRESSIONS = st.sampled_from(
    [
        "* * * * *",
        "*/7 * * * *",
        "30 2 * * *",
        "0,20,40 1-3 * * *",
        "*/15 2 * * *",
        "5 */2 * * *",
        "0 0 * * SUN",
        "0 0 29 2 *",
        "59 23 L * *",
        "0 3 1 1 MON#1",
    ]
)
ZONES = st.sampled_from(
    ["UTC", ZURICH, NEW_YORK, "Australia/Lord_Howe", "America/Havana", "Asia/Kathmandu"]
)
INSTANTS = st.one_of(
    st.integers(ms("2026-01-01T00:00"), ms("2028-12-31T00:00")),
    # Around the changes of clocks, where it matters.
    *(
        st.integers(ms(text) - 3 * HOUR, ms(text) + 3 * HOUR)
        for text in ("2026-03-29T01:00", "2026-10-25T01:00", "2026-03-08T07:00", "2026-11-01T06:00")
    ),
)


@given(EXPRESSIONS, st.sampled_from(["UTC", ZURICH, NEW_YORK]), INSTANTS, st.integers(0, 4 * HOUR))
def test_slots_are_the_same_from_wherever_one_looks(
    expression: str, zone: str, after: int, step: int
) -> None:
    schedule = cron(expression, zone)
    occurrence = next_after(schedule, after)
    assert occurrence is not None
    # From anywhere between, the same occurrence comes next.
    assert next_after(schedule, min(after + step, occurrence - 1)) == occurrence


# -- what is due -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "misfire,passed,late_ms,run,skipped,is_made_up",
    [
        (Misfire.ONCE, 0, 0, [], [], False),
        (Misfire.SKIP, 0, 0, [], [], False),
        (Misfire.ALL, 0, 0, [], [], False),
        (Misfire.ONCE, 1, 0, [1], [], False),
        (Misfire.SKIP, 1, 0, [1], [], False),
        (Misfire.ALL, 1, 0, [1], [], False),
        (Misfire.ONCE, 3, 59_999, [3], [1, 2], False),
        (Misfire.SKIP, 3, 59_999, [3], [1, 2], False),
        (Misfire.ALL, 3, 59_999, [1, 2, 3], [], True),
    ],
)
def test_misfire(
    misfire: Misfire,
    passed: int,
    late_ms: int,
    run: list[int],
    skipped: list[int],
    is_made_up: bool,
) -> None:
    found = due(every(60, misfire=misfire), NOW + passed * MINUTE + late_ms)
    assert found == DueOccurrences(
        run_at=tuple(NOW + number * MINUTE for number in run),
        skipped_at=tuple(NOW + number * MINUTE for number in skipped),
        next_at=NOW + (passed + 1) * MINUTE,
        is_made_up=is_made_up,
    )


@pytest.mark.parametrize(
    "misfire,late_ms,runs",
    [
        (Misfire.ONCE, 60_000, True),
        (Misfire.ONCE, 5 * HOUR, True),
        (Misfire.SKIP, 60_000, True),
        (Misfire.SKIP, 60_001, False),
        (Misfire.ALL, 5 * HOUR, True),
    ],
)
def test_late_alone(misfire: Misfire, late_ms: int, runs: bool) -> None:
    occurrence = ms("2026-11-22T08:00")
    found = due(cron("0 8 * * *", misfire=misfire), occurrence + late_ms)
    assert (found.run_at, found.skipped_at) == (
        ((occurrence,), ()) if runs else ((), (occurrence,))
    )
    assert found.next_at == occurrence + DAY
    assert found.last_at == occurrence


def test_a_single_time_ends_its_schedule_run_or_skipped() -> None:
    occurrence = ms("2026-11-22T08:00")
    for misfire, run in ((Misfire.ONCE, (occurrence,)), (Misfire.SKIP, ())):
        schedule = make(NewSchedule(at="2026-11-22T08:00", misfire=misfire))
        found = due(schedule, occurrence + DAY)
        assert (found.run_at, found.next_at) == (run, None)
        assert found.last_at == occurrence


@settings(deadline=None)
@given(
    st.one_of(
        EXPRESSIONS.map(lambda expression: ("cron", expression)),
        st.integers(1_000, 10 * HOUR).map(lambda period: ("every", period)),
    ),
    st.sampled_from(["UTC", ZURICH, NEW_YORK]),
    st.sampled_from(list(Misfire)),
    INSTANTS,
    st.lists(st.integers(-2 * HOUR, 3 * DAY), min_size=1, max_size=4),
)
def test_every_slot_is_decided_exactly_once(
    kind: tuple[str, str | int], zone: str, misfire: Misfire, begin: int, steps: list[int]
) -> None:
    """However the clock moves, and whenever it is looked at."""
    name, value = kind
    new = NewSchedule(
        cron=str(value) if name == "cron" else "",
        every_s=value / 1000 if isinstance(value, int) else None,
        zone=zone,
        misfire=misfire,
    )
    schedule = make(new, begin, zone)
    one_by_one: list[int] = []
    ranges: list[tuple[int, int]] = []
    now = begin
    for step in steps:
        now += step
        found = due(schedule, now)
        assert (found.last_at is None) == (schedule.next_at is not None and schedule.next_at > now)
        one_by_one += (*found.skipped_at, *found.run_at)
        if found.range_at is not None:
            ranges.append((found.range_at, found.range_end))
            assert len(found.run_at) + len(found.skipped_at) == occurrences.LISTED_MAX
        assert found.next_at is None or found.next_at > now or found.last_at is None
        schedule = replace(schedule, next_at=found.next_at, last_at=found.last_at)

    assert len(one_by_one) == len(set(one_by_one)), "an occurrence was decided twice"
    decided, latest, at = set(one_by_one), max(one_by_one, default=begin), begin
    fresh = make(new, begin, zone)
    for _ in range(3000):
        occurrence = next_after(fresh, at)
        if occurrence is None or occurrence > latest:
            break
        in_range = sum(first <= occurrence < end for first, end in ranges)
        assert in_range + (occurrence in decided) == 1, occurrences.local_time(occurrence, zone)
        at = occurrence


@pytest.mark.parametrize("misfire", list(Misfire))
@pytest.mark.parametrize("expression", ["* * * * *", "*/10 8 * * *", "* * * 1 *"])
def test_a_years_slots_are_decided_in_bounded_work(expression: str, misfire: Misfire) -> None:
    schedule = cron(expression, ZURICH, misfire=misfire)
    now = NOW + 365 * DAY
    found = due(schedule, now)
    assert found.range_at == schedule.next_at
    listed = (*found.skipped_at, *found.run_at)
    assert len(listed) == occurrences.LISTED_MAX
    assert listed[0] == found.range_end
    # The latest ones, without a hole.
    assert all(next_after(schedule, a) == b for a, b in itertools.pairwise(listed))
    assert next_after(schedule, listed[-1]) == found.next_at
    assert found.next_at is not None
    assert found.next_at > now


def test_a_stored_time_counts_though_its_zone_has_changed_its_rules() -> None:
    odd = NOW + 17 * MINUTE
    schedule = replace(cron("0 * * * *"), next_at=odd)
    assert due(schedule, odd).run_at == (odd,)
    assert due(schedule, odd).next_at == NOW + HOUR


def test_only_hours_back_make_a_schedule_be_found_anew() -> None:
    schedule = replace(every(60), last_at=NOW)
    assert not is_rewound(schedule, NOW - 3 * HOUR)
    assert is_rewound(schedule, NOW - 3 * HOUR - 1)
    assert is_rewound(every(60), NOW - DAY), "made by a clock that was ahead"
    assert not is_rewound(make(NewSchedule(at="2030-01-01T00:00")), NOW)


# -- for people ------------------------------------------------------------------------------------


def test_describe_names_the_next_three_times() -> None:
    schedule = cron("30 8 * * MON-FRI", ZURICH)
    told = describe(schedule)
    assert told["next_local"] == [
        "2026-11-23T08:30:00+01:00",
        "2026-11-24T08:30:00+01:00",
        "2026-11-25T08:30:00+01:00",
    ]
    assert told["next_times"] == [ms(text) for text in told["next_local"]]
    assert told["next_at"] == told["next_times"][0] == schedule.next_at
    assert (told["kind"], told["spec"], told["zone"]) == ("cron", "30 8 * * MON-FRI", ZURICH)
    assert (told["misfire"], told["overlap"], told["is_paused"]) == ("once", "skip", False)


def test_describe_names_no_time_that_does_not_come() -> None:
    once = make(NewSchedule(at="2026-12-24T18:00", overlap=Overlap.QUEUE))
    assert len(describe(once)["next_times"]) == 1
    assert describe(replace(once, next_at=None))["next_times"] == []
    assert describe(replace(once, is_paused=True))["next_at"] is None
