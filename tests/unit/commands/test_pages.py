"""Lists in pages."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agentsup.catalogue import words
from agentsup.commands.dispatch import columns, page_of, turning, wanted_page
from agentsup.model.control import CommandButton


@given(st.integers(0, 60), st.integers(1, 9))
def test_pages_cut_a_list_without_loss(total: int, size: int) -> None:
    items = list(range(total))
    first = page_of(items, 1, size)
    seen = [
        each for number in range(1, first.count + 1) for each in page_of(items, number, size).items
    ]
    assert seen == items
    assert all(
        0 < len(page_of(items, n, size).items) <= size for n in range(1, first.count + 1) if total
    )


@given(st.integers(0, 60), st.integers(1, 9), st.integers(-3, 99))
def test_turning_leads_to_pages_that_exist(total: int, size: int, number: int) -> None:
    page = page_of(list(range(total)), number, size)
    assert 1 <= page.number <= page.count
    rows = turning(page, "/list")
    assert len(rows) == (page.count > 1)
    for button in (b for row in rows for b in row):
        command, _, wanted = button.command.partition(" ")
        assert command == "/list"
        target = wanted_page(wanted)
        assert target is not None
        assert page_of(list(range(total)), target, size).number == target


def test_a_list_that_has_become_shorter_shows_its_last_page() -> None:
    page = page_of("abc", 7, 2)
    assert (page.items, page.number, page.heading(words())) == (("c",), 2, "3 to 3 of 3")
    assert page_of("ab", 1, 2).heading(words()) == ""


def test_the_page_is_named_by_a_mark_that_no_name_has() -> None:
    assert wanted_page("") == 1
    assert wanted_page("#4") == 4
    assert wanted_page("#0") == 1
    assert wanted_page("4") is None
    assert wanted_page("#four") is None
    assert wanted_page("#9999999") is None


def test_columns() -> None:
    buttons = [CommandButton(str(n), "/x") for n in range(5)]
    assert [len(row) for row in columns(buttons, 2)] == [2, 2, 1]
    assert columns([], 2) == ()
