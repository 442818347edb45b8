"""A question as the text of an answer, and what is known again of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentsup.api.completions import asking
from agentsup.catalogue import load
from agentsup.model.question import Question, QuestionState

ASKED = Question(
    question_id="q_01abc",
    agent_id="agt",
    session_id="ses",
    message_id="msg",
    kind="question",
    text="Which one?",
    options=("the red one", "the blue one"),
    state=QuestionState.OPEN,
    answer_text="",
    asked_at=1,
    deadline_at=1_800_000_000_000,
    answered_at=None,
    answered_by="",
)


def test_it_shows_options_deadline_and_how_to_answer() -> None:
    assert asking.question_text(ASKED).split("\n\n") == [
        "Which one?",
        "1. the red one\n2. the blue one",
        "⏳ Please answer by 2027-01-15 08:00 UTC.",
        "✎ Answer with your next message, by a number or its words (q_01abc).",
    ]


@pytest.mark.parametrize("language", load().languages)
@pytest.mark.parametrize("options", [ASKED.options, ()])
def test_it_is_known_again(language: str, options: tuple[str, ...]) -> None:
    text = asking.question_text(replace(ASKED, options=options), language)
    assert asking.question_id_in(f"Let me see.\n\n{text}\n ") == "q_01abc"
    assert asking.question_id_in(f"{text}\n\nThen I go on.") is None
    assert asking.question_id_in("What is (q_01abc)? I wonder") is None


@pytest.mark.parametrize("text", ["2", " the  BLUE one", "the blue one\n"])
def test_a_number_or_the_words_choose(text: str) -> None:
    assert asking.answer_from(ASKED, text).option == "the blue one"


def test_what_is_no_option_is_told_and_free_text_is_taken() -> None:
    assert asking.answer_from(ASKED, "green") == asking.QuestionAnswer(
        note="Please answer with one of: the red one · the blue one"
    )
    assert asking.answer_from(replace(ASKED, options=()), "green").option == "green"


def test_a_late_text_gets_the_same_word_before_and_after_the_question_is_closed() -> None:
    closed = replace(ASKED, state=QuestionState.EXPIRED, answered_at=1_800_000_099_000)
    assert asking.late(ASKED) == asking.late(closed)
    assert "expired" in asking.late(closed)
