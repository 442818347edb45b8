"""Tables on a phone."""

from __future__ import annotations

import pytest
from wcwidth import wcswidth

from agentsup.channels.text import parse
from agentsup.channels.text.layout import PHONE_COLUMNS, align, lay_out
from agentsup.model.answer import AnswerBlocks, Style, Table, TextBlock


def shown(source: str) -> str:
    return lay_out(parse(source)).text


def test_a_narrow_table_is_aligned() -> None:
    source = "| Name | Price | x |\n|:--|--:|:-:|\n| Tea | 3.50 | a |\n| Coffee | 12.00 | bcd |"
    assert shown(source).split("\n") == [
        "Name    Price   x",
        "──────  ─────  ───",
        "Tea      3.50   a",
        "Coffee  12.00  bcd",
    ]


def test_columns_are_equal_for_the_eye() -> None:
    source = "| a | b |\n|---|---|\n| 中文 | 1 |\n| 👨‍👩‍👧 | 2 |\n| é | 3 |\n| 🇩🇪x | 4 |"
    lines = shown(source).split("\n")
    starts = {
        wcswidth(line[: line.rindex(digit)]) for line, digit in zip(lines[2:], "1234", strict=True)
    }
    assert starts == {6}


def test_a_wide_table_is_a_record_per_row() -> None:
    source = (
        "| Country | Capital city | Inhabitants |\n|---|---|---|\n"
        "| Liechtenstein | [Vaduz](https://vaduz.li) | 5,696 |\n| San Marino | San Marino | |"
    )
    flow = lay_out(parse(source))
    assert flow.text == (
        "Country: Liechtenstein\nCapital city: Vaduz\nInhabitants: 5,696\n\n"
        "Country: San Marino\nCapital city: San Marino"
    )
    assert [(s.style, flow.text[s.start : s.end]) for s in flow.spans] == [
        (Style.BOLD, "Country: Liechtenstein"),
        (Style.LINK, "Vaduz"),
        (Style.BOLD, "Country: San Marino"),
    ]


def test_a_link_in_a_narrow_table_stays_a_link() -> None:
    flow = lay_out(parse("| a |\n|---|\n| [x](https://y.z) |"))
    assert [span.arg for span in flow.spans if span.style is Style.LINK] == ["https://y.z"]


def test_sixty_columns() -> None:
    header = "|".join(f"h{n}" for n in range(60))
    row = "|".join(f"v{n}" for n in range(60))
    lines = shown(f"|{header}|\n{'|-' * 60}|\n|{row}|").split("\n")
    assert lines == [f"h{n}: v{n}" for n in range(60)]


@pytest.mark.parametrize(
    "source, text",
    [
        ("| a | b |\n|---|---|", "a  b\n─  ─"),
        ("| | |\n|---|---|\n| 1 | 2 |", "1  2"),
        ("| a | b |\n|---|---|\n| 1 |", "a  b\n─  ─\n1"),
        ("| a |\n|---|\n| 1 | 2 |", "a\n─  ─\n1  2"),
        ("| | |\n|---|---|", ""),
    ],
)
def test_odd_tables(source: str, text: str) -> None:
    assert shown(source) == text


def test_exactly_the_width_of_a_phone() -> None:
    fits = Table((TextBlock("x" * 30), TextBlock("yy")), ())
    assert align(fits) is not None
    assert align(Table((TextBlock("x" * 31), TextBlock("yy")), ())) is None
    assert PHONE_COLUMNS == 34
    assert lay_out(AnswerBlocks((Table((), ()),))).text == ""
