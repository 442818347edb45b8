"""Times as people say them, in English and German."""

from __future__ import annotations

from datetime import datetime, time
from zoneinfo import ZoneInfo

import pytest

from agentsup.model.errors import BadRequest
from agentsup.tasks import SpokenTime, spoken_time

ZONE = "Europe/Berlin"
NOW = datetime(2026, 11, 24, 14, 30, tzinfo=ZoneInfo(ZONE))
"""A Tuesday."""


def heard(said: str, language: str = "", now: datetime = NOW, **more: time) -> SpokenTime | None:
    now_ms = round(now.timestamp() * 1000)
    return spoken_time(said, now_ms=now_ms, zone=ZONE, language=language, **more)


def at(said: str, language: str = "", now: datetime = NOW) -> tuple[str, str]:
    """The local time to the minute, and the text."""
    found = heard(said, language, now)
    assert found is not None, said
    assert not found.is_past
    return found.schedule.at[:16], found.text


ENGLISH = {
    "20:00 pay the bill": ("2026-11-24T20:00", "pay the bill"),
    "8:00 run": ("2026-11-25T08:00", "run"),
    "8pm run": ("2026-11-24T20:00", "run"),
    "at 8 run": ("2026-11-25T08:00", "run"),
    "at noon eat": ("2026-11-25T12:00", "eat"),
    "in 2h tea": ("2026-11-24T16:30", "tea"),
    "in 1h30m tea": ("2026-11-24T16:00", "tea"),
    "in 1.5 hours tea": ("2026-11-24T16:00", "tea"),
    "in 2 hours and 5 minutes tea": ("2026-11-24T16:35", "tea"),
    "in an hour tea": ("2026-11-24T15:30", "tea"),
    "in half an hour tea": ("2026-11-24T15:00", "tea"),
    "90 min tea": ("2026-11-24T16:00", "tea"),
    "in 3 days tea": ("2026-11-27T14:30", "tea"),
    "in 3 days at 8 tea": ("2026-11-27T08:00", "tea"),
    "tomorrow 8 pay the bill": ("2026-11-25T08:00", "pay the bill"),
    "tomorrow pay the bill": ("2026-11-25T09:00", "pay the bill"),
    "tomorrow at 8 pm call": ("2026-11-25T20:00", "call"),
    "tomorrow morning call": ("2026-11-25T08:00", "call"),
    "day after tomorrow 10 call": ("2026-11-26T10:00", "call"),
    "tonight film": ("2026-11-24T20:00", "film"),
    "tonight at 9 film": ("2026-11-24T21:00", "film"),
    "monday 9 call": ("2026-11-30T09:00", "call"),
    "tuesday 18:00 call": ("2026-11-24T18:00", "call"),
    "tuesday 9 call": ("2026-12-01T09:00", "call"),
    "next tuesday 18:00 call": ("2026-12-01T18:00", "call"),
    "on friday at 18:30 swim": ("2026-11-27T18:30", "swim"),
    "2026-12-24 18:00 tree": ("2026-12-24T18:00", "tree"),
    "2026-12-24T18:00 tree": ("2026-12-24T18:00", "tree"),
    "dec 24 at 6pm tree": ("2026-12-24T18:00", "tree"),
    "may 5 swim": ("2027-05-05T09:00", "swim"),
    "pay the bill tomorrow 8": ("2026-11-25T08:00", "pay the bill"),
    "buy 2 apples at 8": ("2026-11-25T08:00", "buy 2 apples"),
    "sat down in 5 min": ("2026-11-24T14:35", "sat down"),
    "sat 10 swim": ("2026-11-28T10:00", "swim"),
}
GERMAN = {
    "morgen 8 am Bahnhof sein": ("2026-11-25T08:00", "am Bahnhof sein"),
    "morgen um 8 Müll": ("2026-11-25T08:00", "Müll"),
    "morgen früh Müll": ("2026-11-25T08:00", "Müll"),
    "heute abend Film": ("2026-11-24T20:00", "Film"),
    "heute Abend um 9 Film": ("2026-11-24T21:00", "Film"),
    "übermorgen 10 Uhr Film": ("2026-11-26T10:00", "Film"),
    "8 Uhr 30 Film": ("2026-11-25T08:30", "Film"),
    "8.30 Uhr Film": ("2026-11-25T08:30", "Film"),
    "am Montag um 9 Film": ("2026-11-30T09:00", "Film"),
    "Mi 9 Film": ("2026-11-25T09:00", "Film"),
    "nächsten Dienstag Film": ("2026-12-01T09:00", "Film"),
    "in einer halben Stunde Tee": ("2026-11-24T15:00", "Tee"),
    "in 2 Stunden Tee": ("2026-11-24T16:30", "Tee"),
    "24.12. 18 Uhr Baum": ("2026-12-24T18:00", "Baum"),
    "am 3.1.2027 um 10 Baum": ("2027-01-03T10:00", "Baum"),
    "24. Dezember Baum": ("2026-12-24T09:00", "Baum"),
    "so wie immer morgen 9": ("2026-11-25T09:00", "so wie immer"),
}


@pytest.mark.parametrize("said", ENGLISH)
def test_a_time_in_english(said: str) -> None:
    assert at(said) == ENGLISH[said]


@pytest.mark.parametrize("said", GERMAN)
def test_a_time_in_german(said: str) -> None:
    assert at(said, "de-AT") == GERMAN[said]


@pytest.mark.parametrize(
    "said, cron",
    [
        ("every day 8 pills", "0 8 * * *"),
        ("every monday 9:05 pills", "5 9 * * MON"),
        ("every weekday 7:30 pills", "30 7 * * MON-FRI"),
        ("daily at 9 pills", "0 9 * * *"),
        ("jeden Freitag um 9 pills", "0 9 * * FRI"),
        ("täglich 9 Uhr pills", "0 9 * * *"),
        ("werktags 7:30 pills", "30 7 * * MON-FRI"),
    ],
)
def test_again_and_again(said: str, cron: str) -> None:
    found = heard(said, "de" if cron[0] == "0" and "Uhr" in said else "")
    assert found is not None
    assert (found.schedule.cron, found.text) == (cron, "pills")


def test_a_period_is_a_minute_at_least() -> None:
    two_hours, seconds = heard("every 2 hours drink"), heard("alle 2 sekunden drink")
    assert two_hours is not None
    assert (two_hours.schedule.every_s, two_hours.text) == (7200, "drink")
    assert seconds is not None
    assert seconds.schedule.every_s == 60


@pytest.mark.parametrize(
    "said",
    ["", "in", "every", "nonsense", "8 apples", "25:00 x", "do it now", "in 99999999 days x"],
)
def test_what_is_no_time(said: str) -> None:
    assert heard(said) is None


@pytest.mark.parametrize("said", ["today 9 x", "2026-01-01 x", "2026-11-24 14:29 x"])
def test_a_time_that_is_past(said: str) -> None:
    found = heard(said)
    assert found is not None
    assert found.is_past


def test_a_day_alone_takes_the_time_of_day_that_is_given() -> None:
    found = heard("tomorrow", day_time=time(20, 15))
    assert found is not None
    assert found.schedule.at[:16] == "2026-11-25T20:15"


def test_the_changes_of_the_clock() -> None:
    spring = datetime(2027, 3, 27, 12, tzinfo=ZoneInfo(ZONE))
    found = heard("tomorrow 2:30 x", now=spring)
    assert found is not None
    assert found.schedule.at == "2027-03-28T03:30:00.000+02:00", "half past two does not exist"
    assert at("in 24h x", now=spring)[0] == "2027-03-28T13:00", "hours are real"
    assert at("in 1 day x", now=spring)[0] == "2027-03-28T12:00", "days are the calendar's"


def test_a_zone_that_is_none() -> None:
    with pytest.raises(BadRequest):
        spoken_time("in 2h x", now_ms=0, zone="Mars/Base")
