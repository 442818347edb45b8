"""Who runs next: pure rules over the heads of an agent's sessions.

Strict order within a session; a session stands at the highest level among its open messages; the
level rises with age; first come, first served within a level; lanes have slots of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agentsup.model.message import AGING_MS, Lane

__all__ = ["LEVEL_SQL", "Head", "Waiting", "aged_level", "ahead_of", "pick"]

LEVEL_SQL = "MAX(0, priority - MAX(0, :now - accepted_at) / :aging)"
"""`aged_level` for SQL, with `:aging` = ``AGING_MS``; a test holds the two equal."""


@dataclass(frozen=True, slots=True)
class Head:
    """The message that a session would run next."""

    seq: int
    session_id: str
    lane: Lane
    level: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """A queued message, for the computation of positions."""

    seq: int
    session_id: str
    priority: int
    accepted_at: int


def aged_level(priority: int, accepted_at: int, now: int) -> int:
    """The priority after waiting: one level better per half hour, never better than 0."""
    return max(0, priority - max(0, now - accepted_at) // AGING_MS)


def pick(heads: Iterable[Head], free: Mapping[Lane, int]) -> list[Head]:
    """Those of ``heads`` that may start now, in order of level, then age; at most ``free`` a lane.

    ``heads`` holds one message per session whose session is not held and whose time has come, in
    any order.
    """
    left = {lane: count for lane, count in free.items() if count > 0}
    chosen = []
    for head in sorted(heads, key=lambda head: (head.level, head.seq)):
        if not left:
            break
        if head.lane in left:
            chosen.append(head)
            left[head.lane] -= 1
            if not left[head.lane]:
                del left[head.lane]
    return chosen


def ahead_of(own: Waiting, waiting: Iterable[Waiting], now: int) -> int:
    """How many of ``waiting`` (the agent's queued messages) are to run before ``own``.

    A whole session stands at its best level, so a message counts as ahead if it is earlier in the
    same session, or if its session's level, then its own age, comes first.
    """
    rows = list(waiting)
    levels: dict[str, int] = {}
    for row in rows:
        level = aged_level(row.priority, row.accepted_at, now)
        levels[row.session_id] = min(level, levels.get(row.session_id, level))
    own_level = levels.get(own.session_id, aged_level(own.priority, own.accepted_at, now))
    return sum(
        (levels[row.session_id], row.seq) < (own_level, own.seq)
        for row in rows
        if row.seq != own.seq
    )
