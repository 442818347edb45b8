"""Who gets a piece of work, without a database: the rules of the choice, for any candidates."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agentsup.mailbox.mail import DirectoryEntry
from agentsup.mailbox.mail.assignment import LoadCandidate, eligible, least_loaded
from agentsup.model.ids import AgentId

IDS = st.integers(0, 9).map(lambda n: f"agt_{n}")
CANDIDATES = st.lists(
    st.builds(LoadCandidate, IDS, IDS, st.integers(0, 3), st.integers(0, 3)),
    max_size=6,
    unique_by=lambda each: each.agent_id,
)
ENTRIES = st.lists(
    st.builds(DirectoryEntry, IDS.map(AgentId), IDS, st.sampled_from(("running", "failed"))),
    max_size=6,
    unique_by=lambda each: each.agent_id,
)


@given(ENTRIES, IDS, st.sets(IDS, max_size=3))
def test_the_sender_is_chosen_only_if_alone(
    candidates: list[DirectoryEntry], sender: str, path: set[str]
) -> None:
    found = eligible(candidates, sender, path)
    ids = {each.agent_id for each in found}
    apart = {each.agent_id for each in candidates} - path
    assert ids <= apart
    assert not ids & path
    assert bool(ids) == bool(apart)
    if sender in ids:
        assert apart == {sender}
    if any(each.is_up for each in found):
        assert all(each.is_up for each in found)


@given(CANDIDATES.filter(bool), st.randoms(use_true_random=False))
def test_nobody_has_less_to_do_than_the_chosen(candidates: list[LoadCandidate], random) -> None:  # type: ignore[no-untyped-def]  # Hypothesis has no public type for it
    choice = least_loaded(candidates)
    chosen = choice.chosen
    rank = (chosen.load, chosen.last_at, chosen.agent_id)
    assert all(rank <= (each.load, each.last_at, each.agent_id) for each in candidates)
    shuffled = candidates[:]
    random.shuffle(shuffled)
    assert least_loaded(shuffled).chosen == chosen, "the order of the list decides nothing"


def test_the_reason_says_what_decided() -> None:
    ann, ben, cat = (
        LoadCandidate("a", "ann", 1),
        LoadCandidate("b", "ben", 2),
        LoadCandidate("c", "cat", 1, 5),
    )
    assert least_loaded([ann]).reason == "the only one"
    assert least_loaded([ann, ben]).reason == "least loaded, 1 open"
    assert least_loaded([cat, ann]).reason == "least loaded, 1 open, and idle longest"
    twin = LoadCandidate("d", "dan", 1)
    assert least_loaded([twin, ann]).chosen is ann
    assert "first by id" in least_loaded([twin, ann]).reason
