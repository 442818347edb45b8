"""Events as the page shows them: what an agent says comes as blocks, parsed here once for all.

A block is one of ``{"type": "text", "text", "spans", "heading"}``, ``{"type": "code", "text",
"language"}`` and ``{"type": "table", "header", "rows", "align"}`` with cells of text and spans; a
span is ``[start, end, style, arg]``, counted in UTF-16 units as JavaScript counts. So the page
builds elements from values and never parses markup that an agent has written.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from typing import Any

from agentsup.api import documents
from agentsup.mailbox.bus import AgentDirectory
from agentsup.mailbox.choices import worded
from agentsup.model.answer import Block, Code, Span, Table, Text
from agentsup.model.event import Event, EventType
from agentsup.model.question import Question

ON_LOOP_MAX_CHARS = 500
"""Parsing costs up to 10 µs a character; more than this goes to a thread."""
_PARSER = "agentsup.channels.answer.markdown"
"""Loaded with the first answer a page shows: a daemon without a page does without it."""


async def shown(events: Iterable[Event], language: str = "") -> list[dict[str, Any]]:
    """The documents of a conversation's events, with blocks where an agent speaks Markdown, and how
    a question ended in the words of `language`."""
    found = [*events]
    made = [documents.event(event) for event in found]
    texts = [_markdown(event) for event in found]
    for event, document, blocks in zip(found, made, await _blocks(texts), strict=True):
        if blocks:
            document["data"] = {**event.data, "blocks": blocks}
        elif event.type == EventType.QUESTION_CLOSED:
            kind, answer = str(event.data.get("kind")), str(event.data.get("answer") or "")
            document["data"] = {**event.data, "answer": worded(kind, answer, language)}
    return made


async def asked(
    questions: Iterable[Question],
    directory: AgentDirectory,
    language: str,
    *,
    with_blocks: bool = True,
) -> list[dict[str, Any]]:
    """The documents of questions; an agent's words are Markdown."""
    found = [*questions]
    made = [documents.question(one, directory, language) for one in found]
    if with_blocks:
        texts = [one.text for one in found]
        for document, blocks in zip(made, await _blocks(texts), strict=True):
            document["blocks"] = blocks
    return made


async def _blocks(texts: list[str]) -> list[list[dict[str, Any]]]:
    size = sum(map(len, texts))
    if size > ON_LOOP_MAX_CHARS or (size and _PARSER not in sys.modules):
        return await asyncio.to_thread(_all_blocks, texts)
    return _all_blocks(texts)


def _all_blocks(texts: list[str]) -> list[list[dict[str, Any]]]:
    return [blocks_of(text) if text else [] for text in texts]


def blocks_of(markdown: str) -> list[dict[str, Any]]:
    """The blocks of a text. Pure, but for a library that the first text loads."""
    from agentsup.channels.answer.markdown import parse  # noqa: PLC0415 - see _PARSER

    return [one for block in parse(markdown).blocks for one in _block(block)]


def _markdown(event: Event) -> str:
    """What is to be parsed: notices hold ids and columns that Markdown would spoil."""
    data = event.data
    is_said = event.type == EventType.CHAT_OUT and data.get("kind") in ("answer", "question")
    return str(data.get("text") or "") if is_said and not data.get("plain") else ""


def _block(block: Block) -> list[dict[str, Any]]:
    match block:
        case Text():
            return [{"type": "text", "heading": block.heading, **_text(block)}]
        case Code():
            return [{"type": "code", "text": block.text, "language": block.language}]
        case Table():
            return [
                {
                    "type": "table",
                    "header": [_text(cell) for cell in block.header],
                    "rows": [[_text(cell) for cell in row] for row in block.rows],
                    "align": [align.value for align in block.align],
                }
            ]
        case _:
            return []  # files and buttons are no text; they come in fields of their own


def _text(text: Text) -> dict[str, Any]:
    return {"text": text.text, "spans": [_span(span, text.text) for span in text.spans]}


def _span(span: Span, text: str) -> list[Any]:
    start = _utf16_len(text[: span.start])
    return [start, start + _utf16_len(text[span.start : span.end]), span.style.value, span.arg]


def _utf16_len(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
