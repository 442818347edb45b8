"""The decision after an end, as a table and by properties."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsup.model.errors import IllegalTransition
from agentsup.model.health import AgentState
from agentsup.supervision.policy import (
    TRANSITIONS,
    Decision,
    Ended,
    EndHistory,
    EndKind,
    ExitDaemon,
    Rebuild,
    Restart,
    RestartPolicy,
    Settle,
    check_transition,
    decide,
)

POLICY = RestartPolicy(jitter=0)
STOPPED = Settle(AgentState.STOPPED, "why")
FAILED = Settle(AgentState.FAILED, "why")


def ended(kind: EndKind, code: int = 0, *, at: float = 1000, **rest: object) -> Ended:
    return Ended(at=at, kind=kind, code=code, reason="why", **rest)  # type: ignore[arg-type]  # by name


CRASH = ended(EndKind.CRASHED, 1)
FINISHED = ended(EndKind.FINISHED)
ASK_42 = ended(EndKind.EXIT_REQUESTED, 42)
MAIN, CHILD = True, False
ASK_0 = ended(EndKind.EXIT_REQUESTED, 0)
ASK_3 = ended(EndKind.EXIT_REQUESTED, 3)
NO_START = ended(EndKind.START_FAILED, 1)


@pytest.mark.parametrize(
    "end, restart, is_main, expected",
    [
        (CRASH, Restart.PERMANENT, CHILD, Rebuild(1)),
        (CRASH, Restart.TRANSIENT, CHILD, Rebuild(1)),
        (CRASH, Restart.TEMPORARY, CHILD, FAILED),
        (NO_START, Restart.TRANSIENT, CHILD, Rebuild(1)),
        (NO_START, Restart.TEMPORARY, CHILD, FAILED),
        (FINISHED, Restart.PERMANENT, CHILD, Rebuild(1)),
        (FINISHED, Restart.TRANSIENT, CHILD, STOPPED),
        (FINISHED, Restart.TEMPORARY, CHILD, STOPPED),
        (ASK_0, Restart.TRANSIENT, CHILD, STOPPED),
        (ASK_3, Restart.TRANSIENT, CHILD, Rebuild(1)),
        (ASK_42, Restart.TRANSIENT, CHILD, Rebuild(0)),
        (ASK_42, Restart.TEMPORARY, CHILD, Rebuild(0)),
        (FINISHED, Restart.TRANSIENT, MAIN, ExitDaemon(0)),
        (FINISHED, Restart.PERMANENT, MAIN, ExitDaemon(0)),
        (ASK_3, Restart.TRANSIENT, MAIN, ExitDaemon(3)),
        (ASK_42, Restart.TRANSIENT, MAIN, ExitDaemon(42)),
        (CRASH, Restart.TRANSIENT, MAIN, ExitDaemon(1)),
        (NO_START, Restart.TRANSIENT, MAIN, ExitDaemon(1)),
    ],
)
def test_first_ends(end: Ended, restart: Restart, is_main: bool, expected: Decision) -> None:
    assert decide(end, EndHistory(), POLICY, is_main=is_main, restart=restart) == expected


def test_main_may_be_restarted_in_process_if_so_set() -> None:
    policy = replace(POLICY, main_restarts=True)
    assert decide(CRASH, EndHistory(), policy, is_main=MAIN) == Rebuild(1)
    assert decide(FINISHED, EndHistory(), policy, is_main=MAIN) == ExitDaemon(0)


def lives(policy: RestartPolicy, ends: list[Ended], is_main: bool = CHILD) -> list[Decision]:
    """The decisions over a series of ends."""
    history, told = EndHistory(), []
    for end in ends:
        told.append(decide(end, history, policy, is_main=is_main))
        history = history.plus(end)
    return told


def test_five_restarts_then_the_next_failure_gives_up() -> None:
    told = lives(POLICY, [replace(CRASH, at=1000 + n) for n in range(6)])
    assert told[:5] == [Rebuild(1), Rebuild(2), Rebuild(4), Rebuild(8), Rebuild(16)]
    assert told[5] == Settle(AgentState.FAILED, "gave up after 5 restarts: why")


def test_the_window_slides() -> None:
    told = lives(POLICY, [replace(CRASH, at=70.0 * n, uptime_s=59) for n in range(60)])
    assert all(isinstance(one, Rebuild) for one in told)
    assert told[-1] == Rebuild(16)


def test_a_stable_life_wipes_the_slate() -> None:
    crashes = [replace(CRASH, at=1000 + n) for n in range(5)]
    stable = replace(CRASH, at=1070, uptime_s=60)
    after = replace(CRASH, at=1071)
    assert lives(POLICY, [*crashes, stable, after])[5:] == [Rebuild(1), Rebuild(2)]
    almost = replace(stable, uptime_s=59.9)
    assert isinstance(lives(POLICY, [*crashes, almost])[5], Settle)


def test_slow_start_failures_add_up_beyond_the_window() -> None:
    slow = [replace(NO_START, at=130.0 * n) for n in range(6)]
    assert [type(one) for one in lives(POLICY, slow)] == [Rebuild] * 5 + [Settle]
    short_life = [replace(CRASH, at=125.0 + 130 * n, uptime_s=5) for n in range(5)]
    mixed = sorted([*slow, *short_life], key=lambda end: end.at)
    assert isinstance(lives(POLICY, mixed)[-1], Settle)
    cleared = [*slow[:5], replace(CRASH, at=590, uptime_s=61), *slow[5:]]
    assert isinstance(lives(POLICY, cleared)[-1], Rebuild)


def test_requests_to_rebuild_are_free_until_they_storm() -> None:
    calm = [replace(ASK_42, at=7.0 * n) for n in range(200)]
    assert set(lives(POLICY, calm)) == {Rebuild(0)}
    storm = [replace(ASK_42, at=n / 10) for n in range(20)]
    told = lives(POLICY, storm)
    assert told[:10] == [Rebuild(0)] * 10
    assert told[10:15] == [Rebuild(1), Rebuild(2), Rebuild(4), Rebuild(8), Rebuild(16)]
    assert isinstance(told[15], Settle)
    assert told[15].state is AgentState.FAILED


def test_a_storm_of_main_ends_the_daemon_as_a_crash() -> None:
    told = lives(POLICY, [replace(ASK_42, at=n) for n in range(11)], MAIN)
    assert told == [ExitDaemon(42)] * 10 + [ExitDaemon(1)]


def test_never_giving_up_is_a_policy() -> None:
    policy = replace(POLICY, is_endless=True)
    told = lives(policy, [replace(CRASH, at=n) for n in range(500)])
    assert told[-1] == Rebuild(60)


# -- properties ------------------------------------------------------------------------------------

_kinds = st.sampled_from(list(EndKind))
_ends = st.builds(
    Ended,
    at=st.just(0.0),
    kind=_kinds,
    code=st.sampled_from([0, 1, 3, 42]),
    reason=st.just("why"),
    uptime_s=st.floats(min_value=0, max_value=120),
    wanted=st.booleans(),
)
_gaps = st.floats(min_value=0, max_value=200)
_histories = st.lists(st.tuples(_gaps, _ends), max_size=30).map(
    lambda steps: [
        replace(end, at=sum(gap for gap, _ in steps[: index + 1]))
        for index, (_, end) in enumerate(steps)
    ]
)
_policies = st.builds(
    RestartPolicy,
    jitter=st.floats(min_value=0, max_value=1),
    max_restarts=st.integers(min_value=0, max_value=6),
    is_endless=st.booleans(),
    window_s=st.floats(min_value=1, max_value=600),
    main_restarts=st.booleans(),
)


@given(
    ends=_histories,
    last=_ends,
    policy=_policies,
    is_main=st.booleans(),
    restart=st.sampled_from(list(Restart)),
    unit=st.floats(min_value=0, max_value=1),
)
def test_what_always_holds(
    ends: list[Ended],
    last: Ended,
    policy: RestartPolicy,
    is_main: bool,
    restart: Restart,
    unit: float,
) -> None:
    last = replace(last, at=(ends[-1].at if ends else 0.0) + 1)
    history = EndHistory(tuple(ends))
    told = decide(last, history, policy, is_main=is_main, restart=restart, unit=unit)
    wanted = decide(
        replace(last, wanted=True), history, policy, is_main=is_main, restart=restart, unit=unit
    )
    assert wanted == Settle(AgentState.STOPPED, "why")
    if isinstance(told, Rebuild) and told.delay_s > 0:
        low = policy.base_s * (1 - policy.jitter)
        assert low <= told.delay_s <= policy.cap_s * (1 + policy.jitter)
    if isinstance(told, ExitDaemon):
        assert is_main
    if policy.is_endless and isinstance(told, Settle):
        assert told.state is AgentState.STOPPED or restart is Restart.TEMPORARY


@given(count=st.integers(min_value=0, max_value=12), maximum=st.integers(min_value=0, max_value=8))
def test_gives_up_exactly_when_the_window_is_full(count: int, maximum: int) -> None:
    policy = replace(POLICY, max_restarts=maximum)
    past = tuple(replace(CRASH, at=float(n)) for n in range(count))
    old = tuple(replace(CRASH, at=-1000.0 - n) for n in range(10))
    told = decide(replace(CRASH, at=float(count)), EndHistory((*old, *past)), policy)
    assert isinstance(told, Settle) == (count >= maximum)


@given(gaps=st.lists(st.floats(min_value=6.1, max_value=100), min_size=1, max_size=40))
def test_spaced_requests_to_rebuild_never_count(gaps: list[float]) -> None:
    at, ends = 0.0, []
    for gap in gaps:
        at += gap
        ends.append(replace(ASK_42, at=at))
    assert set(lives(POLICY, ends)) == {Rebuild(0)}
    assert decide(replace(CRASH, at=at), EndHistory(tuple(ends)), POLICY) == Rebuild(1)


def test_a_history_is_bounded() -> None:
    history = EndHistory()
    for _ in range(300):
        history = history.plus(CRASH)
    assert len(history.ends) == 256


# -- states ----------------------------------------------------------------------------------------


def test_only_the_listed_transitions_are_legal() -> None:
    assert set(TRANSITIONS) == set(AgentState)
    for old in AgentState:
        for new in AgentState:
            if new in TRANSITIONS[old]:
                check_transition("ada", old, new)
            else:
                with pytest.raises(IllegalTransition, match=f"ada cannot go from {old} to {new}"):
                    check_transition("ada", old, new)


def test_failed_is_left_only_by_an_act() -> None:
    assert TRANSITIONS[AgentState.FAILED] == {AgentState.STARTING, AgentState.STOPPED}
    assert TRANSITIONS[AgentState.STOPPED] == {AgentState.STARTING}
