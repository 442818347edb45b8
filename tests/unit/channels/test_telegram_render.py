"""Answers as Telegram's messages: limits, entities, white space, previews."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentsup.channels.telegram.render import (
    MAX_ENTITIES,
    Piece,
    render,
    render_answer,
    render_partial,
)
from agentsup.channels.text import parse
from agentsup.channels.text.clean import is_unseen
from agentsup.channels.text.layout import lay_out
from agentsup.channels.text.split import utf16_len
from agentsup.model.answer import (
    AnswerBlocks,
    Style,
    TextBlock,
    TextSpan,
)

TYPES = {
    "bold",
    "italic",
    "strikethrough",
    "spoiler",
    "code",
    "pre",
    "text_link",
    "blockquote",
    "expandable_blockquote",
}
FENCED = "```python\nprint('x')\n"
CORPUS = {
    "a bold stretch over the cut": "x" * 4090 + " **bold words go on and on** end",
    "a link over the cut": "y " * 2045 + "[a label of many words](https://example.org/a?b=c#d) end",
    "right to left": "שלום **עולם** `קוד` مرحبا\u200f بالعالم " * 300,
    "families": "👨‍👩‍👧‍👦" * 900,
    "flags": "🇩🇪🇫🇷" * 700,
    "marks without end": "a" + "\u0301" * 9_000,
    "4096 exactly": "x" * 4096,
    "4097": "x" * 4097,
    "4096 in pairs": "😀" * 2048,
    "one over, in pairs": "x" + "😀" * 2048,
    "fence of 10,000 lines": "```py\n" + "    x = 1\n" * 10_000 + "```",
    "fence without an end": "text\n" + FENCED * 900,
    "one line of code": "```json\n" + '{"a": [1, 2, 3]},' * 1_000 + "\n```",
    "60 columns": "|" + "h|" * 60 + "\n|" + "-|" * 60 + ("\n|" + "value|" * 60) * 20,
    "2,000 empty cells": "|" + "h|" * 100 + "\n|" + "-|" * 100 + "\n|x" * 20,
    "60,000 empty cells": "|" + "h|" * 300 + "\n|" + "-|" * 300 + "\n|x" * 200,
    "nested lists": "\n".join(" " * 2 * (n % 12) + f"- item {n} **b**" for n in range(800)),
    "unbalanced stars": "**a *b " * 1_500,
    "unbalanced backticks": "`a ``b " * 1_500,
    "backticks of all lengths": " ".join("`" * n for n in range(120)),
    "brackets": "[" * 20_000,
    "images": "![" * 10_000,
    "quotes in quotes": "> " * 500 + "x",
    "a long quote": "> line\n" * 900,
    "control characters": "".join(map(chr, range(32))) * 200 + "\x7f\x9f end",
    "halves of pairs": "\ud83d x \ude00 " * 900,
    "white space": " \n\t" * 3_000,
    "nothing to see": "\u200b\u2800" * 5_000,
    "something in much nothing": "\u200b" * 9_000 + "x" + "\u200b" * 9_000,
    "two hundred bold words": "**a** b " * 200,
    "html": "<b>x</b> <script>alert(1)</script> &lt; &amp;amp; </div>\n" * 200,
    "code in bold in a quote": "> **a `b` c [`d`](https://e.f) *g***\n" * 50,
    "code in a list in a quote": "> - a\n>   ```sh\n>   ls\n>   ```\n>   b\n" * 60,
    "a heading at the foot": "word " * 815 + "\n\n# Head\n\nbody " + "text " * 100,
    "windows": "a\r\n\r\nb\r\n```\r\nc\r\n```\r\n" * 300,
    "data url": "![x](data:image/png;base64," + "A" * 9_000 + ")",
}


def visible(text: str) -> str:
    return "".join(char for char in text if not is_unseen(char))


def utf16(text: str) -> bytes:
    return text.encode("utf-16-le")


def check(piece: Piece, limit: int) -> None:
    """What the platform demands of one message; written from its documentation."""
    size = utf16_len(piece.text)
    assert 1 <= size <= limit
    assert visible(piece.text)
    assert piece.text == piece.text.rstrip()
    lead = len(piece.text) - len(piece.text.lstrip())
    begins_as_code = any(e["type"] == "pre" and e["offset"] == 0 for e in piece.entities)
    assert not lead or begins_as_code
    json.dumps(piece.fields(), ensure_ascii=False).encode()
    assert len(piece.entities) <= MAX_ENTITIES
    offsets = [entity["offset"] for entity in piece.entities]
    assert offsets == sorted(offsets)
    for entity in piece.entities:
        start, end = entity["offset"], entity["offset"] + entity["length"]
        assert entity["type"] in TYPES
        assert 0 <= start < end <= size
        raw = utf16(piece.text)[2 * start : 2 * end]
        assert raw.decode("utf-16-le").strip()  # raises for half a pair
        assert ("url" in entity) == (entity["type"] == "text_link")
    for one in piece.entities:
        for other in piece.entities:
            if one is other or one["type"] == other["type"]:
                continue
            overlap = max(one["offset"], other["offset"]) < min(
                one["offset"] + one["length"], other["offset"] + other["length"]
            )
            if "pre" in {one["type"], other["type"]}:
                assert not overlap
            if one["type"] == "code":
                assert not overlap or "blockquote" in other["type"]


def check_all(source: str, limit: int = 4096) -> tuple[Piece, ...]:
    pieces = render(source, limit=limit)
    for piece in pieces:
        check(piece, limit)
    flow = lay_out(parse(source))
    if not flow.repeats:
        assert visible("".join(p.text for p in pieces)) == visible(flow.text)
    assert render(source, limit=limit) == pieces
    partial = render_partial(source, limit=limit)
    assert (partial is None) == (not pieces)
    if partial is not None:
        check(partial, limit)
        assert partial.text.endswith("…") or visible(partial.text) == visible(flow.text)
    return pieces


@pytest.mark.parametrize("name", CORPUS)
@pytest.mark.parametrize("limit", [4096, 1024, 97])
def test_nasty_answers(name: str, limit: int) -> None:
    pieces = check_all(CORPUS[name], limit)
    if name not in {"white space", "nothing to see"}:
        assert pieces


@pytest.mark.parametrize(
    "storm", ["[" * 200_000, "![" * 100_000, "|" + "h|" * 300 + "\n|" + "-|" * 300 + "\n|x" * 3_000]
)
def test_no_text_costs_the_square_of_its_length(storm: str) -> None:
    """Unguarded, each of these takes the parser more than the time a test has."""
    assert visible("".join(piece.text for piece in render(storm))) == visible(storm)


MARKUP = st.sampled_from(
    [
        *("**", "*", "`", "~~", "[", "](https://x.y/z)", "](file)", "> ", "- ", "1. ", "# ", "|"),
        *("\n", "\n\n", "\n```py\n", "\n```\n", "\n|a|b|\n|-|-|\n", "\n---\n", "  ", "    ", "\t"),
        *(
            "word ",
            "word. ",
            "中文。",
            "😀",
            "🇩🇪",
            "👨‍👩‍👧",
            "e\u0301",
            "\u200b",
            "\x00",
            "\ud83d",
            "\\",
            "<b>",
        ),
        *("https://a.b/c_d ", "![", "||", "- [ ] ", "&amp;", "שלום "),
    ]
)


@given(st.lists(MARKUP, max_size=60).map("".join), st.sampled_from([40, 97, 300, 4096]))
@example("x" * 39 + "😀", 40)
def test_any_markup(source: str, limit: int) -> None:
    check_all(source, limit)


@given(st.text(max_size=300))
def test_any_text(source: str) -> None:
    check_all(source, 60)


def entities(source: str) -> list[tuple[str, str]]:
    (piece,) = render(source)
    found = []
    for e in piece.entities:
        raw = utf16(piece.text)[2 * e["offset"] : 2 * (e["offset"] + e["length"])]
        found.append((e["type"], raw.decode("utf-16-le")))
    return found


def test_offsets_count_utf16_units() -> None:
    (piece,) = render("😀 **b** 👨‍👩‍👧 `c`")
    assert piece.entities == (
        {"type": "bold", "offset": 3, "length": 1},
        {"type": "code", "offset": 14, "length": 1},
    )


@pytest.mark.parametrize(
    "source, expected",
    [
        ("**a `b` c**", [("bold", "a"), ("code", "b"), ("bold", "c")]),
        ("**a *b* c**", [("bold", "a b c"), ("italic", "b")]),
        ("[`f()`](https://x.y)", [("text_link", "f()")]),
        ("# a **b**", [("bold", "a b")]),
        ("~~gone~~", [("strikethrough", "gone")]),
        ("> quote `c`", [("blockquote", "quote c"), ("code", "c")]),
        ("```py\nx\n```", [("pre", "x")]),
        ("[a](tg://user?id=1) [b](mailto:c@d.e)", [("text_link", "a"), ("text_link", "b")]),
        ("[a](ftp://x.y) [b](/c) [d](https:///e)", []),
        ("** a **", []),
        ("> " + "x" * 700, [("expandable_blockquote", "x" * 700)]),
        ("> a\n" * 12, [("expandable_blockquote", "\n".join("a" * 12))]),
    ],
)
def test_entities(source: str, expected: list[tuple[str, str]]) -> None:
    assert entities(source) == expected


def test_arguments_of_entities() -> None:
    (piece,) = render("[a](https://x.y/?q=1)\n\n```rust ignore\nfn\n```")
    assert piece.entities[0].get("url") == "https://x.y/?q=1"
    assert piece.entities[1].get("language") == "rust"


def test_a_spoiler_of_a_block_is_one() -> None:
    (piece,) = render_answer(
        AnswerBlocks((TextBlock("it was him", (TextSpan(7, 10, Style.SPOILER),)),))
    )
    assert piece.entities == ({"type": "spoiler", "offset": 7, "length": 3},)


def test_blocks_made_by_hand_are_made_safe_too() -> None:
    (piece,) = render_answer(
        AnswerBlocks((TextBlock("a\x00b\ud83d", (TextSpan(2, 3, Style.BOLD),)),))
    )
    check(piece, 4096)
    assert piece == Piece("a\ufffdb\ufffd", ({"type": "bold", "offset": 2, "length": 1},))


def test_the_least_important_entities_go_first() -> None:
    source = "*i* " * 60 + "**b** " * 60 + "`c` " * 30 + "[l](https://x.y) " * 30
    kinds = [kind for kind, _ in entities(source)]
    assert len(kinds) == 100
    assert {kind: kinds.count(kind) for kind in kinds} == {"bold": 40, "code": 30, "text_link": 30}
    # Telegram finds a bare address by itself, so its entity is worth less than any other.
    kinds = [kind for kind, _ in entities("https://x.y " * 90 + "**b** " * 90)]
    assert {kind: kinds.count(kind) for kind in kinds} == {"bold": 90, "text_link": 10}


def test_a_link_over_the_cut_works_on_both_sides() -> None:
    pieces = render("[" + "word " * 40 + "end](https://x.y)", limit=80)
    assert len(pieces) == 3
    for piece in pieces:
        (entity,) = piece.entities
        assert entity.get("url") == "https://x.y"
        assert (entity["offset"], entity["length"]) == (0, len(piece.text))


def test_indentation_survives_at_the_start_of_a_message() -> None:
    pieces = render("```\n" + "    indented line\n" * 20 + "```", limit=100)
    assert all(piece.text.startswith("    indented") for piece in pieces)
    assert all(piece.entities[0]["offset"] == 0 for piece in pieces)


@pytest.mark.parametrize("source", ["", " \n ", "\u200b", "```\n```", "\u2800\n\n> \u3164"])
def test_no_message_for_nothing(source: str) -> None:
    assert render(source) == ()
    assert render_partial(source) is None


# -- previews --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source, text, kinds",
    [
        ("Here is\n```py\nx = 1", "Here is\n\nx = 1", ["pre"]),
        ("some **bold", "some **bold", []),
        ("a\n\n", "a", []),
        ("word " * 10, "word word word word word word word …", []),
        ("```\n" + "line\n" * 20, "line\n" * 7 + "…", ["pre"]),
    ],
)
def test_a_preview(source: str, text: str, kinds: list[str]) -> None:
    piece = render_partial(source, limit=40)
    assert piece is not None
    assert (piece.text, [entity["type"] for entity in piece.entities]) == (text, kinds)


def test_a_preview_of_much_markup_is_still_full() -> None:
    source = "[ab](https://example.org/" + "x" * 300 + ") "
    piece = render_partial(source * 400, limit=100)
    assert piece is not None
    assert piece.text == "ab " * 33 + "…"


def test_a_growing_answer_has_a_growing_preview() -> None:
    whole = "# Plan\n\nFirst **this**, then `that`.\n\n```py\nfor x in y:\n    pass\n```\n\n- one\n- two"
    seen = 0
    for end in range(1, len(whole) + 1):
        piece = render_partial(whole[:end], limit=200)
        if piece is not None:
            check(piece, 200)
            assert len(visible(piece.text)) >= seen - 3  # a marker may turn into a style
            seen = len(visible(piece.text))


# -- beside the text -------------------------------------------------------------------------------


def test_fields() -> None:
    (piece,) = render("**a** b")
    bold = {"type": "bold", "offset": 0, "length": 1}
    assert piece.fields() == {"text": "a b", "entities": [bold]}
    assert piece.caption_fields() == {"caption": "a b", "caption_entities": [bold]}
    assert render("a")[0].fields() == {"text": "a"}
    assert render("a")[0].caption_fields() == {"caption": "a"}
