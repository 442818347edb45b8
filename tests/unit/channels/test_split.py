"""Splitting: what the passages show together is what the flow shows, each within its limit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsup.channels.text import parse
from agentsup.channels.text.clean import is_unseen
from agentsup.channels.text.layout import Flow, lay_out
from agentsup.channels.text.split import Passage, passages, utf16_len
from agentsup.model.answer import (
    AnswerBlocks,
    CodeBlock,
    Style,
    Table,
    TextBlock,
    TextSpan,
    TextUnit,
)

CELLS = st.text("ab 中😀é", max_size=6).map(lambda text: TextBlock(text.strip()))
ATOMS = [*"abc .!?\n\n\t。א", "e\u0301", "😀", "👨‍👩‍👧", "🇩🇪", "\u200b", "long" * 9]
LINES = st.lists(st.sampled_from(ATOMS), max_size=120).map("".join)


@st.composite
def styled_texts(draw: st.DrawFn) -> TextBlock:
    text = draw(LINES)
    ends = st.lists(st.integers(0, len(text)), min_size=2, max_size=2, unique=True)
    styles = st.sampled_from([Style.BOLD, Style.CODE, Style.QUOTE])
    spans = []
    for _ in range(draw(st.integers(0, 3)) if text else 0):
        start, end = sorted(draw(ends))
        spans.append(TextSpan(start, end, draw(styles)))
    ordered = sorted(spans, key=lambda span: (span.start, -span.end))
    return TextBlock(text, tuple(ordered), heading=draw(st.integers(0, 1)))


@st.composite
def tables(draw: st.DrawFn) -> Table:
    rows = st.lists(st.lists(CELLS, max_size=4).map(tuple), max_size=12).map(tuple)
    return Table(draw(st.lists(CELLS, max_size=3).map(tuple)), draw(rows))


answers = st.builds(
    AnswerBlocks,
    st.lists(
        st.one_of(
            styled_texts(),
            st.builds(CodeBlock, LINES.map(lambda text: text.strip("\n").rstrip()), st.just("py")),
            tables(),
        ),
        max_size=6,
    ).map(tuple),
)
SIZES: dict[TextUnit, Callable[[str], int]] = {
    TextUnit.UTF16: utf16_len,
    TextUnit.BYTES: lambda text: len(text.encode()),
}


def check(flow: Flow, found: tuple[Passage, ...], limit: int, unit: TextUnit) -> None:
    """The promises of ``split``, checked with nothing of its own."""
    at = 0
    for passage in found:
        assert passage.start >= at
        assert all(map(is_unseen, flow.text[at : passage.start])), "lost between passages"
        assert passage.text[passage.repeated :] == flow.text[passage.start : passage.end]
        assert SIZES[unit](passage.text) <= limit
        assert not all(map(is_unseen, passage.text[passage.repeated :]))
        at = passage.end
        for span in passage.spans:
            assert 0 <= span.start < span.end <= len(passage.text)
        if passage.repeated:
            assert any(
                flow.text[r.start : r.body] == passage.text[: passage.repeated]
                and r.body <= passage.start < r.end
                for r in flow.repeats
            )
    assert all(map(is_unseen, flow.text[at:])), "lost at the end"
    # Each visible place has in its passage just the styles that it has in the flow.
    for passage in found:
        for place in range(passage.start, passage.end):
            within = place - passage.start + passage.repeated
            assert [(s.style, s.arg) for s in passage.spans if s.start <= within < s.end] == [
                (s.style, s.arg) for s in flow.spans if s.start <= place < s.end
            ]


@given(answers, st.integers(16, 120), st.sampled_from(TextUnit))
def test_passages_are_the_answer(answer: AnswerBlocks, limit: int, unit: TextUnit) -> None:
    flow = lay_out(answer)
    found = tuple(passages(flow, limit, unit))
    check(flow, found, limit, unit)
    assert tuple(passages(flow, limit, unit)) == found


@given(answers, answers, st.integers(16, 60))
def test_what_comes_later_changes_nothing_earlier(
    a: AnswerBlocks, b: AnswerBlocks, limit: int
) -> None:
    short, long = lay_out(a), lay_out(AnswerBlocks(a.blocks + b.blocks))
    if a.blocks and isinstance(a.blocks[-1], TextBlock) and a.blocks[-1].heading:
        return  # the rest belongs below it
    settled = [p for p in passages(short, limit) if p.end < len(short.text) - limit - 2]
    assert list(passages(long, limit))[: len(settled)] == settled


def texts(source: str, limit: int) -> list[str]:
    flow = lay_out(parse(source))
    found = tuple(passages(flow, limit))
    check(flow, found, limit, TextUnit.UTF16)
    return [passage.text for passage in found]


@pytest.mark.parametrize(
    "source, limit, pieces",
    [
        # a text that just fits, and one that just does not
        ("x" * 16, 16, ["x" * 16]),
        ("x" * 17, 16, ["x" * 16, "x"]),
        ("😀" * 8, 16, ["😀" * 8]),
        ("x" + "😀" * 8, 16, ["x" + "😀" * 7, "😀"]),
        # between blocks, paragraphs, lines, sentences, words
        ("one two three\n\nfour five", 20, ["one two three", "four five"]),
        ("one two\nthree four\nfive", 20, ["one two\nthree four", "five"]),
        (
            "It is so. It was so then.",
            20,
            ["It is so. It was so", "then."],
        ),
        ("It was so then. It is so.", 20, ["It was so then.", "It is so."]),
        ("one two three four five", 20, ["one two three four", "five"]),
        (
            "今天天气很好。我们去公园散步吧，大家一起去",
            16,
            ["今天天气很好。", "我们去公园散步吧，大家一起去"],
        ),
        # a heading stays with what it heads, code stays whole if it fits whole
        ("some words here\n\n# Head\n\nbody text", 28, ["some words here", "Head\n\nbody text"]),
        ("intro\n\n```\na = 1\nb = 2\nc = 3\n```", 20, ["intro", "a = 1\nb = 2\nc = 3"]),
        # indentation within code survives a cut
        ("```\nif a:\n    bb\n    cc\n```", 16, ["if a:\n    bb", "    cc"]),
        ("```\nif a:\n    bb\n\n\n    cc\n```\nend", 16, ["if a:\n    bb", "    cc\n\nend"]),
    ],
)
def test_where_it_is_cut(source: str, limit: int, pieces: list[str]) -> None:
    assert texts(source, limit) == pieces


def test_a_heading_is_kept_with_what_it_heads_even_if_little_stands_before_it() -> None:
    heading = "A heading that takes some room"
    assert texts(f"abc\n\n# {heading}\n\nbody", 40) == ["abc", f"{heading}\n\nbody"]


@pytest.mark.parametrize("cluster", ["é", "🇩🇪", "👨‍👩‍👧‍👦", "👍🏽", "❤️", "각", "x̂̃"])
def test_what_people_count_as_one_character_stays_whole(cluster: str) -> None:
    for lead in range(4):
        pieces = texts("x" * lead + cluster * 30, 24)
        assert len(pieces) > 1
        assert all(set(piece.replace(cluster, "")) <= {"x"} for piece in pieces)


def test_a_character_larger_than_a_message_is_cut_all_the_same() -> None:
    pieces = texts("a" + "\u0301" * 100, 16)
    assert "".join(pieces) == "a" + "\u0301" * 100


def test_code_that_is_cut_is_code_of_its_language_on_both_sides() -> None:
    source = "```rust\n" + "\n".join(f"let a{n} = {n};" for n in range(10_000)) + "\n```"
    flow = lay_out(parse(source))
    found = tuple(passages(flow, 4096))
    check(flow, found, 4096, TextUnit.UTF16)
    assert "\n".join(passage.text for passage in found) == flow.text
    assert all(p.spans == (TextSpan(0, len(p.text), Style.PRE, "rust"),) for p in found)


def test_rows_come_with_their_header() -> None:
    source = "| name | no |\n|---|--:|\n" + "\n".join(f"| row | {n} |" for n in range(100))
    flow = lay_out(parse(source))
    found = tuple(passages(flow, 120))
    check(flow, found, 120, TextUnit.UTF16)
    assert len(found) > 5
    for number, passage in enumerate(found):
        assert passage.text.startswith("name  no\n────  ──\nrow ")
        assert passage.repeated == (len("name  no\n────  ──\n") if number else 0)
        assert passage.spans == (TextSpan(0, len(passage.text), Style.PRE),)


def test_a_table_does_not_begin_at_the_foot_of_a_message() -> None:
    source = "some words before it, x\n\n| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |"
    assert texts(source, 34) == ["some words before it, x", "a  b\n─  ─\n1  2\n3  4"]


def test_a_limit_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="16"):
        tuple(passages(Flow("x"), 15))
