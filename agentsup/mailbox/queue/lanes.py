"""The choice of the next message: pure rules over the heads of an agent's sessions.

Messages of a session run in strict order. A session has the best level among its open messages; the
level gets better with age. Within a level, first come, first served. Lanes have their own slots.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agentsup.model.message import LaneName

LEVEL_SQL = "MAX(0, priority - MAX(0, :now - accepted_at) / :aging)"
"""The priority after waiting, with ``:aging`` = ``AGING_MS``: one level better per half hour, never
better than 0."""


@dataclass(frozen=True, slots=True)
class SessionHead:
    """The message that a session would run next."""

    seq: int
    session_id: str
    lane: LaneName
    level: int


def pick(heads: Iterable[SessionHead], free: Mapping[LaneName, int]) -> list[SessionHead]:
    """Those of ``heads`` that may start now, by level, then age; at most ``free`` per lane.

    ``heads`` has one message per session, in any order: of sessions that no message holds, and
    whose ``not_before`` has come.
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
