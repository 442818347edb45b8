"""How parts look in Telegram: text, keyboard, and answers that are no presses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from agentsup.channels.core.sending import cards
from agentsup.channels.telegram import outgoing
from agentsup.channels.telegram.render import render
from agentsup.kit.clock import SystemClock
from agentsup.kit.entropy import SystemEntropy
from agentsup.model.question import ClosedReason, Decision, Question, QuestionState

AT = 1_790_000_000_000  # 2026-09-21 14:13 UTC
ASKED = Question(
    "q_1", "a", "s", "m", "question", "Which *colour*?", ("red", "blue"), QuestionState.OPEN,
    "", AT, None, None, "",
)  # fmt: skip


def data_of(markup: dict[str, Any] | None) -> list[list[str]]:
    assert markup is not None
    return [[button["callback_data"] for button in row] for row in markup["inline_keyboard"]]


def test_a_question_says_until_when_and_has_its_options_as_buttons() -> None:
    body = {"question_id": "q_1", "text": "Which?", "options": ["red", "blue"], "deadline_at": AT}
    text = cards.text_of("question", body)
    assert text.startswith("Which?\n\n")
    assert "2026-09-21 14:13 UTC" in text
    zone = ZoneInfo("Europe/Berlin")
    assert "2026-09-21 16:13 CEST" in cards.text_of("question", body, timezone=zone)
    assert "Bitte antworte" in cards.text_of("question", body, language="de-AT")
    markup = outgoing.reply_markup("question", body, is_private=True)
    assert data_of(markup) == [["q:q_1:0", "q:q_1:1"]]


def test_what_was_decided_about_a_call_is_said_in_the_readers_language() -> None:
    call = replace(
        ASKED, kind="approval", options=("once", "deny"), state=QuestionState.ANSWERED,
        decision=Decision.DENY, answer_text="it rains", answered_by="Ann", answered_at=AT,
    )  # fmt: skip
    assert "Ablehnen: it rains" in cards.ended_text(call, language="de")
    assert "Deny: it rains" in cards.outcome_text(call)
    own = replace(call, kind="question", options=("once",), decision=Decision.TEXT,
        answer_text="once",
    )  # fmt: skip
    assert "Einmal" not in cards.outcome_text(own, language="de")


def test_wide_options_stand_one_below_the_other() -> None:
    options = ["it worked", "it did not work, do it again", "leave it"]
    body = {"question_id": "q_1", "text": "?", "options": options}
    markup = outgoing.reply_markup("question", body, is_private=False)
    assert [len(row) for row in data_of(markup)] == [1, 1, 1]
    many = {"question_id": "q_1", "text": "?", "options": [str(n) for n in range(7)]}
    markup = outgoing.reply_markup("question", many, is_private=False)
    assert [len(row) for row in data_of(markup)] == [3, 3, 1]


def test_a_question_without_options_opens_a_reply_in_private_only() -> None:
    body = {"question_id": "q_1", "text": "Your name?", "options": []}
    assert outgoing.reply_markup("question", body, is_private=False) is None
    markup = outgoing.reply_markup("question", body, is_private=True)
    assert markup is not None
    assert markup["force_reply"] is True
    assert "/answer" in cards.text_of("question", body)


def test_notes_have_their_buttons() -> None:
    again = outgoing.reply_markup("notice", {"text": "x", "again": 17}, is_private=True)
    assert data_of(again) == [["again:17"]]
    message_id = SystemEntropy(SystemClock()).new_id("msg")
    cancel = outgoing.reply_markup("notice", {"text": "x", "cancel": message_id}, is_private=True)
    assert data_of(cancel) == [[f"cancel:{message_id}"]]
    assert outgoing.reply_markup("answer", {"text": "x"}, is_private=True) is None
    minted = {
        "text": "x",
        "buttons": [[{"label": "A", "data": "b:t"}], [{"label": "W", "url": "u"}]],
    }
    menu = outgoing.reply_markup("notice", minted, is_private=True)
    assert menu is not None
    assert menu["inline_keyboard"][0] == [{"text": "A", "callback_data": "b:t"}]
    assert menu["inline_keyboard"][1] == [{"text": "W", "url": "u"}]


def test_no_data_is_longer_than_the_platform_takes() -> None:
    entropy = SystemEntropy(SystemClock())
    question = {"question_id": entropy.new_id("q"), "text": "?", "options": ["x"] * 100}
    rows = data_of(outgoing.reply_markup("question", question, is_private=True))
    rows += data_of(outgoing.reply_markup("notice", {"again": 10**18}, is_private=True))
    rows += data_of(
        outgoing.reply_markup("notice", {"cancel": entropy.new_id("msg")}, is_private=True)
    )
    assert max(len(data.encode()) for row in rows for data in row) <= 64


def test_labels_are_one_short_line() -> None:
    body = {"question_id": "q_1", "text": "?", "options": ["a\n b" + "x" * 100, "\u200b ", " "]}
    markup = outgoing.reply_markup("question", body, is_private=True)
    assert markup is not None
    labels = [row[0]["text"] for row in markup["inline_keyboard"]]
    assert labels[0].startswith("a bx")
    assert len(labels[0]) == outgoing.MAX_LABEL_CHARS
    assert labels[1:] == ["·", "·"]


@pytest.mark.parametrize(
    "change,part",
    [
        (
            {"state": QuestionState.ANSWERED, "answer_text": "blue", "answered_by": "Ann"},
            "Ann: blue",
        ),
        ({"state": QuestionState.EXPIRED}, "Nobody answered"),
        (
            {
                "state": QuestionState.EXPIRED,
                "closed_reason": ClosedReason.SKIPPED,
                "answered_by": "Ann",
            },
            "Ann left it unanswered",
        ),
        ({"state": QuestionState.CANCELLED}, "Withdrawn"),
    ],
)
def test_the_end_of_a_question_is_shown_below_it(change: dict[str, Any], part: str) -> None:
    ended = replace(ASKED, answered_at=AT, **change)
    (piece,) = render(cards.ended_text(ended))
    assert piece.text.startswith("Which colour?")
    assert part in piece.text.splitlines()[-1]


def test_an_answer_is_shown_as_it_was_written() -> None:
    answer = "*no* `x_y_z` [a](b) <b> # ~~1~~ | 2"
    ended = replace(
        ASKED,
        state=QuestionState.ANSWERED,
        answer_text=answer,
        answered_by="a_b*c*",
        answered_at=AT,
    )
    (piece,) = render(cards.ended_text(ended))
    assert piece.text.endswith(f"a_b*c*: {answer}")
    assert cards.ended_text(ended, is_plain=True).endswith(f"a_b*c*: {answer}")


def test_a_late_word_says_who_when_and_what() -> None:
    answered = replace(
        ASKED, state=QuestionState.ANSWERED, answer_text="blue", answered_by="Ann", answered_at=AT
    )
    assert cards.outcome_text(answered) == "Ann answered this at 2026-09-21 14:13 UTC: blue"
    expired = replace(ASKED, state=QuestionState.EXPIRED, answered_at=AT)
    assert "expired at 2026-09-21 14:13" in cards.outcome_text(expired)
    overdue = replace(ASKED, deadline_at=AT + 60_000)
    assert "expired at 2026-09-21 14:14" in cards.outcome_text(overdue)
    stopped = replace(ASKED, state=QuestionState.CANCELLED, answered_at=AT)
    assert "stopped" in cards.outcome_text(stopped)


@pytest.mark.parametrize(
    "said,meant",
    [
        ("Blue", "blue"), ("  BLUE ", "blue"), ("2", "blue"), ("1", "red"), ("0", None),
        ("3", None), ("9999", None), ("²", None), ("blue please", None), ("", None), ("-1", None),
    ],
)  # fmt: skip
def test_a_text_means_an_option_by_its_words_or_number(said: str, meant: str | None) -> None:
    assert cards.option_of_text(("red", "blue"), said) == meant


def test_words_go_before_numbers() -> None:
    assert cards.option_of_text(("2", "1"), "1") == "1"


@pytest.mark.parametrize(
    "options,emoji,meant",
    [
        (("Yes", "No"), "👍", "Yes"),
        (("Yes", "No"), "👎", "No"),
        (("allow", "deny"), "❤\ufe0f", "allow"),
        (("yes", "approve", "no"), "👍", None),
        (("red", "blue"), "👍", None),
        (("Yes", "No", "Later"), "👎", "No"),
        (("Yes", "Later"), "👍", None),
        (("Cancel",), "👎", None),
        (("Continue",), "❤", None),
        (("yes", "no", "cancel"), "👍", None),
        (("yes", "no"), "😢", None),
        ((), "👍", None),
    ],
)
def test_a_reaction_means_an_option_only_where_it_is_clear(
    options: tuple[str, ...], emoji: str, meant: str | None
) -> None:
    assert cards.option_of_emoji(options, emoji) == meant


def test_notices_and_replies_of_commands_are_shown_as_written() -> None:
    assert cards.is_plain("notice", {"text": "msg_1_2"})
    assert cards.is_plain("answer", {"text": "x", "plain": True})
    assert not cards.is_plain("answer", {"text": "x"})
    assert not cards.is_plain("question", {"text": "x"})
