"""Choices below a text: their numbers, their reactions, and what a press means."""

from __future__ import annotations

import pytest

from agentsup.channels.matrix.choices import (
    ListedChoice,
    by_emoji,
    by_text,
    choices_of,
    emojis,
    from_json,
    listed,
    to_json,
)

YES_NO = (ListedChoice("Yes", "q:1:0"), ListedChoice("no", "q:1:1"))
MANY = tuple(ListedChoice(f"option {n}", f"b:{n}") for n in range(1, 13))


def test_a_part_offers_its_buttons_options_and_offers_in_order() -> None:
    rows = [[{"label": "A", "data": "b:a"}], [{"label": "B", "url": "https://e.org"}]]
    body = {"buttons": rows, "question_id": "q1", "options": ["x", "y"], "again": 7, "cancel": "m"}
    assert choices_of("question", body) == (
        ListedChoice("A", "b:a"),
        ListedChoice("B", url="https://e.org"),
        ListedChoice("x", "q:q1:0"),
        ListedChoice("y", "q:q1:1"),
        ListedChoice("Show again", "again:7"),
        ListedChoice("Cancel", "cancel:m"),
    )
    assert choices_of("answer", {"text": "plain"}) == ()
    assert [c.label for c in choices_of("notice", body, language="de")][-1] == "Abbrechen"


def test_a_list_says_how_to_press() -> None:
    assert listed(YES_NO).body == "1. Yes\n2. no\n\nPress 👍 or 👎, or answer with the number."
    assert listed(MANY[:1]).body == "1. option 1\n\nPress 1️⃣ below, or answer 1."
    assert listed((ListedChoice("Site", url="https://e.org"),)).body == "Site: https://e.org"
    assert listed((ListedChoice(" \n", "b:1"), ListedChoice("x" * 99, "b:2"))).body.startswith(
        "1. ·\n2. " + "x" * 59 + "…\n"
    )
    assert listed(YES_NO, language="de").body.endswith("oder antworte mit der Nummer.")


def test_reactions_are_numbers_or_thumbs() -> None:
    assert emojis(YES_NO) == ("👍", "👎")
    assert emojis(YES_NO[::-1]) == ("1️⃣", "2️⃣"), "thumbs stand in the order of the list"
    assert len(emojis(MANY)) == 10
    assert emojis(()) == ()


def test_a_thumb_means_nothing_where_only_one_side_is_offered() -> None:
    """A note that a message waits offers to cancel it; a thumb down is no such wish."""
    assert by_emoji((ListedChoice("Cancel", "cancel:m"),), "👎") is None
    assert by_emoji((ListedChoice("Yes", "b:1"), ListedChoice("Later", "b:2")), "👍") is None


@pytest.mark.parametrize(
    "emoji, number",
    [("1️⃣", 0), ("1⃣", 0), ("🔟", 9), ("👍", None), ("🎉", None), ("", None)],
)
def test_a_reaction_means_a_number(emoji: str, number: int | None) -> None:
    assert by_emoji(MANY, emoji) == (None if number is None else MANY[number])
    assert by_emoji(MANY[:9], "🔟") is None


@pytest.mark.parametrize("emoji, label", [("👍🏾", "Yes"), ("👎", "no"), ("❤️", "Yes"), ("2️⃣", "no")])
def test_a_clear_yes_or_no_is_understood(emoji: str, label: str) -> None:
    found = by_emoji(YES_NO, emoji)
    assert found is not None
    assert found.label == label


@pytest.mark.parametrize(
    "text, number", [("3", 2), (" 3. ", 2), ("OPTION 3", 2), ("13", None), ("0", None), ("", None)]
)
def test_a_text_means_a_number_or_its_words(text: str, number: int | None) -> None:
    assert by_text(MANY, text) == (None if number is None else MANY[number])


def test_links_have_no_number() -> None:
    choices = (ListedChoice("Site", url="https://e.org"), ListedChoice("Do", "b:1"))
    assert by_text(choices, "1") == choices[1]
    assert by_text(choices, "Site") is None
    assert from_json(to_json(choices)) == (choices[1],)
