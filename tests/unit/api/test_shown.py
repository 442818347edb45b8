"""What the page is given of an agent's Markdown."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agentsup.api.web.shown import blocks_of, shown
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
    documents = await shown(events)
    assert [document["data"].get("blocks") is not None for document in documents] == [
        True,
        False,
        False,
        False,
    ]
    assert events[0].data == {"kind": "answer", "text": "*a*"}, "events are not changed"


async def test_long_texts_are_parsed_all_the_same() -> None:
    (document,) = await shown([said("word " * 1000)])
    assert len(document["data"]["blocks"][0]["text"]) > 4900


@given(st.text(max_size=200))
def test_spans_lie_within_their_text(markdown: str) -> None:
    for block in blocks_of(markdown):
        for start, end, *_ in block.get("spans", ()):
            assert 0 <= start < end <= len(block["text"].encode("utf-16-le")) // 2
