"""Markdown as models write it, to blocks."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsup.channels.text.clean import clean, is_blank
from agentsup.channels.text.layout import lay_out
from agentsup.channels.text.markdown import MAX_MARKS, parse
from agentsup.model.answer import Align, CodeBlock, Style, Table, TextBlock


def only(source: str) -> TextBlock:
    (block,) = parse(source).blocks
    assert isinstance(block, TextBlock)
    return block


def styled(text: TextBlock) -> list[tuple[str, str]]:
    return [(span.style.value, text.text[span.start : span.end]) for span in text.spans]


def shown(source: str) -> str:
    blocks = parse(source).blocks
    assert all(isinstance(block, TextBlock | CodeBlock) for block in blocks)
    return "\n\n".join(block.text for block in blocks if isinstance(block, TextBlock | CodeBlock))


def test_inline_styles() -> None:
    text = only("**b *bi*** `c` ~~s~~ [l](https://x.y/z) <https://q.r>")
    assert text.text == "b bi c s l https://q.r"
    assert styled(text) == [
        ("bold", "b bi"),
        ("italic", "bi"),
        ("code", "c"),
        ("strike", "s"),
        ("link", "l"),
        ("link", "https://q.r"),
    ]
    assert [span.arg for span in text.spans if span.style is Style.LINK] == [
        "https://x.y/z",
        "https://q.r",
    ]


@pytest.mark.parametrize(
    "source, text",
    [
        ("line one\nline two  \nline three", "line one\nline two\nline three"),
        ("a ** b * c _ d ` e ~~ f", "a ** b * c _ d ` e ~~ f"),
        ("**never closed", "**never closed"),
        ("2 * 3 * 4, snake_case_name", "2 * 3 * 4, snake_case_name"),
        ("<div>not **markup**</div>", "<div>not markup</div>"),
        ("<script>\nx\n</script>", "<script>\nx\n</script>"),
        ("a &lt; b &amp;&amp; c", "a < b && c"),
        ("para\n---\nnext", "para\n\n———\n\nnext"),
        ("[1]: https://example.org\n[x]: y", "[1]: https://example.org\n[x]: y"),
        ("see [render.py](src/a%20b.py#L3)", "see render.py (src/a b.py#L3)"),
        ("see [src/a.py](src/a.py) and [top](#top)", "see src/a.py and top"),
        ("[danger](javascript:alert(1))", "[danger](javascript:alert(1))"),
        ("![a cat](https://x.y/c.png)![](d.png)", "a catd.png"),
        ("# One\n## Two", "One\n\nTwo"),
        (
            "- a\n- b\n  1. c\n     - d\n       - e\n- f",
            "• a\n• b\n  1. c\n    ▪ d\n      ▪ e\n• f",
        ),
        ("0. zero\n1. one", "0. zero\n1. one"),
        ("7) seven\n8) eight", "7. seven\n8. eight"),
        ("- [ ] todo\n- [x] done\n1. [X] both", "☐ todo\n☑ done\n\n1. ☑ both"),
        ("- a\n\n- b\n\n  more", "• a\n\n• b\n\n  more"),
        ("-\n- x", "• \n• x"),
        ("- ```\n  code\n  ```\n- b", "•\n\ncode\n\n• b"),
        ("> a\n> b\n\nc", "a\nb\n\nc"),
        ("> - a\n> - b\n>\n> c", "• a\n• b\n\nc"),
        ("- x\n  > q\n- y", "• x\n\n  q\n• y"),
        ("    indented\n      code", "indented\n  code"),
    ],
)
def test_what_is_seen(source: str, text: str) -> None:
    assert shown(source) == text


@pytest.mark.parametrize(
    "source, url",
    [
        ("(see https://a.b/c_d_e).", "https://a.b/c_d_e"),
        ("https://a.b/x*y*z and", "https://a.b/x*y*z"),
        ("**https://a.b/c**", "https://a.b/c"),
        ("https://en.wikipedia.org/wiki/A_(b), yes", "https://en.wikipedia.org/wiki/A_(b)"),
        ("见 https://a.b/c。好", "https://a.b/c"),
        ("HTTPS://A.b!", "HTTPS://A.b"),
    ],
)
def test_bare_urls_are_links_and_stay_whole(source: str, url: str) -> None:
    text = only(source)
    links = [span for span in text.spans if span.style is Style.LINK]
    assert [text.text[span.start : span.end] for span in links] == [url]
    assert links[0].arg == url


@pytest.mark.parametrize(
    "source", [":" * 100_000, "https:" * 20_000, "https://a.b/" + ")" * 100_000], ids=len
)
def test_an_answer_made_to_be_slow_is_not(source: str) -> None:
    assert only(source).text == source


@pytest.mark.parametrize("source", ["https://", "xhttps://a.b", "ftp://a.b", "http:/a", "://"])
def test_what_is_no_url_is_no_link(source: str) -> None:
    assert not only(source).spans
    assert only(source).text == source


def test_a_heading_keeps_its_level_and_its_styles() -> None:
    assert parse("### A `b`").blocks == (TextBlock("A b", only("A `b`").spans, heading=3),)


def test_a_quote_is_a_span_and_ends_at_code() -> None:
    first, code, second = parse("> a\n>\n> ```sh\n> ls\n> ```\n> b").blocks
    assert isinstance(first, TextBlock)
    assert isinstance(second, TextBlock)
    assert styled(first) == [("quote", "a")]
    assert code == CodeBlock("ls", "sh")
    assert styled(second) == [("quote", "b")]


@pytest.mark.parametrize(
    "source, code",
    [
        ("```py\na = 1\n\n  b\n```", CodeBlock("a = 1\n\n  b", "py")),
        ("~~~\nx\n~~~", CodeBlock("x")),
        ("````md\n```\ninner\n```\n````", CodeBlock("```\ninner\n```", "md")),
        ("```py title=x\nstill open **x**", CodeBlock("still open **x**", "py")),
        ("```\n    indented first\n```", CodeBlock("    indented first")),
    ],
)
def test_fences(source: str, code: CodeBlock) -> None:
    assert parse(source).blocks == (code,)


@pytest.mark.parametrize("source", ["", " \n\t", "```\n```", "```", "```py\n\n\n"])
def test_nothing_to_see_is_no_block(source: str) -> None:
    assert parse(source).blocks == ()


def test_tables_keep_alignment_styles_and_cells_too_many() -> None:
    source = "| a | **b** | c |\n|:--|:-:|--:|\n| 1 | x \\| y | 3 | extra `z` |\n| one<br>two |\n"
    (table,) = parse(source).blocks
    assert isinstance(table, Table)
    assert [cell.text for cell in table.header] == ["a", "b", "c"]
    assert table.align == (Align.LEFT, Align.CENTER, Align.RIGHT)
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["1", "x | y", "3", "extra z"],
        ["one\ntwo", "", ""],
    ]
    assert styled(table.rows[0][3]) == [("code", "z")]


def test_deeper_than_anyone_reads_is_shown_as_it_is() -> None:
    source = "> " * 200 + "the core"
    assert parse(source).blocks == (TextBlock(source),)
    lists = "\n".join("  " * depth + "- item" for depth in range(100))
    assert (
        "".join(b.text for b in parse(lists).blocks if isinstance(b, TextBlock)).count("item")
        == 100
    )


def test_control_characters_and_halves_of_characters() -> None:
    assert shown("a\x00b\x07c") == "a\ufffdb\ufffdc"
    assert shown("\x1b[1;31mred\x1b[0m \x1b]8;;http://x\x07link") == "red link"
    assert shown("\ud83d\ude00 \ud83d x \ude00") == "😀 \ufffd x \ufffd"
    assert shown("a\r\nb\rc\u2028d") == "a\nb\nc\nd"
    assert shown("abc \u202eevil\u202c") == "abc evil"
    assert clean("tab\tstays") == "tab\tstays"


@pytest.mark.parametrize(
    "text", ["", " \n", "\u200b\u200d", "\u2800", "\ufe0f", "\u3164", "\ufeff"]
)
def test_what_cannot_be_seen_is_blank(text: str) -> None:
    assert is_blank(text)
    assert not is_blank(text + "x")


@given(st.text())
def test_any_text_parses_to_clean_blocks(text: str) -> None:
    for block in parse(text).blocks:
        if isinstance(block, TextBlock):
            assert block.text.strip()
            block.text.encode()
            assert all(0 <= s.start < s.end <= len(block.text) for s in block.spans)
            assert list(block.spans) == sorted(block.spans, key=lambda s: (s.start, -s.end))


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, list[str]]:
    """Markdown of every shape, and the words in it in reading order."""
    count = iter(range(10_000))
    words: list[str] = []

    def word() -> str:
        words.append(f"w{next(count)}w")
        return words[-1]

    def inline() -> str:
        forms = draw(st.lists(st.sampled_from("ab*i`sl\n"), min_size=1, max_size=6))
        return " ".join(
            {
                "*": "**{}**",
                "i": "*{}*",
                "`": "`{}`",
                "s": "~~{}~~",
                "l": "[{}](https://x.y)",
                "\n": "{}\n",
            }.get(form, "{}").format(word())
            for form in forms
        ).strip()

    def block(depth: int) -> str:
        kind = draw(st.sampled_from(["p", "h", "ul", "ol", "q", "code", "t"]))
        if kind == "h":
            return "## " + inline().replace("\n", " ")
        if kind == "code":
            return (
                "```py\n"
                + "\n".join("  " + word() for _ in range(draw(st.integers(1, 9))))
                + "\n```"
            )
        if kind == "t" and not depth:
            columns = draw(st.integers(1, 4))

            def row() -> str:
                return "| " + " | ".join(inline().replace("\n", " ") for _ in range(columns)) + " |"

            # Records name the columns again for each row, between their values.
            rows = [row(), "|---" * columns + "|"]
            return "\n".join(
                rows + [row() for _ in range(draw(st.integers(0, 1)) if columns < 2 else 0)]
            )
        if kind in {"ul", "ol", "q"} and depth < 3:
            mark = {"ul": "- ", "ol": "1. ", "q": "> "}[kind]
            rest = "> " if kind == "q" else " " * len(mark)
            inner = "\n\n".join(block(depth + 1) for _ in range(draw(st.integers(1, 3))))
            first, *more = inner.split("\n")
            return "\n".join([mark + first, *((rest + line).rstrip() for line in more)])
        return inline()

    source = "\n\n".join(block(0) for _ in range(draw(st.integers(1, 6))))
    return source, words


@given(documents())
def test_no_word_of_an_answer_is_lost_doubled_or_moved(document: tuple[str, list[str]]) -> None:
    source, words = document
    assert re.findall(r"w\d+w", lay_out(parse(source)).text) == words


def test_a_text_of_nothing_but_marks_is_shown_as_written() -> None:
    source = "*_~" * (MAX_MARKS // 3 + 1)
    assert only(source).text == source
    assert not only(source).spans
