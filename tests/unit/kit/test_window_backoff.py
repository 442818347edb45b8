from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsup.kit.backoff import SlidingWindow, delay_s


@given(
    steps=st.lists(st.floats(min_value=0, max_value=20), max_size=60),
    span_s=st.floats(min_value=0.1, max_value=50),
)
def test_window_counts_what_a_full_list_would(steps: list[float], span_s: float) -> None:
    window = SlidingWindow(span_s)
    now, times = 0.0, []
    for step in steps:
        now += step
        times.append(now)
        window.add(now)
        assert window.count(now) == sum(1 for at in times if now - span_s < at <= now)


def test_window_is_bounded() -> None:
    window = SlidingWindow(10, max_entries=3)
    for _ in range(9):
        window.add(1)
    assert window.count(1) == 3
    with pytest.raises(ValueError, match="span_s"):
        SlidingWindow(0)


_units = st.floats(min_value=0, max_value=1)


@given(
    attempt=st.integers(min_value=0, max_value=10**6),
    base_s=st.floats(min_value=0, max_value=100),
    factor=st.floats(min_value=1, max_value=10),
    cap_s=st.floats(min_value=0, max_value=1000),
    jitter=_units,
    unit=_units,
)
def test_delay_is_bounded_and_never_falls(
    attempt: int, base_s: float, factor: float, cap_s: float, jitter: float, unit: float
) -> None:
    this = delay_s(attempt, base_s, factor, cap_s, jitter, unit)
    following = delay_s(attempt + 1, base_s, factor, cap_s, jitter, unit)
    assert this <= following * (1 + 1e-9)
    plain = min(base_s, cap_s)
    assert plain * (1 - jitter) * (1 - 1e-9) <= this <= cap_s * (1 + jitter) * (1 + 1e-9)


@pytest.mark.parametrize("attempt, plain_s", [(0, 1), (1, 2), (2, 4), (5, 32), (6, 60), (99, 60)])
def test_delays_of_the_house(attempt: int, plain_s: float) -> None:
    assert delay_s(attempt, unit=0.5) == plain_s
    assert delay_s(attempt, unit=0.0) == plain_s * 0.5
    assert delay_s(attempt, unit=1.0) == plain_s * 1.5


@pytest.mark.parametrize(
    "arguments",
    [
        {"attempt": -1},
        {"attempt": 0, "jitter": 2},
        {"attempt": 0, "unit": -1},
        {"attempt": 0, "factor": 0.5},
        {"attempt": 0, "base_s": -1},
    ],
)
def test_delay_refuses_nonsense(arguments: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"must|need"):
        delay_s(**arguments)  # type: ignore[arg-type]  # the test passes what a caller should not
