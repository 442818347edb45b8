"""Times as people say them in English and German: ``tomorrow 8``, ``in 2h``, ``jeden Montag um 9``.

Pure. Words and numbers are read from the left as long as they belong to a time; what is left is the
text. A time of day that the clocks leave out is the same time after the gap.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta

from agentsup.model.task import NewSchedule
from agentsup.tasks import time_words
from agentsup.tasks.occurrences import zone_of

MORNING = time(9)
"""The time of a day without one."""
MAX_DAYS = 3660
_PHRASE_WORDS = 8
_MIN_EVERY_S = 60
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)

_TIME = re.compile(r"(\d{1,2})[:.](\d{2})(am|pm|uhr)?")
_HOUR = re.compile(r"(\d{1,2})(am|pm|uhr)?")
_ISO = re.compile(r"(\d{4})-(\d{2})-(\d{2})(?:t(\d{2}):(\d{2}))?")
_DOTTED = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4}|\d{2})?")
_DAY_OF_MONTH = re.compile(r"(\d{1,2})(?:\.|st|nd|rd|th)?")


@dataclass(frozen=True, slots=True)
class SpokenTime:
    """A time that was understood, and the words that are no part of it.

    ``is_past``: it is a time of the past, and ``schedule`` is not usable.
    """

    schedule: NewSchedule
    text: str
    is_past: bool = False


def spoken_time(
    said: str, *, now_ms: int, zone: str, language: str = "", day_time: time = MORNING
) -> SpokenTime | None:
    """The time with which ``said`` begins, or else ends; None if there is none.

    ``zone`` is an IANA name; ``day_time`` is the time of a day without one. Raises ``BadRequest``
    for an unknown zone.
    """
    words = said.split()
    now = (_EPOCH + now_ms * _MS).astimezone(zone_of(zone))
    german = language.casefold().startswith("de")
    reader = _read(words[:_PHRASE_WORDS], german=german)
    found = reader.schedule(now, zone, day_time)
    if found is not None:
        return SpokenTime(found[0], " ".join(words[reader.at :]), found[1])
    for first in range(max(1, len(words) - _PHRASE_WORDS), len(words)):
        reader = _read(words[first:], german=german)
        if reader.at == len(words) - first:
            found = reader.schedule(now, zone, day_time)
            if found is not None:
                return SpokenTime(found[0], " ".join(words[:first]), found[1])
    return None


def _read(words: Sequence[str], *, german: bool) -> _Reader:
    reader = _Reader([each.casefold().rstrip(",;") for each in words], german)
    reader.read()
    return reader


@dataclass(slots=True)
class _Reader:
    """Reads words from the left; ``at`` is the first that belongs to no time."""

    words: list[str]
    german: bool
    at: int = 0
    span_s: float | None = None
    is_days: bool = False
    """``span_s`` is said in days and weeks, which are those of the calendar."""
    is_every: bool = False
    every: str = ""
    """The day of week of cron, ``*`` for each day; empty: not again and again."""
    offset: int | None = None
    weekday: int | None = None
    is_next: bool = False
    day: date | None = None
    day_and_month: tuple[int, int] | None = None
    clock: time | None = None
    part: time | None = None
    _steps: list[Callable[[], int]] = field(default_factory=list)

    def read(self) -> None:
        """Read as many words as belong to a time."""
        self._steps = [self._every, self._span, self._days, self._date, self._part, self._clock]
        while self.at < len(self.words):
            eaten = next((n for step in self._steps if (n := step())), 0)
            if not eaten:
                return
            self.at += eaten

    def _word(self, ahead: int = 0) -> str:
        at = self.at + ahead
        return self.words[at] if at < len(self.words) else ""

    @property
    def _has_day(self) -> bool:
        return (
            self.every != ""
            or (self.offset, self.weekday, self.day, self.day_and_month) != (None,) * 4
        )

    # -- steps: each returns how many words it has read, 0 if the next ones are not its own --------

    def _every(self) -> int:
        if self.at or self.every:
            return 0
        if self._word() in time_words.DAILY:
            self.every = "*"
            return 1
        if self._word() in time_words.WORKDAYS:
            self.every = "MON-FRI"
            return 1
        if self._word() not in time_words.EVERY:
            return 0
        following = self._word(1)
        if following in ("day", "tag", "tage"):
            self.every = "*"
        elif following in time_words.WORKDAYS:
            self.every = "MON-FRI"
        elif (day := time_words.weekday(following, "")) is not None:
            self.every = time_words.CRON_DAYS[day]
        else:
            self.is_every = True
            eaten = self._span_at(1)
            self.is_every = eaten > 0
            return eaten and eaten + 1
        return 2

    def _span(self) -> int:
        if self._has_day or self.clock or self.span_s is not None:
            return 0
        if self._word() == "in":
            eaten = self._span_at(1)
            return eaten and eaten + 1
        return self._span_at(0) if self._word()[:1].isdecimal() else 0

    def _span_at(self, ahead: int) -> int:
        """Read a length of time: ``2h``, ``1h30m``, ``90 minutes``, ``an hour``, ``half an hour``."""
        first, seconds, half, least = ahead, 0.0, 1.0, time_words.DAY_S
        while True:
            word = self._word(ahead)
            if word in ("and", "und") and ahead > first:
                ahead += 1
                continue
            if word in time_words.HALF or (
                word in time_words.ONE and self._word(ahead + 1) in time_words.HALF
            ):
                half = 0.5
                ahead += 1
                continue
            together, unit = time_words.together(word), time_words.UNITS.get(self._word(ahead + 1))
            if together is not None:
                seconds, least = seconds + together[0], min(least, together[1])
                ahead += 1
            elif unit is not None and (number := time_words.number(word)) is not None:
                seconds, least = seconds + number * unit * half, min(least, unit)
                ahead += 2
            elif half < 1 and word in time_words.UNITS:
                seconds, least = seconds + half * time_words.UNITS[word], 1
                ahead += 1
            else:
                break
            half = 1.0
        if not 0 < seconds <= MAX_DAYS * time_words.DAY_S:
            return 0
        if self._word(ahead) in ("and", "und"):
            return 0
        self.span_s, self.is_days = (
            seconds,
            least == time_words.DAY_S and seconds % time_words.DAY_S == 0,
        )
        return ahead - first

    def _days(self) -> int:
        ahead = 1 if self._word() in time_words.ON else 0
        word = self._word(ahead)
        if word == "day" and self.words[self.at + ahead : self.at + ahead + 3] == [
            "day",
            "after",
            "tomorrow",
        ]:
            return self._set_offset(2, ahead + 3)
        if word == "tonight" and not self._has_day:
            self.part = time_words.PARTS[word]
            return self._set_offset(0, ahead + 1)
        if word in time_words.DAYS and not self._has_day:
            return self._set_offset(time_words.DAYS[word], ahead + 1)
        following = self._word(ahead + 1)
        if word in time_words.NEXT and (day := time_words.weekday(following, "")) is not None:
            self.weekday, self.is_next = day, True
            return ahead + 2
        day = time_words.weekday(word, following)
        if day is not None and not self._has_day and self.span_s is None:
            self.weekday = day
            return ahead + 1
        return 0

    def _set_offset(self, days: int, eaten: int) -> int:
        if self._has_day or self.span_s is not None:
            return 0
        self.offset = days
        return eaten

    def _date(self) -> int:
        ahead = 1 if self._word() in time_words.ON else 0
        word = self._word(ahead)
        if self._has_day or self.span_s is not None:
            return 0
        if found := _ISO.fullmatch(word):
            self.day = time_words.date_of(*(int(each) for each in found.groups()[:3]))
            if found[4]:
                self.clock = time_words.time_of(int(found[4]), int(found[5]))
            return ahead + 1 if self.day else 0
        if found := _DOTTED.fullmatch(word):
            year = found[3] and int(found[3]) + (2000 if len(found[3]) == 2 else 0)
            if year:
                self.day = time_words.date_of(year, int(found[2]), int(found[1]))
                return ahead + 1 if self.day else 0
            return self._set_date(int(found[1]), int(found[2]), ahead + 1)
        following = self._word(ahead + 1)
        if (found := _DAY_OF_MONTH.fullmatch(word)) and following in time_words.MONTHS:
            return self._set_date(int(found[1]), time_words.MONTHS[following], ahead + 2)
        if word in time_words.MONTHS and (found := _DAY_OF_MONTH.fullmatch(following)):
            return self._set_date(int(found[1]), time_words.MONTHS[word], ahead + 2)
        return 0

    def _set_date(self, day: int, month: int, eaten: int) -> int:
        if time_words.date_of(2024, month, day) is None:
            return 0
        self.day_and_month = (day, month)
        return eaten

    def _part(self) -> int:
        ahead = (
            1 if self._word() in ("in", "this", "am") and self._word(1) in time_words.PARTS else 0
        )
        if self._word() == "in" and self._word(1) == "the" and self._word(2) in time_words.PARTS:
            ahead = 2
        word = self._word(ahead)
        is_after_day = self._has_day and word == "morgen"
        if self.part is not None or not (word in time_words.PARTS or is_after_day):
            return 0
        if not self._has_day:
            if word in ("früh", "night", "morning") or (ahead == 0 and not self.clock):
                return 0
            self.offset = 0 if self.clock is None else None
        self.part = time(8) if is_after_day else time_words.PARTS[word]
        return ahead + 1

    def _clock(self) -> int:
        if self.clock is not None or (self.span_s is not None and not self.is_days):
            return 0
        ahead = 1 if self._word() in time_words.AT else 0
        word, following = self._word(ahead), self._word(ahead + 1)
        is_said = ahead == 1 or self._has_day
        if word in time_words.PARTS and ahead and time_words.PARTS[word] == time(12):
            self.clock = time(12)
            return 2
        found, minute = _TIME.fullmatch(word), 0
        if found:
            minute, half = int(found[2]), found[3] or ""
        elif found := _HOUR.fullmatch(word):
            half = found[2] or ""
        else:
            return 0
        eaten = ahead + 1
        if (
            not half
            and following in time_words.CLOCK | {"am", "pm"}
            and not (following == "am" and self.german)
        ):
            half, eaten = following, eaten + 1
        if (
            half in time_words.CLOCK
            and not minute
            and _HOUR.fullmatch(word)
            and self._is_minute(eaten)
        ):
            minute, eaten = int(self._word(eaten)), eaten + 1
        if not (half or is_said or _TIME.fullmatch(word)):
            return 0
        self.clock = time_words.time_of(int(found[1]), minute, half)
        return eaten if self.clock is not None else 0

    def _is_minute(self, ahead: int) -> bool:
        word = self._word(ahead)
        return len(word) == 2 and word.isdecimal() and int(word) < 60

    # -- what it means -----------------------------------------------------------------------------

    def schedule(self, now: datetime, zone: str, day_time: time) -> tuple[NewSchedule, bool] | None:
        """The schedule that the words mean, and whether its time has passed; None if no time was
        read."""
        clock = self.clock or self.part or day_time
        if self.part is not None and self.part.hour > 12 and 0 < clock.hour < 12:
            clock = clock.replace(hour=clock.hour + 12)  # "tonight at 8"
        if self.is_every and self.span_s is not None:
            period = max(self.span_s, _MIN_EVERY_S)
            return NewSchedule(every_s=period, zone=zone), False
        if self.every:
            cron = f"{clock.minute} {clock.hour} * * {self.every}"
            return NewSchedule(cron=cron, zone=zone), False
        if self.span_s is not None:
            return self._after_span(now, zone)
        if not self._has_day and self.clock is None:
            return None
        when = self._when(now, clock)
        if when is None or not -1 <= (when.date() - now.date()).days <= MAX_DAYS:
            return None if when is None else (NewSchedule(), True)
        return _at(when, zone), _real(when) <= now

    def _after_span(self, now: datetime, zone: str) -> tuple[NewSchedule, bool]:
        assert self.span_s is not None
        if self.is_days:
            when = now.replace(tzinfo=None) + timedelta(seconds=self.span_s)
            if self.clock is not None:
                when = datetime.combine(when.date(), self.clock)
            return _at(when.replace(tzinfo=now.tzinfo, microsecond=0), zone), False
        when = (now.astimezone(UTC) + timedelta(seconds=self.span_s)).astimezone(now.tzinfo)
        return _at(when, zone), False

    def _when(self, now: datetime, clock: time) -> datetime | None:
        def on(day: date) -> datetime:
            return datetime.combine(day, clock, now.tzinfo)

        today = now.date()
        if self.day is not None:
            return on(self.day)
        if self.day_and_month is not None:
            day, month = self.day_and_month
            years = (time_words.date_of(today.year + more, month, day) for more in range(9))
            return next((on(each) for each in years if each and _real(on(each)) > now), None)
        if self.offset is not None:
            return on(today + timedelta(days=self.offset))
        if self.weekday is not None:
            ahead = (self.weekday - today.weekday()) % 7
            if ahead == 0 and (self.is_next or _real(on(today)) <= now):
                ahead = 7
            return on(today + timedelta(days=ahead))
        return on(today if _real(on(today)) > now else today + timedelta(days=1))


def _real(when: datetime) -> datetime:
    """A local time as an instant that exists: one in a gap of the clocks is after the gap."""
    return when.astimezone(UTC).astimezone(when.tzinfo)


def _at(when: datetime, zone: str) -> NewSchedule:
    return NewSchedule(at=_real(when).isoformat(timespec="milliseconds"), zone=zone)
