"""The sentences with which coding agents say that a plan's limit is used up. Pure.

Agents say this in texts only: as an error, on stderr, or as their answer. A sentence that is not
known here leaves the failure as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

UNKNOWN_S = 900.0
"""The pause if the sentence does not say when the limit ends."""
_MOST_S = 8 * 24 * 3600.0
_JUST_NOW = timedelta(minutes=10)
"""A time that passed so recently is taken for one that has just passed, not for tomorrow's."""
_LEAST_S = 60.0
_ANSWER_CHARS = 400
_READ_CHARS = 4000

_PLANS = (
    r"(?:(?:usage|session|weekly|daily|monthly|hourly|\d+-hour|rate|plan|opus|sonnet|free|\w+'s) )"
)
_SENTENCE = re.compile(
    rf"you(?:'ve| have) (?:hit|reached|exceeded) your {_PLANS}{{0,3}}(?:limit|quota)\b"
    rf"|{_PLANS}limit (?:has been )?reached"
    r"|you(?:'re| are) out of (?:extra usage|credits)"
    r"|(?:you have )?exhausted your (?:\w+ ){0,2}(?:capacity|quota)"
    rf"|{_PLANS}quota has been (?:reached|exhausted)|quota will reset (?:at|after|in)"
    r"|exceeded your current quota.{0,300}?retry in"
    r"|resource has been exhausted|resource_exhausted"
    r"|usage_?limit_?(?:reached|exceeded)",
    re.IGNORECASE | re.DOTALL,
)
_LEAD = re.compile(r"(?:claude(?: ai| code)? |api error: |error: )?", re.IGNORECASE)
"""Text that may come before the sentence in an answer that is nothing else."""
_EPOCH = re.compile(r"\|\s*(\d{10})(?:\d{3})?\b")
_WHEN = re.compile(
    r"(?:resets?|(?:try|available) again|retry)\s*(?:(?:at|in|on|after|~|about)\s*)*", re.IGNORECASE
)
_ISO = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:\.\d{1,6})?(?:Z|[+-]\d\d:\d\d)?")
_LENGTH = re.compile(
    r"(\d+(?:\.\d+)?)\s*(d|h|m|s)(?:ays?|ours?|rs?|inutes?|ins?|econds?|ecs?)?(?![a-z])[\s,]*(?:and )?",
    re.IGNORECASE,
)
_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DATE = re.compile(
    rf"({'|'.join(_MONTHS)})[a-z]*\.? (\d{{1,2}})(?:st|nd|rd|th)?\b(?:,? (\d{{4}})\b)?[\s,]*(?:at )?",
    re.IGNORECASE,
)
_CLOCK = re.compile(r"(\d{1,2})(?::(\d\d))?(?::\d\d)?\s*(?:([ap])\.?m\b\.?)?", re.IGNORECASE)
_ZONE = re.compile(r"\s*(?:\(([\w/+-]{1,64})\)|(UTC|GMT|Z)\b)")


def wait_s(text: str, now: datetime) -> float | None:
    """Seconds until the limit that ``text`` calls used up ends, or None if it says no such thing.

    ``now`` is in the zone in which the agent writes times that name no zone.
    """
    text = text[:_READ_CHARS].replace("’", "'")
    if not _SENTENCE.search(text):
        return None
    until = _until(text, now)
    return UNKNOWN_S if until is None else _bounded(until - now)


def wait_of_answer_s(text: str, now: datetime) -> float | None:
    """Return as ``wait_s`` does, but only if ``text`` is this sentence with a time, and little
    else: an answer may be about limits."""
    text = text.strip().replace("’", "'")
    lead = _LEAD.match(text)
    begins = _SENTENCE.match(text, lead.end() if lead else 0)
    if len(text) > _ANSWER_CHARS or not begins:
        return None
    until = _until(text, now)
    return None if until is None else _bounded(until - now)


def _bounded(wait: timedelta) -> float:
    return min(max(wait.total_seconds(), _LEAST_S), _MOST_S)


def _until(text: str, now: datetime) -> datetime | None:
    if epoch := _EPOCH.search(text):
        return datetime.fromtimestamp(int(epoch[1]), tz=UTC)
    return next(_times(text, now), None)


def _times(text: str, now: datetime) -> Iterator[datetime]:
    for when in _WHEN.finditer(text):
        try:
            found = _time(text, when.end(), now)
        except (ValueError, OverflowError):
            continue  # such as the 31st of February
        if found is not None:
            yield found


def _time(text: str, at: int, now: datetime) -> datetime | None:
    if iso := _ISO.match(text, at):
        given = datetime.fromisoformat(iso[0])
        return given if given.tzinfo else given.replace(tzinfo=now.tzinfo)
    seconds, end = 0.0, at
    while length := _LENGTH.match(text, end):
        seconds += float(length[1]) * _UNITS[length[2].lower()]
        end = length.end()
    if end > at:
        return now + timedelta(seconds=seconds)
    date = _DATE.match(text, at)
    clock = _CLOCK.match(text, date.end() if date else at)
    if clock and not (clock[2] or clock[3]):
        clock = None  # a bare number is no time of day
    if not date and not clock:
        return None
    end = clock.end() if clock else date.end() if date else at
    here = now.astimezone(_zone(text, end, now.tzinfo))
    given = here.replace(hour=0, minute=0, second=0, microsecond=0)
    if clock:
        hour = int(clock[1])
        if clock[3]:
            hour = hour % 12 + (12 if clock[3].lower() == "p" else 0)
        given = given.replace(hour=hour, minute=int(clock[2] or 0))
    if date is None:
        return given if given >= here - _JUST_NOW else given + timedelta(days=1)
    given = given.replace(month=_MONTHS.index(date[1].lower()) + 1, day=int(date[2]))
    if date[3]:
        return given.replace(year=int(date[3]))
    return given if given >= here - timedelta(days=1) else given.replace(year=given.year + 1)


def _zone(text: str, at: int, default: tzinfo | None) -> tzinfo | None:
    found = _ZONE.match(text, at)
    if not found:
        return default
    try:
        return UTC if found[2] else ZoneInfo(found[1])
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return default
