"""Ranking for a capability: the order of the reasons, and who is out."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsup.agents.delegation.ranking import (
    Candidate,
    Candidates,
    Match,
    Ranking,
    RouteQuery,
    RouteSnapshot,
    best,
    heartbeat_band,
)
from agentsup.agents.delegation.ranking import rank as ranked


@dataclass(frozen=True, slots=True)
class Agent:
    """A candidate with its load and its breaker."""

    agent_id: str
    name: str
    capabilities: tuple[str, ...] = ()
    load: int = 0
    heartbeat_age_s: float | None = 0.0
    registered_at: int = 0
    breaker_wait_s: float = 0.0
    why_not: str = ""


ANN = Agent("a1", "ann", ("code", "review"), load=3, registered_at=1)
BEN = Agent("a2", "ben", ("Code",), load=1, registered_at=2)
CAT = Agent("a3", "cat", ("code",), load=1, registered_at=3)


def snapshot_of(agents: list[Agent]) -> RouteSnapshot:
    return RouteSnapshot.of(
        Candidates.of(
            Candidate(
                each.agent_id,
                each.name,
                each.capabilities,
                each.heartbeat_age_s,
                each.registered_at,
                each.why_not,
            )
            for each in agents
        ),
        {each.agent_id: each.load for each in agents},
        {each.agent_id: each.breaker_wait_s for each in agents if each.breaker_wait_s},
    )


def rank(needs: list[str], agents: list[Agent], match: Match) -> Ranking:
    return ranked(RouteQuery.of(needs, match), snapshot_of(agents))


def names(ranking: Ranking) -> list[str]:
    return [place.agent for place in ranking.ranked]


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
    other = Agent("a5", "eve", ("cook",))
    found = rank(["code"], [open_one, down, other, ANN], Match.ANY)
    assert names(found) == ["ann"]
    assert {place.agent: place.reason for place in found.out} == {
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
    Agent,
    agent_id=st.uuids().map(str),
    name=st.sampled_from(["ann", "ben", "cat"]),
    capabilities=st.lists(st.sampled_from(["code", " Cook", "sing"]), max_size=3).map(tuple),
    load=st.integers(0, 3),
    heartbeat_age_s=st.none() | st.sampled_from([0.0, 5.0, 20.0, 25.0, 60.0]),
    registered_at=st.integers(0, 3),
    breaker_wait_s=st.sampled_from([0.0, 5.0]),
    why_not=st.sampled_from(["", "is stopped"]),
)


def order_of(query: RouteQuery, agents: list[Agent]) -> list[str]:
    """The rule by itself: each agent is looked at, and a sort decides."""
    found = []
    for each in agents:
        own = {capability.casefold().strip() for capability in each.capabilities}
        has = sum(need in own for need in query.needs)
        is_fit = has == len(query.needs) or (has and query.match is Match.ANY)
        is_out = each.why_not or each.breaker_wait_s or each.agent_id in query.barred
        if is_fit and not is_out and each.agent_id != query.asker:
            band = heartbeat_band(each.heartbeat_age_s)
            order = (-has, each.load, band, each.registered_at, each.name, each.agent_id)
            found.append((order, each.agent_id))
    return [agent_id for _, agent_id in sorted(found)]


@given(
    st.lists(candidate, max_size=12, unique_by=lambda each: each.agent_id),
    st.lists(st.sampled_from(["Code", "cook ", "sing", "fly"]), max_size=4),
    st.sampled_from(Match),
    st.data(),
)
def test_the_index_gives_the_order_of_the_rule_and_the_reasons_of_each(
    agents: list[Agent], needs: list[str], match: Match, data: st.DataObject
) -> None:
    ids = [each.agent_id for each in agents]
    asker = data.draw(st.sampled_from(["", *ids]))
    barred = data.draw(st.dictionaries(st.sampled_from([*ids, "x"]), st.just("is barred")))
    query = RouteQuery.of(needs, match, asker=asker, barred=barred)
    snapshot = snapshot_of(agents)
    found, first = ranked(query, snapshot), best(query, snapshot)
    assert [each.agent_id for each in found.ranked] == order_of(query, agents)
    assert (first and first.agent_id) == next(iter(order_of(query, agents)), None)
    by_id = {each.agent_id: each for each in agents}
    for place in found.ranked:
        each = by_id[place.agent_id]
        own = {capability.casefold().strip() for capability in each.capabilities}
        has = [need for need in query.needs if need in own]
        assert place.load == each.load
        assert f"{each.load} open" in place.reason
        assert not has or f"{len(has)} of {len(query.needs)} ({', '.join(has)})" in place.reason
        is_fresh = heartbeat_band(each.heartbeat_age_s) == 0
        age = (
            "no heartbeat" if each.heartbeat_age_s is None else f"{each.heartbeat_age_s:.0f} s old"
        )
        assert is_fresh != place.reason.endswith(age)
    assert {each.agent_id for each in found.out} == set(ids) - {asker} - {
        each.agent_id for each in found.ranked
    }
    for place in found.out:
        each = by_id[place.agent_id]
        why = each.why_not or ("is barred" if place.agent_id in barred else "")
        assert place.reason == why if why else place.reason
        assert "left alone" not in place.reason or each.breaker_wait_s
