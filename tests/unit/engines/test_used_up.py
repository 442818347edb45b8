"""What coding agents write when a plan's limit is used up, and what only looks like it."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from agentsup.engines.used_up import UNKNOWN_S, wait_of_answer_s, wait_s

NOW = datetime(2026, 11, 28, 12, 0, tzinfo=ZoneInfo("Europe/Berlin"))
HOUR, DAY = 3600.0, 86400.0

ANSWERS = [
    ("You've hit your session limit · resets 6:40pm (UTC)", 7 * HOUR + 2400),
    ("You’ve hit your limit · resets 3pm (Europe/Berlin)", 3 * HOUR),
    ("You've hit your session limit · resets 3pm", 3 * HOUR),
    ("You've hit your weekly limit · resets Dec 1 at 5pm (Europe/Berlin)", 3 * DAY + 5 * HOUR),
    ("You've hit your Opus limit · resets Jan 1, 9am\n/upgrade to increase it", 8 * DAY),
    ("Claude usage limit reached. Your limit will reset at 1am (America/New_York).", 19 * HOUR),
    ("5-hour limit reached ∙ resets 11:59am", 60.0),
    ("5-hour limit reached ∙ resets 11:30am", 23.5 * HOUR),
    ("Weekly limit reached ∙ resets in 2h 5m", 2 * HOUR + 300),
    ("You're out of extra usage · resets 12:30pm (Nowhere/Zone)", 1800.0),
    ("You've hit your usage limit. Upgrade to Pro or try again in 3 days 4 hours 12 minutes.",
     3 * DAY + 4 * HOUR + 720),
    ("You've hit your usage limit. Try again at Nov 29th, 2026 6:40 PM.", DAY + 6 * HOUR + 2400),
    ("You've hit your usage limit. Try again at 18:40.", 6 * HOUR + 2400),
    ("You have exhausted your capacity on this model. Your quota will reset after 12h30m15s.",
     45_015.0),
    ("You've reached your weekly limit, resets 2026-11-28T12:00:00Z", HOUR),
]  # fmt: skip
ERRORS = [
    ("claude could not finish: Claude AI usage limit reached|1795867200", HOUR),
    ("claude could not finish: Claude AI usage limit reached|1795867200000", HOUR),
    ("codex failed: You've hit your usage limit. Upgrade or try again later.", UNKNOWN_S),
    ("codex failed: Internal error: usageLimitExceeded", UNKNOWN_S),  # screenpipe#6875
    ("gemini (exit code 1); it said: RESOURCE_EXHAUSTED", UNKNOWN_S),
    ("You exceeded your current quota, please check your plan. Please retry in 38.5s.", 60.0),
    ("Qwen OAuth quota exceeded: Your free daily quota has been reached.", UNKNOWN_S),
    ("You've hit your weekly limit · resets Feb 31 at 5pm", UNKNOWN_S),
    ("You've hit your weekly limit · resets Oct 9, 2127 at 5pm", 8 * DAY),
]


@pytest.mark.parametrize("text, seconds", [*ANSWERS, *ERRORS])
def test_the_wait_is_read_from_the_sentence(text: str, seconds: float) -> None:
    assert wait_s(text, NOW) == seconds


@pytest.mark.parametrize("text, seconds", ANSWERS)
def test_an_answer_that_is_nothing_else_is_no_answer(text: str, seconds: float) -> None:
    assert wait_of_answer_s(f" {text}\n", NOW) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The speed limit resets at 3pm.",
        "claude could not finish: max_tokens limit",
        "You've hit your stride, try again in 3 days!",
        "You exceeded your current quota, please check your plan and billing details.",
    ],
)
def test_other_texts_say_nothing(text: str) -> None:
    assert wait_s(text, NOW) is None


@pytest.mark.parametrize(
    "text",
    [
        "The log says: You've hit your session limit · resets 6:40pm (UTC)",
        "You've hit your session limit.",
        "You've hit your session limit · resets 6:40pm. Here is what that means. " + "x" * 400,
    ],
)
def test_an_answer_about_limits_stays_one(text: str) -> None:
    assert wait_of_answer_s(text, NOW) is None
