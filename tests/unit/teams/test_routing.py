"""Ranking for a capability: the order of the reasons, and who is out."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsup.teams.routing import Candidate, Match, Ranking, heartbeat_band, rank

ANN = Candidate("a1", "ann", ("code", "review"), load=3, registered_at=1)
BEN = Candidate("a2", "ben", ("Code",), load=1, registered_at=2)
CAT = Candidate("a3", "cat", ("code",), load=1, registered_at=3)


def names(ranking: Ranking) -> list[str]:
    return [place.name for place in ranking.ranked]


def test_overlap_counts_before_load_and_load_before_all_else() -> None:
    assert names(rank(["code", "review"], [CAT, BEN, ANN], Match.ANY)) == ["ann", "ben", "cat"]
    assert names(rank(["CODE "], [CAT, BEN, ANN], Match.ANY)) == ["ben", "cat", "ann"]
    assert names(rank(["code", "review"], [CAT, BEN, ANN], Match.ALL)) == ["ann"]


def test_among_equals_a_fresh_heartbeat_and_then_the_earlier_one() -> None:
    late = replace(BEN, heartbeat_age_s=20.0)
    silent = replace(CAT, heartbeat_age_s=None, registered_at=0)
    young = replace(CAT, agent_id="a4", name="dan", heartbeat_age_s=9.9)
    assert names(rank(["code"], [silent, late, young], Match.ANY)) == ["dan", "ben", "cat"]
    assert names(rank(["code"], [CAT, replace(BEN, heartbeat_age_s=9.0)], Match.ANY)) == [
        "ben",
        "cat",
    ]
    assert [heartbeat_band(age) for age in (0.0, 10.0, 10.1, 30.0, 30.1, None)] == [
        0,
        0,
        1,
        1,
        2,
        2,
    ]


def test_who_is_out_is_told_why() -> None:
    open_one = replace(BEN, breaker_wait_s=12.3)
    down = replace(CAT, why_not="is failed: no model")
    other = Candidate("a5", "eve", ("cook",))
    found = rank(["code"], [open_one, down, other, ANN], Match.ANY)
    assert names(found) == ["ann"]
    assert {place.name: place.reason for place in found.out} == {
        "ben": "failed several times in a row and is left alone for 12 s",
        "cat": "is failed: no model",
        "eve": "can't do code",
    }
    assert found.ranked[0].reason == "1 of 1 (code), 3 open"
    assert Ranking.from_json(found.to_json()) == found


@pytest.mark.parametrize("match", Match)
def test_without_a_need_everyone_is_ranked_by_load(match: Match) -> None:
    assert names(rank([], [ANN, BEN, CAT], match)) == ["ben", "cat", "ann"]


candidate = st.builds(
    Candidate,
    agent_id=st.uuids().map(str),
    name=st.sampled_from(["ann", "ben", "cat"]),
    capabilities=st.lists(st.sampled_from(["code", "cook", "sing"]), max_size=3).map(tuple),
    load=st.integers(0, 3),
    heartbeat_age_s=st.none() | st.floats(0, 60),
    registered_at=st.integers(0, 3),
    breaker_wait_s=st.sampled_from([0.0, 5.0]),
    why_not=st.sampled_from(["", "is stopped"]),
)


@given(st.lists(candidate, max_size=8, unique_by=lambda each: each.agent_id), st.randoms())
def test_the_order_of_the_candidates_does_not_matter_and_none_is_lost(
    candidates: list[Candidate], chance: object
) -> None:
    shuffled = list(candidates)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]  # a random.Random
    found = rank(["code", "sing"], candidates, Match.ANY)
    again = rank(["code", "sing"], shuffled, Match.ANY)
    assert found.ranked == again.ranked
    assert len(found.ranked) + len(found.out) == len(candidates)
    assert all(place.reason for place in (*found.ranked, *found.out))
