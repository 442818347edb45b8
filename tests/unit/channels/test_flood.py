"""The limits hold whatever is asked of them, and however unevenly the network delivers."""

from __future__ import annotations

from itertools import pairwise
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsup.channels.telegram.flood import (
    CallKind,
    QueuedSend,
    RateLimiter,
    Rates,
    RateWindow,
    kind_of,
    plan,
)

GROUP, ANN, BOB = -100, 1, 2
sends = st.lists(
    st.tuples(
        st.sampled_from([ANN, GROUP, BOB, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),
        st.sampled_from([*CallKind]),
        st.booleans(),
        # Until the next one is asked for.
        st.sampled_from([0.0, 0.0, 0.01, 0.3, 2.0]) | st.floats(0, 1, width=32),
        # How long the call takes.
        st.sampled_from([0.0, 0.02, 0.9, 4.9]) | st.floats(0, 8, width=32),
        # When within it the platform sees it.
        st.sampled_from([0.0, 1.0]) | st.floats(0, 1, width=32),
    ),
    max_size=150,
)


def most_within(times: list[float], span_s: float) -> int:
    times = sorted(times)
    return max((sum(1 for t in times if a <= t < a + span_s) for a in times), default=0)


def highest_level(times: list[float]) -> float:
    """Of a bucket that loses one a second: more than three at once are too many."""
    level, last_at, highest = 0.0, 0.0, 0.0
    for at in sorted(times):
        level = max(0.0, level - (at - last_at)) + 1
        last_at, highest = at, max(highest, level)
    return highest


def run(
    wanted: list[tuple[int, CallKind, bool, float, float, float]],
) -> tuple[list[tuple[float, int, CallKind]], int]:
    """Ask for all in turn and wait as told; returns arrivals and how many gave up."""
    flood, now, given_up = RateLimiter(), 0.0, 0
    ends: list[tuple[float, int, int, CallKind]] = []
    arrivals: list[tuple[float, int, CallKind]] = []
    waiting: dict[int, tuple[QueuedSend, float, float]] = {}

    def decide() -> float:
        nonlocal given_up
        made = plan((one for one, *_ in waiting.values()), flood, now)
        for one in made.go:
            _, took_s, share = waiting.pop(one.ticket)
            took_s = min(took_s, 5.0)
            ends.append((now + took_s, one.ticket, one.chat_id, one.kind))
            arrivals.append((now + took_s * share, one.chat_id, one.kind))
        for one, wait_s in made.give_up:
            assert wait_s > 0
            del waiting[one.ticket]
            given_up += 1
        return made.look_at

    def advance(until: float) -> None:
        nonlocal now
        look_at = decide()
        while True:
            end_at = min((end[0] for end in ends), default=inf)
            step = min(look_at, end_at)
            if step > until:
                break
            assert step >= now
            now = step
            for end in [end for end in ends if end[0] <= now]:
                ends.remove(end)
                flood.end(end[1], end[2], end[3], now)
            look_at = decide()
        now = until

    for ticket, (chat_id, kind, droppable, gap_s, took_s, share) in enumerate(wanted):
        advance(now + gap_s)
        waiting[ticket] = (
            QueuedSend(ticket, chat_id, kind, 0, now + (0.5 if droppable else 5.0), droppable),
            took_s,
            share,
        )
        decide()
    advance(now + 20.0)
    assert not waiting
    return arrivals, given_up


@given(sends)
def test_no_limit_is_ever_exceeded(
    wanted: list[tuple[int, CallKind, bool, float, float, float]],
) -> None:
    arrivals, given_up = run(wanted)
    assert len(arrivals) + given_up == len(wanted)
    assert most_within([at for at, _, _ in arrivals], 1.0) <= 30
    group = [at for at, chat, kind in arrivals if chat == GROUP and kind is not CallKind.LIGHT]
    assert most_within(group, 60.0) <= 20
    for chat_id in (ANN, BOB):
        messages = [
            at for at, chat, kind in arrivals if chat == chat_id and kind is CallKind.MESSAGE
        ]
        assert highest_level(messages) <= 3 + 1e-6


paces = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.2, 1.0]),
        st.sampled_from([0.0, 0.1, 3.0, 4.9]),
        st.sampled_from([0.0, 1.0]),
    ),
    min_size=4,
    max_size=40,
)


@given(paces, st.sampled_from([ANN, GROUP]))
def test_a_limit_holds_where_the_network_gathers_what_was_sent_apart(
    paces: list[tuple[float, float, float]], chat_id: int
) -> None:
    arrivals, _ = run([(chat_id, CallKind.MESSAGE, False, *pace) for pace in paces])
    times = [at for at, _, _ in arrivals]
    if chat_id == ANN:
        assert highest_level(times) <= 3 + 1e-6
    else:
        assert most_within(times, 60.0) <= 20


def test_a_burst_goes_at_once_and_the_rest_one_a_second_on_average() -> None:
    window = RateWindow(*Rates().private)
    times: list[float] = []
    now = 0.0
    for ticket in range(30):
        now = window.ready_at(now)
        window.begin(ticket, now)
        window.end(ticket, now)
        times.append(now)
    assert times[:3] == [0.0, 0.0, 0.0]
    assert times[-1] == 27.0
    assert all(a <= b for a, b in pairwise(times))


def test_a_send_without_an_end_holds_its_place_for_a_while_only() -> None:
    window = RateWindow(1, 1.0)
    window.begin(1, 0.0)
    assert window.ready_at(3.0) == inf
    assert window.next_change(3.0) == 5.0
    assert window.ready_at(5.0) == 6.0
    window.end(1, 5.5)  # late; it has been counted
    assert window.ready_at(6.0) == 6.0


def test_what_may_be_dropped_leaves_room_for_an_answer() -> None:
    flood, now = RateLimiter(), 0.0
    for ticket in range(30):
        at = flood.ready_at(GROUP, CallKind.EDIT, now, is_droppable=True)
        if at > now:
            break
        flood.begin(ticket, GROUP, CallKind.EDIT, now)
        flood.end(ticket, GROUP, CallKind.EDIT, now)
    else:
        raise AssertionError("edits may take all of the group's limit")
    assert ticket == 12
    assert flood.ready_at(GROUP, CallKind.MESSAGE, now, is_droppable=False) == now


def test_a_pause_is_of_one_chat_until_another_is_hit_as_well() -> None:
    flood = RateLimiter()
    flood.refused(ANN, CallKind.MESSAGE, 10.0, 0.0)
    assert flood.ready_at(ANN, CallKind.MESSAGE, 1.0, is_droppable=False) == 10.0
    assert flood.ready_at(ANN, CallKind.LIGHT, 1.0, is_droppable=True) == 10.0
    assert flood.ready_at(BOB, CallKind.MESSAGE, 1.0, is_droppable=False) == 1.0
    flood.refused(ANN, CallKind.MESSAGE, 10.0, 2.0)
    assert flood.pause_s(BOB, 2.0) == 0.0
    flood.refused(BOB, CallKind.MESSAGE, 4.0, 3.0)
    assert flood.pause_s(3, 3.0) == 4.0
    assert flood.ready_at(3, CallKind.LIGHT, 3.0, is_droppable=True) == 7.0
    assert flood.ready_at(3, CallKind.LIGHT, 7.0, is_droppable=True) == 7.0


def paused(flood: RateLimiter, chat_id: int, now: float) -> set[CallKind]:
    """What may not go to a chat now."""
    return {
        kind for kind in CallKind if flood.ready_at(chat_id, kind, now, is_droppable=False) > now
    }


@pytest.mark.parametrize(
    "chat_id, kind, silent",
    [
        (ANN, CallKind.LIGHT, {CallKind.LIGHT}),
        (GROUP, CallKind.LIGHT, {CallKind.LIGHT}),
        (ANN, CallKind.EDIT, {CallKind.EDIT, CallKind.LIGHT}),
        # There an edit is one of the 20 a minute, so a message would be refused as well.
        (GROUP, CallKind.EDIT, {*CallKind}),
        (ANN, CallKind.MESSAGE, {*CallKind}),
        (GROUP, CallKind.MESSAGE, {*CallKind}),
    ],
)
def test_a_refusal_silences_its_kind_and_what_matters_less(
    chat_id: int, kind: CallKind, silent: set[CallKind]
) -> None:
    flood = RateLimiter()
    flood.refused(chat_id, kind, 10.0, 0.0)
    assert paused(flood, chat_id, 9.9) == silent
    assert {kind for kind in CallKind if flood.pause_s(chat_id, 4.0, kind) == 6.0} == silent
    assert paused(flood, BOB, 0.0) == set()
    assert paused(flood, chat_id, 10.0) == set()


@pytest.mark.parametrize("kind", [CallKind.LIGHT, CallKind.EDIT])
def test_refused_decoration_in_many_chats_is_no_pause_of_the_bot(kind: CallKind) -> None:
    flood = RateLimiter()
    for chat_id in range(1, 9):
        flood.refused(chat_id, kind, 60.0, 0.0)
        # Nor does it make a refused message elsewhere one of the bot.
        assert CallKind.MESSAGE not in paused(flood, chat_id, 0.0)
    flood.refused(50, CallKind.MESSAGE, 60.0, 1.0)
    flood.refused(51, kind, 60.0, 1.0)
    assert paused(flood, 99, 1.0) == set()
    assert CallKind.MESSAGE not in paused(flood, 51, 1.0)
    flood.refused(52, CallKind.MESSAGE, 60.0, 1.0)
    assert paused(flood, 99, 1.0) == {*CallKind}


refusals = st.lists(
    st.tuples(
        st.sampled_from([ANN, BOB, GROUP]),
        st.sampled_from([*CallKind]),
        st.floats(0, 60, width=32),
        st.floats(0, 20, width=32),
    ),
    max_size=20,
)


@given(refusals)
def test_what_matters_more_never_waits_longer(
    wanted: list[tuple[int, CallKind, float, float]],
) -> None:
    flood, now = RateLimiter(), 0.0
    for chat_id, kind, retry_after_s, gap_s in wanted:
        now += gap_s
        flood.refused(chat_id, kind, retry_after_s, now)
        assert flood.pause_s(chat_id, now, kind) >= retry_after_s - 1e-6, "none is forgotten"
        for one in (ANN, BOB, GROUP):
            message, edit, light = (flood.pause_s(one, now, kind) for kind in CallKind)
            assert message <= edit <= light


def test_the_better_goes_first_and_equals_in_the_order_they_came() -> None:
    rates = Rates(bot=(2, 1.0))
    flood = RateLimiter(rates)
    waiting = [
        QueuedSend(n, 10 + n, CallKind.MESSAGE, priority, 5.0)
        for n, priority in enumerate([2, 0, 0])
    ]
    made = plan(waiting, flood, 0.0)
    assert [one.ticket for one in made.go] == [1, 2]
    assert made.give_up == ()
    assert made.look_at == 5.0  # nobody has ended yet


def test_chats_that_are_silent_are_forgotten() -> None:
    flood, now = RateLimiter(), 0.0
    flood.refused(GROUP, CallKind.LIGHT, 1e6, now)
    for chat_id in range(1, 2_000):
        now += 10.0
        flood.begin(chat_id, chat_id, CallKind.MESSAGE, now)
        flood.end(chat_id, chat_id, CallKind.MESSAGE, now)
    assert len(flood._chats) <= 512
    assert flood.pause_s(GROUP, now) > 0, "but none that is to be left alone"


def test_methods_count_as_what_they_are() -> None:
    assert kind_of("sendMessage") is kind_of("sendDocument") is CallKind.MESSAGE
    assert kind_of("editMessageText") is kind_of("editMessageReplyMarkup") is CallKind.EDIT
    assert kind_of("sendChatAction") is kind_of("sendMessageDraft") is CallKind.LIGHT
