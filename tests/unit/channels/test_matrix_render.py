"""Answers as Matrix's messages: nothing lost, nothing foreign in the HTML, no event too large."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentsup.channels.matrix.render import (
    PIECE_BYTES,
    Piece,
    render,
    render_answer,
    render_partial,
    render_plain,
    weight,
)
from agentsup.channels.text import parse
from agentsup.channels.text.clean import is_unseen
from agentsup.model.answer import (
    AnswerBlocks,
    CodeBlock,
    Style,
    Table,
    TextBlock,
    TextSpan,
)

# From the list of the client-server specification, "m.room.message msgtypes".
ALLOWED = {
    "p": set(),
    "br": set(),
    "h1": set(),
    "h2": set(),
    "h3": set(),
    "h4": set(),
    "h5": set(),
    "h6": set(),
    "blockquote": set(),
    "strong": set(),
    "em": set(),
    "del": set(),
    "code": {"class"},
    "pre": set(),
    "a": {"href"},
    "span": {"data-mx-spoiler"},
    "table": set(),
    "thead": set(),
    "tbody": set(),
    "tr": set(),
    "th": set(),
    "td": set(),
}
CORPUS = {
    "prose": "word **b** & <x> 'q' \"r\" " * 3_000,
    "quotes to escape": "\"'<>&" * 20_000,
    "code": "```py\n" + "    x = '<1>'\n" * 8_000 + "```",
    "one line of code": "```json\n" + '{"a": [1, 2, 3]},' * 5_000 + "\n```",
    "a long table": "|a|b|\n|-|-|\n" + "|<x>|**y** & z|\n" * 2_500,
    "a wide table": "|" + "h|" * 60 + "\n|" + "-|" * 60 + ("\n|" + "value|" * 60) * 200,
    "a cell too large": "|a|b|\n|-|-|\n|x|" + "cell & more " * 9_000 + "|\n|last|row|",
    "many links": "[a](https://example.org/" + "p" * 1_500 + ") " * 2 + "\n\n" + "x",
    "links side by side": "".join(f"[{n % 10}](https://e.org/{'p' * 1_900}{n})" for n in range(60)),
    "a link without end": "[a](https://example.org/" + "p" * 70_000 + ") end",
    "quotes": "> a **b**\n> c\n\nbetween\n\n> d\n" * 900,
    "nested lists": "\n".join("  " * (n % 8) + f"- item {n} **b**" for n in range(2_000)),
    "headings": "# a\n\n## b\n\ntext & more\n\n" * 2_000,
    "families": "👨‍👩‍👧‍👦" * 4_000,
    "right to left": "שלום **עולם** `קוד` مرحبا " * 2_000,
    "html": "<b>x</b> <script>alert(1)</script> &lt; </p></div><img src=x onerror=y>\n" * 500,
    "a bad target": "[a](javascript:alert(1)) [b](data:text/html,x) ![c](https://e.org/x.png)",
    "a language": '```" onclick=x\ncode\n```\n\n```c++\nmore\n```',
    "control characters": "".join(map(chr, range(32))) * 900,
    "halves of pairs": "\ud83d x \ude00 " * 900,
    "white space": " \n\t" * 900,
    "nothing to see": "\u200b\u2800" * 900,
}


class Reader(HTMLParser):
    """Takes our HTML apart; fails for what is not well formed or not ours."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.text = ""
        self.open: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ALLOWED, tag
        assert {name for name, _ in attrs} <= ALLOWED[tag], attrs
        for name, value in attrs:
            if name == "href":
                assert value is not None
                assert value.lower().startswith(("http://", "https://", "ftp://", "mailto:"))
            if name == "class":
                assert value is not None
                assert value.startswith("language-")
                assert " " not in value
        self.tags.append(tag)
        if tag == "br":
            self.text += "\n"
        else:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        pytest.fail(f"a comment: {data!r}")


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert not reader.open
    return reader


def visible(text: str) -> str:
    return "".join(char for char in text if not is_unseen(char))


def shown_by(answer: AnswerBlocks, *, headers: bool = True) -> str:
    """What a person is to read, block by block."""
    parts: list[str] = []
    for block in answer.blocks:
        match block:
            case TextBlock(text) | CodeBlock(text):
                parts.append(text)
            case Table(header, rows):
                shown = (header, *rows) if headers or not rows else rows
                parts += [cell.text for row in shown for cell in row]
    return visible("".join(parts))


def check(piece: Piece, limit: int = PIECE_BYTES) -> Reader:
    assert visible(piece.body)
    assert weight(piece) <= limit
    content = {"msgtype": "m.text", **piece.fields()}
    assert len(json.dumps(content, ensure_ascii=False).encode()) <= limit + 200
    return read(piece.html)


def is_within(small: str, large: str) -> bool:
    """Whether the characters of one stand in the other in this order."""
    rest = iter(large)
    return all(char in rest for char in small)


def has_split_table(answer: AnswerBlocks, pieces: tuple[Piece, ...]) -> bool:
    return len(pieces) > 1 and any(isinstance(block, Table) for block in answer.blocks)


def check_all(source: str, limit: int = PIECE_BYTES) -> tuple[Piece, ...]:
    answer = parse(source)
    pieces = render_answer(answer, limit=limit)
    texts = "".join(visible(check(piece, limit).text) for piece in pieces)
    wanted = shown_by(answer)
    if has_split_table(answer, pieces):
        # The header stands above each group of rows, or in front of each value.
        assert is_within(shown_by(answer, headers=False), texts)
    else:
        assert texts == wanted
    if not any(isinstance(block, Table) for block in answer.blocks):
        assert is_within(wanted, "".join(visible(piece.body) for piece in pieces))
    assert pieces == render(source, limit=limit)
    return pieces


@pytest.mark.parametrize("name", CORPUS)
def test_hard_texts_come_whole_and_in_pieces_that_fit(name: str) -> None:
    check_all(CORPUS[name])


@given(st.text(max_size=400), st.integers(2_000, 6_000))
@example("**a *b** c* `d` [e **f](https://g.h) i**", 2_000)
@example("> - a\n>   ```sh\n>   ls\n>   ```\n>   b\n", 2_000)
def test_any_text_comes_whole(source: str, limit: int) -> None:
    check_all(source, limit)


SNIPPETS = st.sampled_from(
    [
        "word ",
        "**bold** ",
        "*i **b** i* ",
        "`c<d>` ",
        "[l](https://e.org/?a=1&b=2) ",
        "~~s~~ ",
        "\n\n",
        "\n- item\n  - sub\n",
        "\n\n> quoted **b**\n> more\n\n",
        "\n\n```py\nx = '<1>'\n    y\n```\n\n",
        "\n\n|a|b|\n|-|-|\n|1|**2**|\n|<i>|&amp;|\n\n",
        "\n\n# Head *i*\n\n",
        "<script>",
        "&amp;",
        "😀",
        "\u200d",
        "||spoiler|| ",
    ]
)


@given(st.lists(SNIPPETS, max_size=120), st.integers(1_500, 4_000))
def test_any_markdown_comes_whole(snippets: list[str], limit: int) -> None:
    check_all("".join(snippets), limit)


@given(
    st.text("ab <&\n", max_size=60),
    st.lists(
        st.tuples(st.integers(0, 60), st.integers(0, 60), st.sampled_from(list(Style))), max_size=12
    ),
)
def test_spans_that_overlap_any_way_are_nested_tags(
    text: str, raw: list[tuple[int, int, Style]]
) -> None:
    spans = tuple(
        TextSpan(min(a, b, len(text)), min(max(a, b), len(text)), style, "https://e.org/")
        for a, b, style in raw
    )
    for piece in render_answer(AnswerBlocks((TextBlock(text, spans),))):
        assert visible(check(piece).text) == visible(text)


def test_a_table_is_a_table_and_code_has_its_language() -> None:
    (piece,) = render("|a|b|\n|-|-|\n|1|**2**|\n\n```python\nx = 1\n```")
    assert "<thead><tr><th>a</th><th>b</th></tr></thead>" in piece.html
    assert "<td><strong>2</strong></td>" in piece.html
    assert '<pre><code class="language-python">x = 1\n</code></pre>' in piece.html
    assert "```python\nx = 1\n```" in piece.body


def test_rows_of_a_table_come_below_its_header_in_each_message() -> None:
    pieces = check_all(CORPUS["a long table"])
    assert len(pieces) > 3
    assert all("<th>a</th><th>b</th>" in piece.html for piece in pieces)
    assert sum(piece.html.count("<td>&lt;x&gt;</td>") for piece in pieces) == 2_500


def test_code_that_is_cut_is_code_on_both_sides() -> None:
    pieces = check_all(CORPUS["code"])
    assert len(pieces) > 1
    assert all(piece.html.startswith('<pre><code class="language-py">    x') for piece in pieces)


def test_a_heading_goes_with_what_stands_below_it() -> None:
    pieces = render("word " * 300 + "\n\n# Head\n\n" + "text " * 500, limit=4_200)
    assert not any(piece.html.endswith("</h1>") for piece in pieces)
    assert sum("<h1>" in piece.html for piece in pieces) == 1


def test_messages_are_not_nearly_empty() -> None:
    pieces = render("some words and more of them, " * 20_000)
    assert all(weight(piece) > PIECE_BYTES // 2 for piece in pieces[:-1])


def test_a_target_that_nobody_should_open_is_text() -> None:
    (piece,) = render("[a](javascript:alert(1)) and [b](tg://x) and [c](https://e.org)")
    assert piece.html.count("<a ") == 1
    assert '<a href="https://e.org">c</a>' in piece.html


def test_plain_text_is_shown_as_it_is_written() -> None:
    (piece,) = render_plain("  two **stars**\n    indented <b>\n")
    assert piece.html == ""
    assert "two **stars**\n    indented <b>" in piece.body
    long = "a_b " * 40_000
    assert "".join(visible(piece.body) for piece in render_plain(long)) == visible(long)
    assert render_plain(" \n ") == ()


def test_a_partial_text_is_shown_with_its_open_code_closed() -> None:
    assert render_partial("") is None
    assert render_partial("\n\u200b") is None
    piece = render_partial("see\n\n```py\nx = 1")
    assert piece is not None
    assert read(piece.html).tags == ["p", "pre", "code"]
    cut = render_partial("word " * 20_000)
    assert cut is not None
    assert cut.body.endswith("…")
    check(cut, PIECE_BYTES + 100)


def test_pieces_are_joined_with_or_without_html() -> None:
    assert Piece("a", "<p>a</p>").followed_by(Piece("b<")) == Piece(
        "a\n\nb<", "<p>a</p><p>b&lt;</p>"
    )
    assert Piece("a").followed_by(Piece("b")) == Piece("a\n\nb")
    assert Piece("").followed_by(Piece("b", "<p>b</p>")) == Piece("b", "<p>b</p>")


def test_nothing_but_headings_fills_messages_as_other_text_does() -> None:
    found = render("# a\n" * 5_000, limit=4_000)
    assert sum(piece.body.count("a") for piece in found) >= 5_000
    assert len(found) < 200
