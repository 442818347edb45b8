"""Texts of agents as blocks for the page; the blocks of long texts are cached.

A block is one of ``{"type": "text", "text", "spans", "heading"}``, ``{"type": "code", "text",
"language"}`` and ``{"type": "table", "header", "rows", "align"}`` with cells of text and spans; a
span is ``[start, end, style, arg]``, counted in UTF-16 units as JavaScript counts. So the page
builds elements from values and never parses markup that an agent has written.
"""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from bisect import bisect_left
from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from typing import Any

from agentsup.kit.compute import compute
from agentsup.model.answer import Block, CodeBlock, Table, TextBlock, TextSpan

ON_LOOP_MAX_CHARS = 500
"""Parsing takes about 10 µs per character, at most 60; longer texts are parsed in a thread."""
CACHE_BYTES = 16 * 1024 * 1024
WAIT_S = 5.0
"""A text that takes longer to parse is shown unparsed; a later request finds its blocks."""
_PARSER = "agentsup.channels.text.markdown"
"""Imported with the first text that a page shows: a daemon without a page does not need it."""
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_BYTES_PER_CHAR = 10
"""A span takes about 200 bytes and a cell 300; written down, each is a tenth of that."""


def finished_chars(text: str) -> int:
    """The length of what is finished in a text that still grows: up to the last blank line, but not
    one in open code."""
    at = end = 0
    fence = ""
    for line in text.split("\n")[:-1]:
        at += len(line) + 1
        found = _FENCE.match(line)
        if found and not fence:
            fence = found[1]
        elif found and found[1].startswith(fence) and line.strip() == found[1]:
            fence = ""
        elif not fence and not line.strip():
            end = at
    return end


class Blocks:
    """Parses texts of agents. Blocks that are made in a thread are cached, up to ``cache_bytes``."""

    def __init__(self, cache_bytes: int = CACHE_BYTES) -> None:
        self._most_bytes = cache_bytes
        self._lock = threading.Lock()
        self._cached: dict[bytes, tuple[int, list[dict[str, Any]]]] = {}
        """Approximate bytes and blocks by the text's digest, least recently used first."""
        self._bytes = 0

    async def all(self, texts: Sequence[tuple[str, str]]) -> list[list[dict[str, Any]]]:
        """The blocks of each text; ``texts`` are (agent id, text). Do not change the result.

        Texts that are not parsed after five seconds come as one block of plain text.
        """
        if sum(len(text) for _, text in texts) <= ON_LOOP_MAX_CHARS and _PARSER in sys.modules:
            return [blocks_of(text) if text else [] for _, text in texts]
        made: list[list[dict[str, Any]]] = []
        try:
            async with asyncio.timeout(WAIT_S):
                for agent_id, text in texts:
                    made.append(await self._blocks(agent_id, text))
        except TimeoutError:
            made += [_as_written(text) for _, text in texts[len(made) :]]
        return made

    async def _blocks(self, agent_id: str, text: str) -> list[dict[str, Any]]:
        if not text:
            return []
        digest = sha256(text.encode("utf-8", "surrogatepass")).digest()
        found = self._find(digest)
        if found is None:
            found = await compute(partial(self._make, digest, text), key=agent_id)
        return found

    def _find(self, digest: bytes) -> list[dict[str, Any]] | None:
        with self._lock:
            entry = self._cached.pop(digest, None)
            if entry is None:
                return None
            self._cached[digest] = entry
            return entry[1]

    def _make(self, digest: bytes, text: str) -> list[dict[str, Any]]:
        """Parse in a thread. A second request for the same text runs later and finds the blocks."""
        found = self._find(digest)
        if found is not None:
            return found
        made = blocks_of(text)
        size = _size(made)
        with self._lock:
            before, _ = self._cached.pop(digest, (0, made))
            self._cached[digest] = (size, made)
            self._bytes += size - before
            while self._bytes > self._most_bytes:
                oldest = next(iter(self._cached))
                self._bytes -= self._cached.pop(oldest)[0]
        return made


def blocks_of(markdown: str) -> list[dict[str, Any]]:
    """The blocks of a text. Pure, except that the first call imports the parser."""
    from agentsup.channels.text import parse  # noqa: PLC0415 - see _PARSER

    return [_block(block) for block in parse(markdown).blocks]


def _as_written(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "heading": 0, "text": text, "spans": []}] if text else []


def _size(blocks: Sequence[dict[str, Any]]) -> int:
    """About how many bytes of memory they take; plain text takes less."""
    return _BYTES_PER_CHAR * len(repr(blocks))


def _block(block: Block) -> dict[str, Any]:
    match block:
        case TextBlock():
            return {"type": "text", "heading": block.heading, **_text(block)}
        case CodeBlock():
            return {"type": "code", "text": block.text, "language": block.language}
        case Table():
            return {
                "type": "table",
                "header": [_text(cell) for cell in block.header],
                "rows": [[_text(cell) for cell in row] for row in block.rows],
                "align": [align.value for align in block.align],
            }


def _text(text: TextBlock) -> dict[str, Any]:
    if not text.spans:
        return {"text": text.text, "spans": []}
    wide = [at for at, char in enumerate(text.text) if char > "\uffff"]
    return {"text": text.text, "spans": [_span(span, wide) for span in text.spans]}


def _span(span: TextSpan, wide: Sequence[int]) -> list[Any]:
    """``wide``: the indices of the characters that take two UTF-16 units."""
    start, end = (at + bisect_left(wide, at) for at in (span.start, span.end))
    return [start, end, span.style.value, span.arg]
