"""What a person sees while an answer streams in: every character once, in order."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest

from agentsup.cli.chat.conversation import ShownItem, ShownKind
from agentsup.cli.chat.painter import Painter
from agentsup.cli.output.show import width_of


class Paper:
    def __init__(self, width: int = 200) -> None:
        self.lines: list[str] = []
        self.painter = Painter(self.lines.append, lambda: width, plain=True)

    def show(self, kind: ShownKind, text: str = "", message_id: str = "m1") -> None:
        self.painter.show(item(kind, text, message_id))


def item(kind: ShownKind, text: str = "", message_id: str = "m1", **more: Any) -> ShownItem:
    return ShownItem(kind, text, "main", message_id, **more)


BEGIN, END = item(ShownKind.BEGIN), item(ShownKind.END)
delta, answer = partial(item, ShownKind.DELTA), partial(item, ShownKind.ANSWER)
notice, picture = partial(item, ShownKind.NOTICE), partial(item, ShownKind.PICTURE)
SEEN: dict[str, tuple[list[ShownItem], list[str]]] = {
    "what the stream missed comes with the answer": (
        [delta("Hel"), answer("Hello"), delta("lo"), END],
        ["main: Hello"],
    ),
    "an answer without a stream": ([answer("a\nb")], ["main: a", "b"]),
    "an answer other than the stream is shown whole": (
        [delta("draft"), answer("final")],
        ["main: draft", "main: final"],
    ),
    "tools stand between": (
        [
            delta("I ask."),
            *(
                item(ShownKind.TOOL, f"ask_agent {state}", state=state)
                for state in ("started", "finished", "failed")
            ),
            delta(" Done."),
            answer("I ask. Done."),
        ],
        ["main: I ask.", "  · ask_agent started", "  · ask_agent failed", " Done."],
    ),
    "a notice does not break a word in two places": (
        [delta("one "), notice("writer was asked", "m9"), delta("two"), answer("one two")],
        ["main: one ", "* writer was asked", "two"],
    ),
    "a client that comes late sees the text so far and no more": (
        [
            *(picture("one two"), picture("one two three"), delta(" four")),
            answer("one two three four"),
        ],
        ["main: one two three four"],
    ),
    "a turn goes on after a question": (
        [
            *(BEGIN, delta("I need to know."), END),
            item(ShownKind.QUESTION, "Which?", options=("tea", "coffee")),
            *(BEGIN, delta("Coffee."), END, answer("I need to know.Coffee.")),
        ],
        [
            *("main: I need to know.", "main asks: Which?", "  1. tea", "  2. coffee"),
            *("  (type its number)", "Coffee."),
        ],
    ),
    "a turn starts again after a crash": (
        [
            *(BEGIN, delta("1 2 3 "), notice("reconnecting…", ""), picture("1 ")),
            *(delta("2 3 4"), END, answer("1 2 3 4")),
        ],
        ["main: 1 2 3 ", "* reconnecting…", "4"],
    ),
    "a turn is tried again": (
        [BEGIN, delta("first try"), END, BEGIN, delta("second"), END, answer("second")],
        ["main: first try", "main: second"],
    ),
    "what was seen is not written again as long as a new attempt says the same": (
        [
            *(BEGIN, delta("1 2 "), delta("3 4\n5 ")),
            ShownItem(ShownKind.WELCOME, who="main", old=True, state="running"),
            picture("1 2 "),  # of the attempt that the next process makes
            *(delta("3 4\n"), delta("5 6"), delta(" 7"), END, answer("1 2 3 4\n5 6 7")),
        ],
        ["main: 1 2 3 4", "5 6 7"],
    ),
    "an attempt that says something else is shown from its beginning": (
        [delta("first try"), BEGIN, delta("fi"), delta("nal words"), answer("final words")],
        ["main: first try", "main: final words"],
    ),
    "an answer that came while one was away is only completed": (
        [delta("1 2 3"), BEGIN, delta("1 "), answer("1 2 3 4")],
        ["main: 1 2 3 4"],
    ),
    "who comes midway sees the answer once": (
        [picture("two three"), delta(" four"), answer("two three four")],
        ["main: two three four"],
    ),
    "also where the beginning of the text is not kept any more": (
        [picture("two three", is_cut=True), delta(" four"), answer("one two three four")],
        ["main: two three four"],
    ),
}


@pytest.mark.parametrize("case", SEEN)
def test_every_character_is_seen_once(case: str) -> None:
    items, lines = SEEN[case]
    paper = Paper()
    for one in items:
        paper.painter.show(one)
    assert paper.lines == lines


def test_a_line_that_is_being_written_is_held_back() -> None:
    paper = Paper()
    for one in (BEGIN, delta("Hel"), delta("lo\nwor"), delta("ld")):
        paper.painter.show(one)
    assert (paper.lines, paper.painter.tail) == (["main: Hello"], "world")
    for one in (END, answer("Hello\nworld")):
        paper.painter.show(one)
    assert (paper.lines, paper.painter.tail) == (["main: Hello", "world"], "")


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
    assert "\x1b" not in "".join(paper.lines)
