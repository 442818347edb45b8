"""Who runs next: aging, levels, lanes and positions, without a database."""

from __future__ import annotations

import sqlite3

from hypothesis import given
from hypothesis import strategies as st

from agentsup.mailbox.lifecycle.claim import LEVEL_SQL, SessionHead, pick
from agentsup.mailbox.messages.loads import TurnDurations, eta_s
from agentsup.model.message import AGING_MS, LaneName

LANES = st.sampled_from(list(LaneName))
TIMES = st.integers(-10 * AGING_MS, 10 * AGING_MS)


def aged_level(priority: int, accepted_at: int, now: int) -> int:
    with sqlite3.connect(":memory:") as connection:
        (level,) = connection.execute(
            f"SELECT {LEVEL_SQL} FROM (SELECT :priority AS priority, :accepted_at AS accepted_at)",
            {"priority": priority, "accepted_at": accepted_at, "now": now, "aging": AGING_MS},
        ).fetchone()
    connection.close()
    return int(level)


def test_a_message_gains_one_level_per_half_hour_and_never_passes_critical() -> None:
    levels = [aged_level(3, 0, minutes * 60_000) for minutes in (0, 29, 30, 59, 60, 90, 900)]
    assert levels == [3, 3, 2, 2, 1, 0, 0]


@given(st.integers(0, 3), TIMES, TIMES)
def test_a_level_is_the_priority_less_the_half_hours(
    priority: int, accepted_at: int, now: int
) -> None:
    waited = max(0, now - accepted_at)
    assert aged_level(priority, accepted_at, now) == max(0, priority - waited // AGING_MS)


HEADS = st.lists(
    st.builds(
        SessionHead,
        seq=st.integers(1, 10_000),
        session_id=st.text("abc", min_size=1, max_size=3),
        lane=LANES,
        level=st.integers(0, 3),
    ),
    unique_by=lambda head: head.seq,
    max_size=40,
)


@given(HEADS, st.dictionaries(LANES, st.integers(0, 5)))
def test_picks_are_the_best_of_each_lane(
    heads: list[SessionHead], free: dict[LaneName, int]
) -> None:
    chosen = pick(heads, free)
    assert chosen == sorted(chosen, key=lambda head: (head.level, head.seq))
    for lane in LaneName:
        ranked = sorted((h for h in heads if h.lane is lane), key=lambda h: (h.level, h.seq))
        assert [h for h in chosen if h.lane is lane] == ranked[: free.get(lane, 0)]


def test_eta_is_position_plus_one_times_mean_by_slots() -> None:
    pace = TurnDurations()
    assert eta_s(3, pace.mean_s("ann"), 2) is None
    pace.sample("ann", 10.0)
    assert eta_s(3, pace.mean_s("ann"), 2) == 20.0
    pace.sample("ann", 20.0)
    assert pace.mean_s("ann") == 12.0
    pace.seed("ann", 99.0)
    assert pace.mean_s("ann") == 12.0
