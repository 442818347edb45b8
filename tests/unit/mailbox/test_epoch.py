"""Stop epochs: counters that only grow, and what a stop under way covers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agentsup.mailbox.messages.epoch import EpochMap, scopes_of

SCOPES = st.sampled_from(["all", "agent:ann", "session:s1"])


@given(st.lists(st.tuples(SCOPES, st.integers(0, 50))))
def test_merging_is_by_maximum_in_any_order(told: list[tuple[str, int]]) -> None:
    straight, shuffled = EpochMap(), EpochMap()
    for scope, counter in told:
        straight.merge(scope, counter)
    for scope, counter in sorted(told, key=lambda item: -item[1]):
        shuffled.merge(scope, counter)
    for scope in scopes_of("ann", "s1"):
        assert straight.current(scope) == shuffled.current(scope)
        assert straight.current(scope) == max((c for s, c in told if s == scope), default=0)


def test_a_stop_under_way_covers_its_scope_until_it_is_written() -> None:
    epochs = EpochMap()
    assert not epochs.stops("ann", "s1", 0)
    assert epochs.raise_now("agent:ann") == 1
    assert epochs.stops("ann", "s1", 10**15)
    assert not epochs.stops("ben", "s2", 0)
    epochs.written("agent:ann", 1)
    assert not epochs.stops("ann", "s1", 0)
    assert epochs.raise_now("agent:ann") == 2


def test_a_stop_that_could_not_be_written_covers_only_what_was_accepted_before_it() -> None:
    epochs = EpochMap()
    epochs.raise_now("all")
    epochs.not_written("all", 1000)
    assert epochs.unwritten == {"all": (1000, None)}
    assert epochs.stops("ann", "s1", 1000)
    assert not epochs.stops("ann", "s1", 1001)
    epochs.written("all", 1)
    assert not epochs.stops("ann", "s1", 1000)


def test_the_written_counter_may_be_above_the_one_raised() -> None:
    epochs = EpochMap()
    epochs.raise_now("all")
    epochs.written("all", 7)
    assert epochs.current("all") == 7
    assert epochs.raise_now("all") == 8
