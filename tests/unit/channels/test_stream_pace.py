"""When a running answer is shown and which part of it: decided without a clock."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsup.channels.core.live.rate_limit import (
    PREVIEW_CHARS,
    WINDOW_CHARS,
    Progress,
    RateLimit,
    StreamMode,
    StreamState,
    TextWindow,
    complete_length,
    next_show_at,
    open_fence,
)
from agentsup.channels.telegram import render
from agentsup.channels.telegram.received import draft_id_of
from agentsup.model.agent import Streaming

LIVE = RateLimit(StreamMode.LIVE, interval_s=2.0, min_chars=200, idle_s=0.8)
BUFFERED = RateLimit(StreamMode.BUFFERED, interval_s=2.0, min_chars=200, idle_s=0.8)


def heard(
    length: int, *, first: float = 10.0, last: float = 10.0, complete: int = 0
) -> StreamState:
    return StreamState(length, complete, first, last)


# -- when ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "what, at",
    [
        pytest.param(heard(0), None, id="nothing yet"),
        pytest.param(heard(250, last=10.3), 10.3, id="enough: at once"),
        pytest.param(heard(5), 10.8, id="a short beginning: after a pause"),
        pytest.param(heard(90, last=11.1), 11.9, id="a beginning that grew: after its pause"),
        pytest.param(heard(90, last=11.9), 12.0, id="never later than an interval"),
    ],
)
def test_the_first_text_is_shown_when_there_is_enough_or_a_pause(
    what: StreamState, at: float | None
) -> None:
    assert next_show_at(what, Progress(), LIVE) == (None if at is None else pytest.approx(at))


def test_more_text_waits_for_the_interval_and_nothing_new_for_ever() -> None:
    shown = Progress().shown(10, 10.0)
    assert next_show_at(heard(11, last=10.1), shown, LIVE) == 12.0
    assert next_show_at(heard(11, last=15.0), shown, LIVE) == 15.0
    assert next_show_at(heard(10, last=10.1), shown, LIVE) is None


def test_a_preview_that_fades_is_shown_again_and_a_message_is_not() -> None:
    wanted = Streaming(edit_interval_s=2.0, min_chars=200, idle_ms=800)
    draft = RateLimit.of(StreamMode.LIVE, wanted, least_s=0.5, refresh_s=20.0)
    edit = RateLimit.of(StreamMode.LIVE, wanted, least_s=0.5)
    shown = Progress().shown(10, 10.0)
    assert next_show_at(heard(10), shown, draft) == 30.0
    assert next_show_at(heard(10), shown, edit) is None
    assert next_show_at(heard(0), Progress(), draft) is None


def test_off_shows_nothing_and_buffered_shows_paragraphs() -> None:
    off = RateLimit(StreamMode.OFF, 2.0, 200, 0.8)
    assert next_show_at(heard(5_000), Progress(), off) is None
    assert next_show_at(heard(5_000), Progress(), BUFFERED) is None
    assert next_show_at(heard(500, last=11.0, complete=40), Progress(), BUFFERED) == 11.0
    assert next_show_at(heard(900, complete=40), Progress().shown(40, 11.0), BUFFERED) is None


def test_a_pause_that_was_asked_for_is_kept_and_makes_everything_slower() -> None:
    shown = Progress().shown(10, 10.0)
    slowed = shown.slowed(70.0)
    assert next_show_at(heard(500, last=12.0), slowed, LIVE) == 70.0
    again = slowed.shown(500, 70.0)
    next_at = next_show_at(heard(600, last=70.0), again, LIVE)
    assert next_at is not None
    assert next_at - 70.0 > LIVE.interval_s


def test_long_streams_slow_down_to_a_limit_and_keep_to_the_least_interval() -> None:
    gaps = [LIVE.gap_s(sends) for sends in range(400)]
    assert gaps[:11] == [2.0] * 11
    assert gaps == sorted(gaps)
    assert gaps[-1] == LIVE.interval_cap_s
    wanted = Streaming(edit_interval_s=0.1)
    assert RateLimit.of(StreamMode.LIVE, wanted, least_s=3.0).interval_s == 3.0
    slow = RateLimit.of(StreamMode.LIVE, Streaming(edit_interval_s=60.0), least_s=0.5)
    assert slow.gap_s(1_000) == 60.0, "what the settings ask for is never undercut"


@given(
    deltas=st.lists(st.tuples(st.floats(0.0, 5.0), st.integers(1, 400)), min_size=1, max_size=40),
    mode=st.sampled_from([StreamMode.LIVE, StreamMode.BUFFERED]),
)
def test_sends_keep_their_distance_and_all_text_is_shown_in_the_end(
    deltas: list[tuple[float, int]], mode: StreamMode
) -> None:
    pace = RateLimit(mode, interval_s=2.0, min_chars=200, idle_s=0.8)
    now, text, progress, sent = 0.0, StreamState(), Progress(), list[float]()

    def catch_up(until: float) -> None:
        nonlocal progress
        while (at := next_show_at(text, progress, pace)) is not None and at <= until:
            sent.append(at)
            progress = progress.shown(text.length, at)

    for pause_s, chars in deltas:
        catch_up(now + pause_s)
        now += pause_s
        text = text.grown(text.length + chars, text.length + chars, now)
    catch_up(now + 100.0)
    assert progress.length == text.length
    assert all(later - earlier >= 2.0 - 1e-9 for earlier, later in pairwise(sent))


# -- which part ------------------------------------------------------------------------------------


def test_an_open_code_block_is_found_and_a_closed_one_is_not() -> None:
    assert open_fence("text\n```python\nx = 1") == "```python"
    assert open_fence("text\n```python\nx = 1\n```\nmore") == ""
    assert open_fence("~~~\n```\n", "") == "~~~"
    assert open_fence("```\nstill code\n", "~~~") == "~~~"
    assert open_fence("````\n```\n") == "````"
    assert open_fence("````") == "````"
    assert open_fence("```\n", "```js") == ""
    assert open_fence("``` not ` a fence\n") == ""


def test_paragraphs_and_whole_code_blocks_are_complete() -> None:
    text = "one\n\ntwo\n```\na\n\nb\n```\nthree\n"
    assert text[: complete_length("one\n\ntwo")] == "one\n\n"
    assert text[: complete_length(text[:16])] == "one\n\n"
    assert text[: complete_length(text)] == "one\n\ntwo\n```\na\n\nb\n```\n"
    assert complete_length("x\n```\nrest", "```") == len("x\n```\n")
    assert complete_length("half a line") == 0


def test_a_window_stays_until_it_is_full_and_moves_by_whole_paragraphs() -> None:
    paragraphs = [f"{number} " + "word " * 40 for number in range(40)]
    text = "\n\n".join(paragraphs)
    assert TextWindow().moved(text[:WINDOW_CHARS]) == TextWindow()
    moved = TextWindow().moved(text)
    rest = text[moved.start :]
    assert rest in {"\n\n".join(paragraphs[n:]) for n in range(40)}
    assert PREVIEW_CHARS <= len(rest) <= 2 * PREVIEW_CHARS
    assert moved.markdown(rest).startswith("…\n\n")


def test_in_a_long_code_block_the_window_is_code_too() -> None:
    text = "Look:\n\n```python\n" + "\n".join(f"line_{n} = {n}" for n in range(400))
    moved = TextWindow().moved(text)
    assert moved.fence == "```python"
    piece = render.render_partial(moved.markdown(text[moved.start :]))
    assert piece is not None
    assert [entity["type"] for entity in piece.entities] == ["pre"]
    assert piece.text.endswith("line_399 = 399")


@given(st.lists(st.text("ab \n`~#", max_size=600), max_size=25))
def test_whatever_comes_the_view_is_the_newest_text_and_fits(chunks: list[str]) -> None:
    text, window = "", TextWindow()
    for chunk in chunks:
        text += chunk
        window = window.moved(text[window.start :], most=500, keep=100)
        assert len(text) - window.start <= 500
        assert window.fence == open_fence(text[: window.start])
        assert text.endswith(text[window.start :])


def test_a_draft_has_a_number_that_is_the_same_after_a_restart_and_never_zero() -> None:
    numbers = {draft_id_of(f"m_{n}") for n in range(1_000)}
    assert len(numbers) > 990
    assert all(0 < number < 2**31 for number in numbers)
