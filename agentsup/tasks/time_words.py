"""The words of times in English and German, and what single words mean. Pure."""

from __future__ import annotations

import re
from datetime import date, time

DAY_S = 86_400
_SHORT_NAME = 3
_DAY_NAMES = (
    "monday mon montag mo",
    "tuesday tue tues dienstag di",
    "wednesday wed mittwoch mi",
    "thursday thu thur thurs donnerstag do",
    "friday fri freitag fr",
    "saturday sat samstag sonnabend sa",
    "sunday sun sonntag so",
)
CRON_DAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
WEEKDAYS = {name: day for day, names in enumerate(_DAY_NAMES) for name in names.split()}
_MONTH_NAMES = (
    "january jan januar jänner",
    "february feb februar",
    "march mar märz",
    "april apr",
    "may mai",
    "june jun juni",
    "july jul juli",
    "august aug",
    "september sep sept",
    "october oct oktober okt",
    "november nov",
    "december dec dezember dez",
)
MONTHS = {name: at for at, names in enumerate(_MONTH_NAMES, 1) for name in names.split()}
DAYS = {"today": 0, "heute": 0, "tomorrow": 1, "morgen": 1, "übermorgen": 2}
PARTS = {
    **dict.fromkeys(("morning", "früh", "morgens", "vormittag"), time(8)),
    **dict.fromkeys(("noon", "mittag", "mittags"), time(12)),
    **dict.fromkeys(("afternoon", "nachmittag", "nachmittags"), time(15)),
    **dict.fromkeys(("evening", "abend", "abends", "night", "tonight"), time(20)),
}
UNITS = {
    **dict.fromkeys(["s", "sec", "secs", "second", "seconds", "sek", "sekunde", "sekunden"], 1),
    **dict.fromkeys(["m", "min", "mins", "minute", "minutes", "minuten"], 60),
    **dict.fromkeys(["h", "hr", "hrs", "hour", "hours", "std", "stunde", "stunden"], 3_600),
    **dict.fromkeys(["d", "day", "days", "tag", "tage", "tagen"], 86_400),
    **dict.fromkeys(["w", "wk", "week", "weeks", "woche", "wochen"], 604_800),
}
ONE = frozenset(["a", "an", "one", "ein", "eine", "einem", "einen", "einer"])
HALF = frozenset(["half", "halbe", "halben", "halber"])
EVERY = frozenset(["every", "each", "jede", "jeden", "jeder", "jedes", "alle"])
DAILY = frozenset(["daily", "täglich"])
WORKDAYS = frozenset(
    ["weekday", "weekdays", "workday", "workdays", "werktag", "werktags", "wochentag"]
)
AT = frozenset(["at", "um", "gegen", "ab"])
ON = frozenset(["on", "am", "the", "den", "dem"])
NEXT = frozenset(["next", "nächsten", "nächste", "nächster", "kommenden"])
CLOCK = frozenset(("uhr", "o'clock"))

_SPAN = re.compile(r"(?:\d+(?:[.,]\d+)?[^\W\d_]+)+")
_SPAN_PART = re.compile(r"(\d+(?:[.,]\d+)?)([^\W\d_]+)")


def weekday(word: str, following: str) -> int | None:
    """The day of the week from Monday (0); also in the plural and with a point.

    A short name counts before a time of day, or as the last word: ``so`` and ``sat`` are also words.
    """
    word = word.rstrip(".")
    if len(word) <= _SHORT_NAME and following and not (following[0].isdecimal() or following in AT):
        return None
    return WEEKDAYS.get(word, WEEKDAYS.get(word.removesuffix("s")))


def number(word: str) -> float | None:
    if word in ONE:
        return 1
    try:
        number = float(word.replace(",", "."))
    except ValueError:
        return None
    return number if word[:1].isdecimal() else None


def together(word: str) -> tuple[float, int] | None:
    """``2h`` or ``1h30m`` in seconds, and the smallest unit in it."""
    if len(word) > 40 or not _SPAN.fullmatch(word):
        return None
    parts = [(number(each[1]), UNITS.get(each[2])) for each in _SPAN_PART.finditer(word)]
    known = [(number, unit) for number, unit in parts if number is not None and unit]
    if len(known) < len(parts):
        return None
    return sum(number * unit for number, unit in known), min(unit for _, unit in known)


def date_of(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None


def time_of(hour: int, minute: int, half: str = "") -> time | None:
    if half in ("am", "pm"):
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if half == "pm" else 0)
    return time(hour, minute) if hour < 24 and minute < 60 else None
