"""The documented rates, counted by the server itself: who exceeded what, and how far.

``count`` mode only counts; ``enforce`` mode answers 429 and lengthens the wait when the client goes on.
Counts live in memory: they are about the load of one run, on the loop's clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from agentsup.fakes.telegram.rules import LIMITS, RATES, Rate

MODES = ("count", "enforce")


@dataclass(slots=True)
class _Bucket:
    """One rate for one chat or bot."""

    rate: Rate
    times: deque[float] = field(default_factory=deque)
    level: float = 0.0
    at: float = 0.0
    most: int = 0
    total: int = 0
    exceeded: int = 0

    def wait_s(self, now: float, weight: int) -> float:
        """Seconds that a call must wait now; 0 if it may pass."""
        rate = self.rate
        span = rate.span_s - rate.slack_s
        if rate.burst:
            drained = max(0.0, self.level - (now - self.at) * rate.count / span)
            over = drained + weight - rate.burst
            return max(0.0, over * span / rate.count) if drained > 0 else 0.0
        while self.times and self.times[0] <= now - span:
            self.times.popleft()
        free = rate.count - len(self.times)
        if weight <= free or not self.times:
            return 0.0
        return max(0.0, self.times[min(weight - free, len(self.times)) - 1] + span - now)

    def add(self, now: float, weight: int) -> None:
        """Count a call."""
        span = self.rate.span_s - self.rate.slack_s
        self.level = max(0.0, self.level - (now - self.at) * self.rate.count / span) + weight
        self.at = now
        while self.times and self.times[0] <= now - span:
            self.times.popleft()
        self.times.extend([now] * weight)
        self.most = max(self.most, len(self.times))
        self.total += weight


class Limits:
    """Buckets per bot and chat."""

    def __init__(self, mode: str = "count") -> None:
        """``mode`` is count or enforce."""
        self.mode = mode
        self._buckets: dict[tuple[str, str], _Bucket] = {}
        self._paused: dict[str, tuple[float, int]] = {}
        self.hammered = 0
        self.refused = 0
        self.calls: dict[str, int] = {}

    def note(self, method: str) -> None:
        """Count a call of any kind by method."""
        self.calls[method] = self.calls.get(method, 0) + 1

    def check(
        self, *, bot: str, chat: str, is_group: bool, counts_as: str, weight: int, now: float
    ) -> int:
        """Count a call; returns the seconds of a 429, or 0 to let it pass."""
        bucket_key = f"{bot} {chat}"
        kind = "group" if is_group else "private"
        touched = []
        for rate in RATES:
            if counts_as in rate.counts and rate.scope in {kind, "bot"}:
                scope = bot if rate.scope == "bot" else bucket_key
                key = (rate.name, scope)
                touched.append(self._buckets.setdefault(key, _Bucket(rate)))
        waits = [bucket.wait_s(now, weight) for bucket in touched]
        for bucket, wait in zip(touched, waits, strict=True):
            bucket.exceeded += wait > 0
        if touched and self.mode == "enforce":
            penalty = self._penalty(_keys(bot, chat, counts_as), max(waits), now)
            if penalty:
                self.refused += 1
                return penalty
        for bucket in touched:
            bucket.add(now, weight)
        return 0

    def pause(self, bot: str, chat: str, counts_as: str, seconds: float, now: float) -> None:
        """Remember that a 429 was answered, to see whether the client obeys."""
        self._paused[_keys(bot, chat, counts_as)[0]] = (now + seconds, int(seconds))

    def obey(self, bot: str, chat: str, counts_as: str, now: float) -> None:
        """Note a message or an edit that comes although it was told to wait. Of other calls several
        may be under way when the first is refused."""
        if counts_as not in {"send", "edit"}:
            return
        if now < self._latest(_keys(bot, chat, counts_as))[0] - 0.05:
            self.hammered += 1

    def _latest(self, keys: Sequence[str]) -> tuple[float, int]:
        return max(self._paused.get(key, (0.0, 0)) for key in keys)

    def _penalty(self, keys: Sequence[str], wait_s: float, now: float) -> int:
        until, last_s = self._latest(keys)
        if now < until - 0.05:
            grown = min(LIMITS["retry_after_max_s"], max(ceil(until - now), ceil(last_s * 1.5)))
            self._paused[keys[0]] = (now + grown, grown)
            return grown
        if wait_s <= 0:
            return 0
        seconds = max(1, ceil(wait_s))
        self._paused[keys[0]] = (now + seconds, seconds)
        return seconds

    def reset(self) -> dict[str, Any]:
        """Begin a new count."""
        self._buckets.clear()
        self._paused.clear()
        self.calls.clear()
        self.hammered = self.refused = 0
        return {}

    def report(self) -> dict[str, Any]:
        """Totals and maxima by rate and chat; ``exceeded`` lists only what went over."""
        rows = [
            {
                "rate": bucket.rate.name,
                "place": key,
                "total": bucket.total,
                "most_in_span": bucket.most,
                "span_s": bucket.rate.span_s,
                "allowed": bucket.rate.count + bucket.rate.burst,
                "exceeded": bucket.exceeded,
            }
            for (_, key), bucket in self._buckets.items()
        ]
        return {
            "mode": self.mode,
            "calls": dict(self.calls),
            "rates": rows,
            "exceeded": [row for row in rows if row["exceeded"]],
            "refused": self.refused,
            "hammered": self.hammered,
        }


def _keys(bot: str, chat: str, counts_as: str) -> tuple[str, ...]:
    """Under which names a pause holds for such a call, its own first.

    A pause asked of messages is one of the chat, so edits obey it too; one asked of edits is
    theirs alone, but for groups, which count both together. What is neither has its own.
    """
    key = f"{bot} {chat}"
    if counts_as == "send" or (counts_as == "edit" and chat.startswith("-")):
        return (key,)
    own = f"{key} {counts_as}"
    return (own, key) if counts_as == "edit" else (own,)
