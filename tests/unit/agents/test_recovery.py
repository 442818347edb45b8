"""What is done about a failure: by its type, by what was tried before, and by how a provider fares."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsup.agents.recovery.breakers import (
    Breaker,
    BreakerPolicy,
    Breakers,
    BreakerState,
    provider_of,
)
from agentsup.agents.recovery.decisions import (
    BY_CODE,
    FALLBACK,
    MOST_WAIT_MS,
    OUT,
    PRIMARY,
    RETRIES,
    Attempt,
    Failure,
    FailureKind,
    RecoveryAction,
    RecoveryContext,
    decide,
    failure_kind_of,
    has_waited_enough,
    tier_of,
)
from agentsup.agents.recovery.tiers import fallback_spec, has_fallback
from agentsup.engines import failures
from agentsup.model.agent import AgentSpec

# -- kinds -----------------------------------------------------------------------------------------


def test_the_type_decides_and_no_text() -> None:
    slow = failures.RequestRejected("took 500 ms; 429 of 500 tools timed out")
    assert failure_kind_of(slow.code, permanent=slow.permanent) is FailureKind.OTHER
    assert failure_kind_of("some_engines_own", permanent=False) is FailureKind.TRANSIENT
    assert failure_kind_of("some_engines_own", permanent=True) is FailureKind.OTHER


def test_every_transient_type_has_its_kind() -> None:
    for code, kind in failures.FAILURES.items():
        if issubclass(kind, failures.Transient):
            assert RETRIES[BY_CODE[code]] >= 1


# -- decisions ---------------------------------------------------------------------------------------

ALONE = RecoveryContext()
SPARE = RecoveryContext(has_fallback=True)


def after(
    trouble: FailureKind, *course: Attempt, now: RecoveryContext = ALONE, **more: float
) -> RecoveryAction:
    return decide(Failure(trouble, **more), course, now).act


def tried(
    trouble: FailureKind, act: RecoveryAction = RecoveryAction.RETRY, tier: str = PRIMARY
) -> Attempt:
    return Attempt(tier, trouble, act, 0)


@pytest.mark.parametrize(
    "trouble", [FailureKind.RATE_LIMIT, FailureKind.PROVIDER, FailureKind.TRANSIENT]
)
def test_what_may_pass_is_tried_again_and_then_given_up(trouble: FailureKind) -> None:
    past = [tried(trouble)] * 3
    assert [after(trouble, *past[:n]) for n in range(4)] == [RecoveryAction.RETRY] * 3 + [
        RecoveryAction.BURY
    ]
    assert after(trouble, *past, now=SPARE) is RecoveryAction.SWITCH
    on_fallback = replace(SPARE, tier=FALLBACK)
    assert (
        after(trouble, *past, tried(trouble, RecoveryAction.SWITCH), now=on_fallback)
        is RecoveryAction.RETRY
    )
    assert after(trouble, now=replace(ALONE, attempts_left=False)) is RecoveryAction.BURY


@pytest.mark.parametrize("trouble", sorted(OUT))
def test_what_lasts_is_never_tried_again(trouble: FailureKind) -> None:
    assert after(trouble) is RecoveryAction.FAIL
    assert after(trouble, now=SPARE) is RecoveryAction.SWITCH
    assert after(trouble, now=replace(SPARE, tier=FALLBACK)) is RecoveryAction.FAIL
    assert after(trouble, now=replace(SPARE, may_switch=False)) is RecoveryAction.FAIL


def test_the_pause_a_provider_wants_is_kept_or_passed_over() -> None:
    short, long = Failure(FailureKind.RATE_LIMIT, 20.0), Failure(FailureKind.RATE_LIMIT, 120.0)
    assert decide(short, (), SPARE).least_s == 20.0
    assert decide(long, (), ALONE).least_s == 120.0
    assert decide(long, (), SPARE).act is RecoveryAction.SWITCH


def test_a_provider_that_is_left_alone_is_not_waited_for_where_there_is_another() -> None:
    left_alone = RecoveryContext(has_fallback=True, is_left_alone=True)
    assert after(FailureKind.PROVIDER, now=left_alone) is RecoveryAction.SWITCH
    assert (
        after(FailureKind.PROVIDER, now=replace(left_alone, has_fallback=False))
        is RecoveryAction.RETRY
    )


def test_a_program_that_broke_gets_one_more_chance_if_nothing_could_happen_twice() -> None:
    assert after(FailureKind.CRASH) is RecoveryAction.RETRY
    assert after(FailureKind.CRASH, tried(FailureKind.CRASH)) is RecoveryAction.FAIL
    assert after(FailureKind.CRASH, now=replace(ALONE, may_begin_anew=False)) is RecoveryAction.FAIL


def test_a_session_is_shortened_once() -> None:
    may = replace(ALONE, may_shorten=True)
    assert after(FailureKind.CONTEXT) is RecoveryAction.FAIL
    assert after(FailureKind.CONTEXT, now=may) is RecoveryAction.SHORTEN
    assert (
        after(FailureKind.CONTEXT, tried(FailureKind.CONTEXT, RecoveryAction.SHORTEN), now=may)
        is RecoveryAction.FAIL
    )
    spare = replace(may, has_fallback=True)
    assert (
        after(FailureKind.CONTEXT, tried(FailureKind.CONTEXT, RecoveryAction.SHORTEN), now=spare)
        is RecoveryAction.SWITCH
    )


@pytest.mark.parametrize(
    "trouble, act",
    [(FailureKind.EMPTY, RecoveryAction.HINT), (FailureKind.TURN_LIMIT, RecoveryAction.WRAP_UP)],
)
def test_a_missing_answer_is_asked_for_once(trouble: FailureKind, act: RecoveryAction) -> None:
    may = replace(ALONE, may_go_on=True)
    assert after(trouble) is RecoveryAction.FAIL
    assert after(trouble, now=may) is act
    assert after(trouble, tried(trouble, act), now=may) is RecoveryAction.FAIL


def test_what_goes_in_circles_is_not_repeated() -> None:
    for trouble in (
        FailureKind.LOOP,
        FailureKind.LIMIT,
        FailureKind.SILENT,
        FailureKind.FILTERED,
        FailureKind.OTHER,
    ):
        assert after(trouble, now=SPARE) is RecoveryAction.FAIL


STEPS = st.lists(
    st.tuples(st.sampled_from(sorted(FailureKind)), st.booleans(), st.booleans()), max_size=60
)


@given(STEPS, st.booleans())
def test_every_message_ends(
    steps: list[tuple[FailureKind, bool, bool]], has_fallback: bool
) -> None:
    """Whatever fails, and in whatever order, no message is attempted for ever."""
    course: list[Attempt] = []
    for trouble, may_go_on, may_shorten in itertools.chain(
        steps, itertools.cycle([(FailureKind.PROVIDER, True, True)])
    ):
        tier = tier_of(course, PRIMARY, has_fallback=has_fallback)
        now = RecoveryContext(
            tier=tier, has_fallback=has_fallback, may_go_on=may_go_on, may_shorten=may_shorten
        )
        act = decide(Failure(trouble), course, now).act
        if act in {RecoveryAction.FAIL, RecoveryAction.BURY}:
            break
        course.append(Attempt(tier, trouble, act, 0))
        assert len(course) <= 2 * sum(RETRIES.values()) + 4


def test_the_fallback_is_begun_with_where_it_is_wanted() -> None:
    assert tier_of([], PRIMARY, has_fallback=True) == PRIMARY
    assert tier_of([], FALLBACK, has_fallback=True) == FALLBACK
    assert tier_of([], FALLBACK, has_fallback=False) == PRIMARY
    assert (
        tier_of([tried(FailureKind.AUTH, RecoveryAction.SWITCH)], PRIMARY, has_fallback=True)
        == FALLBACK
    )


def test_a_message_waits_for_its_provider_for_an_hour() -> None:
    waits = [Attempt(PRIMARY, FailureKind.PROVIDER, RecoveryAction.WAIT, 1000)]
    assert not has_waited_enough([], 10**9)
    assert not has_waited_enough(waits, 1000 + MOST_WAIT_MS - 1)
    assert has_waited_enough(waits, 1000 + MOST_WAIT_MS)


# -- the fallback --------------------------------------------------------------------------------------

ANN = AgentSpec(
    "ann",
    engine="llm",
    provider="acme",
    model="big",
    engine_options={"base_url": "http://a", "api_key": "k", "model": "big", "temperature": 1},
)


def test_a_fallback_on_the_same_provider_differs_in_its_model() -> None:
    assert not has_fallback(ANN)
    spec = fallback_spec(replace(ANN, fallback_model="small"))
    assert (spec.engine, spec.provider, spec.model) == ("llm", "acme", "small")
    assert spec.engine_options == {"base_url": "http://a", "api_key": "k", "temperature": 1}


def test_a_key_goes_to_no_other_provider() -> None:
    spec = fallback_spec(replace(ANN, fallback_model="small", fallback_provider="other"))
    assert spec.provider == "other"
    assert spec.engine_options == {"temperature": 1}
    spec = fallback_spec(replace(ANN, fallback_engine="claude"))
    assert (spec.engine, spec.provider, spec.model, spec.engine_options) == (
        "claude",
        None,
        None,
        {},
    )
    given_options = {"base_url": "http://b"}
    spec = fallback_spec(replace(ANN, fallback_model="s", fallback_options=given_options))
    assert spec.engine_options == given_options


# -- breakers --------------------------------------------------------------------------------------

POLICY = BreakerPolicy()


def failing(times: int, now: float = 0.0) -> Breaker:
    state = Breaker()
    for _ in range(times):
        state = state.failed(now, POLICY, was_probe=False)
    return state


def test_it_opens_after_failures_in_a_row_only() -> None:
    assert failing(4).state(0) is BreakerState.CLOSED
    opened = failing(5)
    assert opened.state(0) is BreakerState.OPEN
    assert opened.wait_s(10, POLICY) == 20
    assert opened.state(30) is BreakerState.HALF_OPEN


def test_one_message_alone_opens_none() -> None:
    """Four attempts are all that a message has (P3)."""
    assert 1 + RETRIES[FailureKind.PROVIDER] < POLICY.failures


def test_one_attempt_finds_out_and_the_others_wait() -> None:
    state = failing(5)
    assert state.wait_s(30, POLICY) == 0
    state = state.entered(30)
    assert state.wait_s(31, POLICY) > 0
    assert state.wait_s(30 + POLICY.probe_s, POLICY) == 0, "it may have been lost"
    assert state.left(was_probe=True).probed_at is None


def test_each_failed_probe_doubles_the_pause_up_to_a_cap() -> None:
    state, now, pauses = failing(5), 0.0, []
    for _ in range(6):
        now += state.wait_s(now, POLICY)
        state = state.entered(now).failed(now, POLICY, was_probe=True)
        pauses.append(state.open_s)
    assert pauses == [60, 120, 240, 300, 300, 300]


def test_a_late_failure_of_before_changes_nothing() -> None:
    state = failing(5)
    assert state.failed(29, POLICY, was_probe=False) == state


class Ticks:
    """A clock that is set by hand."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def now_ms(self) -> int:
        return int(self.now * 1000)

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_a_sick_provider_is_nobody_elses() -> None:
    clock = Ticks()
    breakers = Breakers(clock)
    for _ in range(5):
        with breakers.visit("acme") as visit:
            visit.well = False
    assert breakers.wait_s("acme") == 30
    assert breakers.wait_s("other") == 0
    assert [(d["provider"], d["state"]) for d in breakers.documents()] == [("acme", "open")]
    assert "failed 5 times in a row" in breakers.notes("acme")[0]
    assert breakers.notes("other") == ()
    clock.now = 30
    with breakers.visit("acme") as visit:
        assert breakers.wait_s("acme") > 0, "somebody is finding out"
        visit.well = True
    assert breakers.documents() == []


def test_a_visit_that_is_broken_off_lets_the_next_one_find_out() -> None:
    clock = Ticks()
    breakers = Breakers(clock)
    for _ in range(5):
        with breakers.visit("acme") as visit:
            visit.well = False
    clock.now = 30
    with pytest.raises(RuntimeError), breakers.visit("acme"):
        raise RuntimeError("stopped")
    assert breakers.wait_s("acme") == 0
    assert breakers.documents()[0]["state"] == "half_open"


@pytest.mark.parametrize(
    "given_spec, name",
    [
        (("llm", "", "gpt", {"base_url": "http://u:p@host:1/v1"}), "llm at host:1"),
        (("llm", "acme", "gpt", {}), "llm at acme"),
        (("llm", "", "anthropic:x", {}), "llm at anthropic"),
        (("llm", "", "claude-9", {}), "llm at anthropic"),
        (("llm", "", "gpt", {"provider": "acme"}), "llm at acme"),
        (("claude", "", "", {"env": {"ANTHROPIC_BASE_URL": "http://x"}}), "claude at x"),
        (("command", "", "", {"command": ["python3", "a.py"]}), "command at python3 a.py"),
        (("scripted", "", "", {}), "scripted"),
    ],
)
def test_providers_have_names_without_secrets(
    given_spec: tuple[str, str, str, dict[str, object]], name: str
) -> None:
    assert provider_of(*given_spec) == name
