"""What a person sees while an answer streams in: every character once, in order."""

from __future__ import annotations

import random

import pytest

from agentsup.cli.chat.conversation import ShownItem, ShownKind
from agentsup.cli.chat.painter import Painter
from agentsup.cli.output.show import width_of


class Paper:
    def __init__(self, width: int = 200) -> None:
        self.lines: list[str] = []
        self.painter = Painter(self.lines.append, lambda: width, plain=True)

    def show(
        self,
        kind: ShownKind,
        text: str = "",
        message_id: str = "m1",
        *,
        ok: bool = True,
        state: str = "",
    ) -> None:
        self.painter.show(ShownItem(kind, text, "main", message_id, ok=ok, state=state))

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def test_a_streamed_answer_is_shown_once() -> None:
    paper = Paper()
    paper.show(ShownKind.BEGIN)
    for piece in ("Hel", "lo\nwor", "ld"):
        paper.show(ShownKind.DELTA, piece)
    assert paper.lines == ["main: Hello"]
    assert paper.painter.tail == "world"
    paper.show(ShownKind.END)
    paper.show(ShownKind.ANSWER, "Hello\nworld")
    assert paper.lines == ["main: Hello", "world"]
    assert paper.painter.tail == ""


def test_what_the_stream_missed_comes_with_the_answer() -> None:
    paper = Paper()
    paper.show(ShownKind.DELTA, "Hel")
    paper.show(ShownKind.ANSWER, "Hello")
    paper.show(ShownKind.DELTA, "lo")
    paper.show(ShownKind.END)
    assert paper.lines == ["main: Hello"]


def test_an_answer_without_a_stream() -> None:
    paper = Paper()
    paper.show(ShownKind.ANSWER, "a\nb")
    assert paper.lines == ["main: a", "b"]


def test_an_answer_other_than_the_stream_is_shown_whole() -> None:
    paper = Paper()
    paper.show(ShownKind.DELTA, "draft")
    paper.show(ShownKind.ANSWER, "final")
    assert paper.lines == ["main: draft", "main: final"]


def test_tools_stand_between() -> None:
    paper = Paper()
    paper.show(ShownKind.DELTA, "I ask.")
    for state in ("started", "finished", "failed"):
        paper.show(ShownKind.TOOL, f"ask_agent {state}", state=state)
    paper.show(ShownKind.DELTA, " Done.")
    paper.show(ShownKind.ANSWER, "I ask. Done.")
    assert paper.lines == [
        "main: I ask.",
        "  · ask_agent started",
        "  · ask_agent failed",
        " Done.",
    ]


def test_a_notice_does_not_break_a_word_in_two_places() -> None:
    paper = Paper()
    paper.show(ShownKind.DELTA, "one ")
    paper.show(ShownKind.NOTICE, "writer was asked", message_id="m9")
    paper.show(ShownKind.DELTA, "two")
    paper.show(ShownKind.ANSWER, "one two")
    assert paper.lines == ["main: one ", "* writer was asked", "two"]


def test_a_client_that_comes_late_sees_the_text_so_far_and_no_more() -> None:
    paper = Paper()
    paper.show(ShownKind.PICTURE, "one two")
    paper.show(ShownKind.PICTURE, "one two three")
    paper.show(ShownKind.DELTA, " four")
    paper.show(ShownKind.ANSWER, "one two three four")
    assert paper.lines == ["main: one two three four"]


def test_a_turn_that_goes_on_after_a_question() -> None:
    paper = Paper()
    paper.show(ShownKind.BEGIN)
    paper.show(ShownKind.DELTA, "I need to know.")
    paper.show(ShownKind.END)
    paper.painter.show(
        ShownItem(ShownKind.QUESTION, "Which?", "main", "m1", options=("tea", "coffee"))
    )
    paper.show(ShownKind.BEGIN)
    paper.show(ShownKind.DELTA, "Coffee.")
    paper.show(ShownKind.END)
    paper.show(ShownKind.ANSWER, "I need to know.Coffee.")
    assert paper.lines == [
        "main: I need to know.",
        "main asks: Which?",
        "  1. tea",
        "  2. coffee",
        "  (type its number)",
        "Coffee.",
    ]


def test_a_turn_that_starts_again_after_a_crash() -> None:
    paper = Paper()
    paper.show(ShownKind.BEGIN)
    paper.show(ShownKind.DELTA, "1 2 3 ")
    paper.show(ShownKind.NOTICE, "reconnecting…", message_id="")
    paper.show(ShownKind.PICTURE, "1 ")
    paper.show(ShownKind.DELTA, "2 3 4")
    paper.show(ShownKind.END)
    paper.show(ShownKind.ANSWER, "1 2 3 4")
    assert paper.lines == ["main: 1 2 3 ", "* reconnecting…", "4"]


def test_a_turn_that_is_tried_again() -> None:
    paper = Paper()
    for text in ("first try", "second"):
        paper.show(ShownKind.BEGIN)
        paper.show(ShownKind.DELTA, text)
        paper.show(ShownKind.END)
    paper.show(ShownKind.ANSWER, "second")
    assert paper.lines == ["main: first try", "main: second"]


@pytest.mark.parametrize("width", [24, 40, 80])
def test_lines_are_broken_at_spaces_and_lose_nothing(width: int) -> None:
    words = "the quick brown fox jumps over the lazy dog and runs away from it all 日本語"
    chance = random.Random(width)
    paper = Paper(width)
    rest = words
    while rest:
        cut = chance.randint(1, 7)
        paper.show(ShownKind.DELTA, rest[:cut])
        rest = rest[cut:]
    paper.show(ShownKind.ANSWER, words)
    assert " ".join(paper.lines) == f"main: {words}"
    assert max(map(width_of, paper.lines)) < width


def test_a_word_longer_than_the_line_is_broken_hard() -> None:
    paper = Paper(24)
    paper.show(ShownKind.ANSWER, "")
    paper.show(ShownKind.DELTA, "x" * 100, message_id="m2")
    paper.show(ShownKind.END, message_id="m2")
    assert "".join(paper.lines).replace("main:", "").strip() == "x" * 100


def test_escape_sequences_of_an_answer_do_nothing() -> None:
    paper = Paper()
    paper.show(ShownKind.DELTA, "\x1b[2J")
    paper.show(ShownKind.ANSWER, "\x1b[2J!")
    assert "\x1b" not in paper.text


def test_an_attempt_after_a_crash_goes_on_where_the_first_one_was() -> None:
    """What the person has seen is not written again as long as the new attempt says the same."""
    paper = Paper()
    paper.show(ShownKind.BEGIN)
    for piece in ("1 2 ", "3 4\n5 "):
        paper.show(ShownKind.DELTA, piece)
    paper.painter.show(ShownItem(ShownKind.WELCOME, who="main", old=True, state="running"))
    paper.show(ShownKind.PICTURE, "1 2 ")  # of the attempt that the next process makes
    for piece in ("3 4\n", "5 6", " 7"):
        paper.show(ShownKind.DELTA, piece)
    paper.show(ShownKind.END)
    paper.show(ShownKind.ANSWER, "1 2 3 4\n5 6 7")
    assert paper.lines == ["main: 1 2 3 4", "5 6 7"]


def test_an_attempt_after_a_crash_that_says_something_else_is_shown_from_its_beginning() -> None:
    paper = Paper()
    paper.show(ShownKind.DELTA, "first try")
    paper.show(ShownKind.BEGIN)
    paper.show(ShownKind.DELTA, "fi")
    paper.show(ShownKind.DELTA, "nal words")
    paper.show(ShownKind.ANSWER, "final words")
    assert paper.lines == ["main: first try", "main: final words"]


def test_an_answer_that_came_while_one_was_away_is_only_completed() -> None:
    paper = Paper()
    paper.show(ShownKind.DELTA, "1 2 3")
    paper.show(ShownKind.BEGIN)
    paper.show(ShownKind.DELTA, "1 ")
    paper.show(ShownKind.ANSWER, "1 2 3 4")
    assert paper.lines == ["main: 1 2 3 4"]


@pytest.mark.parametrize("is_cut", [False, True])
def test_who_comes_midway_sees_the_answer_once(is_cut: bool) -> None:
    """``is_cut``: the text is so long that its beginning is not kept any more."""
    paper = Paper()
    paper.painter.show(ShownItem(ShownKind.PICTURE, "two three", "main", "m1", is_cut=is_cut))
    paper.show(ShownKind.DELTA, " four")
    paper.show(ShownKind.ANSWER, ("one " if is_cut else "") + "two three four")
    assert paper.lines == ["main: two three four"]
