"""Tables fit where they are shown: pipes, terminals, phones."""

from __future__ import annotations

import io

import pytest

from agentsup.cli.output.show import (
    CommandOutput,
    duration,
    facts,
    shortened,
    table,
    when,
    width_of,
)
from agentsup.kit.terminal import clean

HEADERS = ("name", "state", "last reason")
ROWS = [
    ("main", "running", "-"),
    ("researcher", "backoff", "the engine could not be started: no such file or directory"),
]


def test_a_pipe_gets_everything() -> None:
    text = table(HEADERS, ROWS, None)
    assert text.split("\n")[0] == "NAME        STATE    LAST REASON"
    assert "no such file or directory" in text


@pytest.mark.parametrize("width", [120, 60, 40, 24])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    text = table(HEADERS, ROWS, width)
    assert max(map(width_of, text.split("\n"))) <= width
    assert "researcher" in text
    assert "backoff" in text


def test_a_phone_gets_cards_that_drop_nothing() -> None:
    ids = ("id", "agent", "state", "accepted", "text")
    row = ("msg_01m7y1e9673mgag0330sj6h4c8", "writer", "done", "2026-11-21 03:12:17", "a haiku")
    text = table(ids, [row], 40)
    assert all(cell in text for cell in row)
    assert max(map(width_of, text.split("\n"))) <= 40


def test_a_card_names_what_is_empty_too() -> None:
    assert table(("agent", "today", "this month"), [("main", "-", "$0.10")], 12) == (
        "main\n  today -\n  this month\n    $0.10"
    )


def test_wide_characters_count_twice() -> None:
    assert width_of("日本") == 4
    assert shortened("日本語日本語", 7) == "日本語…"


def test_control_characters_cannot_steer_the_terminal() -> None:
    assert clean("a\x1b[2Jb\r\x00c\x9b31md\ne\tf") == "a·[2Jb··c·31md\ne\tf"
    assert "\x1b" not in table(("name",), [("\x1b]0;owned\x07",)], 80)


def test_facts_align_and_leave_out_what_is_empty() -> None:
    assert facts([("a", 1), ("long", "x\ny"), ("none", None), ("empty", "")], 40) == (
        "a     1\nlong  x\n      y"
    )


@pytest.mark.parametrize(
    "seconds, text",
    [
        (None, "-"),
        (0.4, "0 s"),
        (59, "59 s"),
        (61, "1 min 1 s"),
        (3600, "1 h"),
        (90061, "1 d 1 h"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_no_time_is_a_dash() -> None:
    assert when(None) == "-"
    assert when(1_800_000_000_000).startswith("2027-01-")


def test_what_is_no_terminal_gets_no_colour() -> None:
    stream = io.StringIO()
    CommandOutput(stream).listing(
        [{"name": "main", "state": "failed"}], ("name", "state"), empty="none"
    )
    assert stream.getvalue() == "NAME  STATE\nmain  failed\n"
