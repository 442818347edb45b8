"""The times of a schedule, and what to do with those that have passed. Pure.

The times of a schedule, its occurrences, are a fixed set of instants. ``every`` counts real seconds
from its anchor, also across clock changes. ``cron`` is read in the schedule's zone as by Debian's cron:
a fixed time of day that the change to summer time skips comes at the first minute after the gap;
one that the change back repeats comes at its first occurrence; with a star for the minute or the
hour, every real minute counts.
"""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from importlib import resources
from itertools import count, islice, takewhile
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from agentsup.model.errors import BadRequest
from agentsup.model.task import Misfire, NewSchedule, Schedule

GRACE_MS = 60_000
"""The largest delay with which a run may start without its occurrence counting as missed."""
LISTED_MAX = 100
"""The most occurrences that are decided one by one; the occurrences before them are one range."""
REWOUND_MS = 3 * 3_600_000
"""A schedule whose last occurrence is this far ahead of now was run by a wrong clock."""
MIN_EVERY_S = 1.0
MAX_EVERY_S = 10 * 366 * 86_400.0
MIN_YEAR, MAX_YEAR = 1900, 9000
MAX_TEXT = 200
SHOWN_NEXT = 3

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_EXAMPLES = "at '2026-12-24T18:00', every 3600 seconds, or cron '30 8 * * MON-FRI'"
_CRON_FORM = (
    "write minute, hour, day of month, month and day of week, for instance '30 8 * * MON-FRI'"
)
_NAMED = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


@dataclass(frozen=True, slots=True)
class DueOccurrences:
    """The decision about the occurrences up to now: each occurrence is in exactly one field, in order.

    ``range_at`` is the first of a range of occurrences before ``range_end`` that are skipped together,
    because they are too many to be recorded one by one.
    """

    run_at: tuple[int, ...]
    skipped_at: tuple[int, ...]
    next_at: int | None
    range_at: int | None = None
    range_end: int = 0
    is_made_up: bool = False
    """``run_at`` are missed occurrences that are each wanted: their runs are queued."""

    @property
    def last_at(self) -> int | None:
        """The latest occurrence that this decides about; None if nothing is due."""
        return max((*self.run_at, *self.skipped_at), default=None)


# -- parsing -------------------------------------------------------------------------------------


def parse(new: NewSchedule, task_id: str, *, now_ms: int, zone: str) -> Schedule:
    """The schedule of a task from ``new``, written at ``now_ms``.

    Times without an offset are in the zone of ``new``; if it has none, in ``zone`` (an IANA name).
    Raises ``BadRequest`` whose fact ``field`` is ``schedule``, ``at``, ``every_s``, ``cron`` or
    ``zone``.
    """
    given = [bool(new.at.strip()), new.every_s is not None, bool(new.cron.strip())]
    if sum(given) != 1:
        many = "none" if not any(given) else f"{sum(given)} of them"
        raise BadRequest(
            f"a schedule has exactly one of at, every and cron, and {many} is given; "
            f"for instance {_EXAMPLES}",
            field="schedule",
        )
    zone = new.zone.strip() or zone
    zone_of(zone)
    if given[0]:
        kind, (spec, anchor_at) = "at", _parse_at(new.at.strip(), zone, now_ms)
    elif new.every_s is not None:
        kind, spec, anchor_at = "every", _parse_every(new.every_s), now_ms
    else:
        kind, spec, anchor_at = "cron", _parse_cron(new.cron, now_ms), now_ms
    schedule = Schedule(
        task_id, kind, spec, zone, new.misfire, new.overlap, anchor_at, next_at=None, last_at=None
    )
    next_at = next_after(schedule, now_ms)
    if next_at is None:
        raise BadRequest(f"cron {spec!r} never comes; {_CRON_FORM}", field="cron")
    return replace(schedule, next_at=next_at)


def _parse_at(text: str, zone: str, now_ms: int) -> tuple[str, int]:
    form = "write date and time, for instance '2026-12-24T18:00' or '2026-12-24T18:00+01:00'"
    try:
        when = datetime.fromisoformat(text) if len(text) <= MAX_TEXT else None
    except ValueError:
        when = None
    has_time = len(text.replace(" ", "T").partition("T")[2]) >= len("00")
    # Near the ends of the calendar an offset would give a year that datetime does not have.
    if when is None or not has_time or not MIN_YEAR <= when.year <= MAX_YEAR:
        lacks = "lacks the time of day" if when is not None and not has_time else ""
        problem = lacks or "is no date and time"
        raise BadRequest(f"at {text[:MAX_TEXT]!r} {problem}; {form}", field="at")
    if when.tzinfo is None:
        when = when.replace(tzinfo=zone_of(zone))
        there_and_back = when.astimezone(UTC).astimezone(when.tzinfo)
        if there_and_back.replace(tzinfo=None) != when.replace(tzinfo=None):
            raise BadRequest(
                f"at {text!r} does not exist in {zone}: the clocks are put forward over it; "
                "take a time after that, or write it with an offset",
                field="at",
            )
    at = _to_ms(when)
    if at <= now_ms:
        raise BadRequest(
            f"at {text!r} is past: it is {local_time(now_ms, zone)} now in {zone}; {form}",
            field="at",
        )
    return local_time(at, zone), at


def _parse_every(every_s: float) -> str:
    if not math.isfinite(every_s) or not MIN_EVERY_S <= every_s <= MAX_EVERY_S:
        raise BadRequest(
            f"every {every_s:g} s can't be kept: between 1 s and ten years, for instance 3600 "
            "for every hour",
            field="every_s",
        )
    return f"{round(every_s * 1000) / 1000:.15g}"


def _parse_cron(text: str, now_ms: int) -> str:
    spec = _NAMED.get(text.strip().lower(), " ".join(text.split()))
    if len(spec) > MAX_TEXT or len(spec.split()) != 5:
        raise BadRequest(
            f"cron {spec[:MAX_TEXT]!r} has {len(spec.split())} fields, not five; {_CRON_FORM}",
            field="cron",
        )
    try:
        CronSim(spec, _to_local(now_ms, "UTC"))
    except CronSimError as error:
        reason = str(error).lower().replace("-", " ")
        raise BadRequest(f"cron {spec!r}: {reason}; {_CRON_FORM}", field="cron") from error
    return spec.upper()


# -- the times -----------------------------------------------------------------------------------


def next_after(schedule: Schedule, after_ms: int) -> int | None:
    """The first occurrence later than ``after_ms``, or None if there will be none.

    It ignores pauses and which occurrences were run already.
    """
    return next(_occurrences(schedule, after_ms), None)


def _occurrences(schedule: Schedule, after_ms: int) -> Iterator[int]:
    """All occurrences later than ``after_ms``, in order."""
    match schedule.kind:
        case "at":
            return iter((schedule.anchor_at,) if schedule.anchor_at > after_ms else ())
        case "every":
            period = _period_ms(schedule)
            number = (after_ms - schedule.anchor_at) // period + 1
            return count(schedule.anchor_at + number * period, period)
        case _:
            return _cron(schedule, after_ms)


def _cron(schedule: Schedule, after_ms: int) -> Iterator[int]:
    last = after_ms
    for when in CronSim(schedule.spec, _to_local(after_ms, schedule.zone)):
        # CronSim may give a fixed time twice when clocks go forward, and again when they go back.
        occurrence = _to_ms(when)
        if occurrence > last:
            yield occurrence
            last = occurrence


def _period_ms(schedule: Schedule) -> int:
    return round(float(schedule.spec) * 1000)


# -- what is due ---------------------------------------------------------------------------------


def due(schedule: Schedule, now_ms: int, *, grace_ms: int = GRACE_MS) -> DueOccurrences:
    """Decide about all occurrences from ``schedule.next_at`` up to ``now_ms`` by its misfire policy.

    An occurrence is missed if it is more than ``grace_ms`` late, or if a later one has come as well.
    ``once`` runs only the latest occurrence, for all of them; ``skip`` runs the latest one unless it is
    late; ``all`` runs each. Only the latest 100 are decided one by one.
    """
    first = schedule.next_at
    if first is None or first > now_ms:
        return DueOccurrences((), (), first)
    listed, range_at = _passed(schedule, first, now_ms)
    is_late = now_ms - listed[-1] > grace_ms
    match schedule.misfire:
        case Misfire.ALL:
            run_at = listed
        case Misfire.SKIP if is_late:
            run_at = ()
        case _:
            run_at = listed[-1:]
    return DueOccurrences(
        run_at=run_at,
        skipped_at=listed[: len(listed) - len(run_at)],
        next_at=next_after(schedule, now_ms),
        range_at=range_at,
        range_end=0 if range_at is None else listed[0],
        is_made_up=schedule.misfire is Misfire.ALL and (is_late or len(run_at) > 1),
    )


def _passed(schedule: Schedule, first: int, now_ms: int) -> tuple[tuple[int, ...], int | None]:
    """The latest occurrences from ``first`` to ``now_ms``, and ``first`` if there are more."""
    # The stored occurrence counts even if the rules of its zone have changed since.
    listed = (first, *_some(schedule, first, now_ms, LISTED_MAX))
    if len(listed) <= LISTED_MAX:
        return listed, None
    low, high = first, now_ms  # after ``low`` there are enough occurrences, after ``high`` too few
    while True:
        middle = (low + high) // 2
        found = _some(schedule, middle, now_ms, 2 * LISTED_MAX)
        if LISTED_MAX <= len(found) < 2 * LISTED_MAX:
            return found[-LISTED_MAX:], first
        if len(found) < LISTED_MAX:
            high = middle
        else:
            low = middle


def _some(schedule: Schedule, after_ms: int, until_ms: int, most: int) -> tuple[int, ...]:
    in_range = takewhile(lambda at: at <= until_ms, _occurrences(schedule, after_ms))
    return tuple(islice(in_range, most))


def is_rewound(schedule: Schedule, now_ms: int) -> bool:
    """Whether it was run, or created, by a clock that was hours ahead of ``now_ms``.

    Its next time must be computed again then. After a smaller step back, the next time is just
    waited for.
    """
    stored_at = schedule.last_at
    if stored_at is None and schedule.kind != "at":
        stored_at = schedule.anchor_at
    return stored_at is not None and stored_at > now_ms + REWOUND_MS


# -- for people ----------------------------------------------------------------------------------


def describe(schedule: Schedule) -> dict[str, Any]:
    """The schedule as plain data, with its next three times in ms and as local time with offset."""
    upcoming: tuple[int, ...] = ()
    if schedule.next_at is not None and not schedule.is_paused:
        later = islice(_occurrences(schedule, schedule.next_at), SHOWN_NEXT - 1)
        upcoming = (schedule.next_at, *later)
    return {
        "kind": schedule.kind,
        "spec": schedule.spec,
        "zone": schedule.zone,
        "misfire": schedule.misfire.value,
        "overlap": schedule.overlap.value,
        "is_paused": schedule.is_paused,
        "last_at": schedule.last_at,
        "next_at": upcoming[0] if upcoming else None,
        "next_times": list(upcoming),
        "next_local": [local_time(occurrence, schedule.zone) for occurrence in upcoming],
    }


def local_time(at: int, zone: str) -> str:
    """The instant ``at`` (ms) as ISO 8601 in ``zone``, with its offset."""
    return _to_local(at, zone).isoformat(timespec="seconds" if at % 1000 == 0 else "milliseconds")


def _to_local(at: int, zone: str) -> datetime:
    return (_EPOCH + at * _MS).astimezone(zone_of(zone))


def _to_ms(when: datetime) -> int:
    return (when - _EPOCH) // _MS


# -- zones ---------------------------------------------------------------------------------------

UTC_NAME = "UTC"
_LOCALTIME = Path("/etc/localtime")
_FOLDER = "/zoneinfo/"


def zone_of(name: str) -> ZoneInfo:
    """The zone called ``name``. Raises ``BadRequest`` (field ``zone``) if there is none.

    Only IANA names are accepted, not other files of a machine's zones (``localtime``, ``posix/…``).
    """
    if name not in _names():
        meant = _meant(name)
        hint = f"did you mean {meant!r}?" if meant else "write it as in 'Europe/Zurich' or 'UTC'"
        raise BadRequest(f"there is no time zone {name!r}; {hint}", field="zone")
    return ZoneInfo(name)


def machine_zone(env: Mapping[str, str] | None = None, localtime: Path = _LOCALTIME) -> str:
    """The name of the machine's zone: from ``TZ``, else from ``/etc/localtime``, else UTC.

    A zone that has rules but no name (a copied file, ``TZ=CET-1CEST``) counts as UTC. Schedules
    store the name, because the rules behind a name change with each release of the zone data.
    """
    hint = (os.environ if env is None else env).get("TZ", "").removeprefix(":")
    if hint in _names():
        return hint
    try:
        found = os.lstat(localtime)
    except OSError:
        return UTC_NAME
    return _zone_behind(localtime, found.st_ino, found.st_mtime_ns)


@lru_cache(maxsize=8)
def _zone_behind(localtime: Path, _inode: int, _changed_ns: int) -> str:
    """The zone that a file names by where it leads. Each turn asks, so it is kept until it changes."""
    # The link's first target has the chosen name; its last may be another name for the same rules.
    first = str(localtime.readlink()) if localtime.is_symlink() else ""
    for step in (first, os.path.realpath(localtime)):
        name = step.partition(_FOLDER)[2]
        if name in _names():
            return name
    return UTC_NAME


@cache
def _names() -> frozenset[str]:
    listed = resources.files("tzdata").joinpath("zones").read_text(encoding="ascii")
    return frozenset(listed.split())


def _meant(name: str) -> str:
    lowered = {known.lower(): known for known in sorted(_names())}
    wanted = name.strip().lower().replace(" ", "_")
    cities = {known.rpartition("/")[2]: real for known, real in lowered.items()}
    if wanted in lowered:
        return lowered[wanted]
    if wanted in cities:
        return cities[wanted]
    close = difflib.get_close_matches(wanted, lowered, n=1, cutoff=0.75)
    return lowered[close[0]] if close else ""
