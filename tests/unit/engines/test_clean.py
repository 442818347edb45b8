"""What engines say, made fit to be stored and sent."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsup.engines.clean import clean, clean_event, clean_value
from agentsup.model.engine import (
    EngineDone,
    EngineEvent,
    EngineNotice,
    FileOut,
    Suspended,
    TextDelta,
    ToolFinished,
    ToolStarted,
    Usage,
)

HALF = "a \ud800 b"
WILD = st.text(st.characters(exclude_categories=()), max_size=30)


@given(WILD)
def test_a_clean_text_can_be_sent_and_a_sound_one_stays(text: str) -> None:
    cleaned = clean(text)
    cleaned.encode("utf-8")
    assert len(cleaned) == len(text)
    assert clean(cleaned) is cleaned


@given(
    st.recursive(
        WILD | st.integers() | st.none(), lambda each: st.lists(each) | st.dictionaries(WILD, each)
    )
)
def test_a_clean_value_can_be_sent(value: object) -> None:
    json.dumps(clean_value(value), ensure_ascii=False).encode("utf-8")


@pytest.mark.parametrize(
    "event",
    [
        TextDelta(HALF),
        EngineNotice(HALF),
        ToolStarted(HALF, {HALF: [HALF, {"x": HALF}]}),
        ToolFinished(HALF, True, HALF),
        FileOut(HALF),
        Suspended(b"", HALF, (HALF,)),
        EngineDone("failed", HALF, HALF, HALF),
    ],
)
def test_no_event_carries_half_a_character(event: EngineEvent) -> None:
    assert "a ? b" in repr(clean_event(event))
    repr(clean_event(event)).encode("utf-8")
    assert "\\ud800" not in repr(clean_event(event))


def test_impossible_usage_is_not_believed() -> None:
    assert clean_event(Usage(10**30, -5, math.nan)) == Usage(2**53, 0, None)
    assert clean_event(Usage(1, 2, -1.0)) == Usage(1, 2, None)
    assert clean_event(Usage(1, 2, 0.5)) == Usage(1, 2, 0.5)
