"""Who runs next: aging, levels, lanes and positions, without a database."""

import sqlite3

from hypothesis import given
from hypothesis import strategies as st

from agentsup.mailbox.lanes import LEVEL_SQL, Head, Waiting, aged_level, ahead_of, pick
from agentsup.mailbox.pace import Pace, eta_s
from agentsup.model.message import AGING_MS, Lane

LANES = st.sampled_from(list(Lane))
TIMES = st.integers(-10 * AGING_MS, 10 * AGING_MS)


def test_a_message_gains_one_level_per_half_hour_and_never_passes_critical() -> None:
    levels = [aged_level(3, 0, minutes * 60_000) for minutes in (0, 29, 30, 59, 60, 90, 900)]
    assert levels == [3, 3, 2, 2, 1, 0, 0]


@given(st.integers(0, 3), TIMES, TIMES)
def test_sql_ages_like_the_rule(priority: int, accepted_at: int, now: int) -> None:
    with sqlite3.connect(":memory:") as connection:
        (level,) = connection.execute(
            f"SELECT {LEVEL_SQL} FROM (SELECT :priority AS priority, :accepted_at AS accepted_at)",
            {"priority": priority, "accepted_at": accepted_at, "now": now, "aging": AGING_MS},
        ).fetchone()
    connection.close()
    assert level == aged_level(priority, accepted_at, now)


HEADS = st.lists(
    st.builds(
        Head,
        seq=st.integers(1, 10_000),
        session_id=st.text("abc", min_size=1, max_size=3),
        lane=LANES,
        level=st.integers(0, 3),
    ),
    unique_by=lambda head: head.seq,
    max_size=40,
)


@given(HEADS, st.dictionaries(LANES, st.integers(0, 5)))
def test_picks_are_the_best_of_each_lane(heads: list[Head], free: dict[Lane, int]) -> None:
    chosen = pick(heads, free)
    assert chosen == sorted(chosen, key=lambda head: (head.level, head.seq))
    for lane in Lane:
        ranked = sorted((h for h in heads if h.lane is lane), key=lambda h: (h.level, h.seq))
        assert [h for h in chosen if h.lane is lane] == ranked[: free.get(lane, 0)]


def test_a_session_counts_with_its_best_level() -> None:
    low_first = Waiting(1, "s1", 3, 0)
    critical_behind = Waiting(2, "s1", 0, 0)
    normal = Waiting(3, "s2", 2, 0)
    rows = [low_first, critical_behind, normal]
    assert [ahead_of(row, rows, now=0) for row in rows] == [0, 1, 2]


def test_eta_is_position_plus_one_times_mean_by_slots() -> None:
    pace = Pace()
    assert eta_s(3, pace.mean_s("ann"), 2) is None
    pace.sample("ann", 10.0)
    assert eta_s(3, pace.mean_s("ann"), 2) == 20.0
    pace.sample("ann", 20.0)
    assert pace.mean_s("ann") == 12.0
    pace.seed("ann", 99.0)
    assert pace.mean_s("ann") == 12.0
