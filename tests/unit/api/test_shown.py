"""What the page is given of an agent's Markdown."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsup.api.documents.blocks import ON_LOOP_MAX_CHARS, Blocks, blocks_of
from agentsup.api.documents.blocks import _text as shown_text
from agentsup.api.documents.messages import shown
from agentsup.model.answer import Style, TextBlock, TextSpan
from agentsup.model.event import Event


def said(text: str, kind: str = "answer", **more: Any) -> Event:
    return Event(1, 2, "chat.out", "a", "s", "m", "web:local", {"kind": kind, "text": text, **more})


def test_blocks_are_values_and_spans_count_as_javascript_does() -> None:
    assert blocks_of("# Top\n\n😀 a **bold** [link](https://x.example/)\n\n```py\nx < 1\n```") == [
        {"type": "text", "heading": 1, "text": "Top", "spans": []},
        {
            "type": "text",
            "heading": 0,
            "text": "😀 a bold link",
            "spans": [[5, 9, "bold", ""], [10, 14, "link", "https://x.example/"]],
        },
        {"type": "code", "text": "x < 1", "language": "py"},
    ]
    (table,) = blocks_of("| a | b |\n|---|--:|\n| 1 | `2` |")
    assert table["align"] == ["left", "right"]
    assert table["rows"] == [
        [{"text": "1", "spans": []}, {"text": "2", "spans": [[0, 1, "code", ""]]}]
    ]


async def test_only_what_agents_write_is_parsed() -> None:
    events = [said("*a*"), said("*b*", "notice"), said("*c*", plain=True), said("", "file")]
    documents = await shown(events, Blocks())
    assert [document.data.get("blocks") is not None for document in documents] == [
        True,
        False,
        False,
        False,
    ]
    assert events[0].data == {"kind": "answer", "text": "*a*"}, "events are not changed"


async def test_long_texts_are_parsed_all_the_same() -> None:
    (document,) = await shown([said("word " * 1000)], Blocks())
    assert len(document.data["blocks"][0]["text"]) > 4900


@given(st.text(max_size=200))
def test_spans_lie_within_their_text(markdown: str) -> None:
    for block in blocks_of(markdown):
        for start, end, *_ in block.get("spans", ()):
            assert 0 <= start < end <= len(block["text"].encode("utf-16-le")) // 2


LONG = "word *w* " * ON_LOOP_MAX_CHARS


async def test_a_text_is_parsed_once_for_all_who_look_at_it() -> None:
    blocks = Blocks()
    with patch("agentsup.api.documents.blocks.blocks_of", wraps=blocks_of) as parsing:
        found = await asyncio.gather(*(blocks.all([("a", LONG)] * 3) for _ in range(10)))
    assert parsing.call_count == 1
    assert all(each == [blocks_of(LONG)] * 3 for each in found)


async def test_what_is_kept_is_bounded_and_the_newest() -> None:
    one = LONG + "0"
    blocks = Blocks(cache_bytes=400_000)
    with patch("agentsup.api.documents.blocks.blocks_of", wraps=blocks_of) as parsing:
        for number in (0, 1, 2, 3, 4, 5, 5, 0):
            await blocks.all([("a", f"{LONG}{number}")])
        assert parsing.call_count == 7, "the first was dropped, the last was not"
        await Blocks(cache_bytes=10).all([("a", one)])


@pytest.mark.virtual
async def test_a_page_does_not_wait_for_slow_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    async def slow(step: object, *, key: str) -> None:
        await asyncio.sleep(3600)

    monkeypatch.setattr("agentsup.api.documents.blocks.compute", slow)
    (document,) = await shown([said(LONG)], Blocks())
    assert document.data["blocks"] == [{"type": "text", "heading": 0, "text": LONG, "spans": []}]


def test_very_many_spans_take_no_longer_than_others() -> None:
    """By the square of their number they would take longer than a test may."""
    count = 300_000
    text = TextBlock(
        "x\U0001f600" * count, tuple(TextSpan(i, i + 1, Style.BOLD) for i in range(count))
    )
    assert len(shown_text(text)["spans"]) == count
