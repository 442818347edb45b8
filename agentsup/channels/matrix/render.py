"""Answers as Matrix shows them: a plain body and our own HTML, each within the size of an event.

Everything here is pure. The same answer gives the same pieces after a restart, so that a piece that
is sent again with the same transaction id has the same content (P2).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agentsup.channels.matrix.html import html_of
from agentsup.channels.text import layout
from agentsup.channels.text.clean import clean, is_blank
from agentsup.channels.text.layout import lay_out, plain
from agentsup.channels.text.markdown import parse
from agentsup.channels.text.split import MIN_LIMIT, passages
from agentsup.model.answer import (
    AnswerBlocks,
    Block,
    Capabilities,
    CodeBlock,
    Style,
    Table,
    TextBlock,
    TextUnit,
)

PIECE_BYTES = 40_000
"""Most bytes of JSON, body and HTML together: with relations, choices and the server's own fields
surely below the 65,536 bytes of an event."""
CAPABILITIES = Capabilities(
    text_limit=PIECE_BYTES,
    caption_limit=4_000,
    max_file_bytes=50 * 1024 * 1024,
)

_BODY_COLUMNS = 80
_MAX_URL_CHARS = 2_048
_CUT = "…"
_HEADINGS_MAX = 4
"""Most headings in a row that move to the next message together with the text below them."""
_GAP = "\n\n"


@dataclass(frozen=True, slots=True)
class Piece:
    """One message. ``html`` is empty if the body needs no markup."""

    body: str
    html: str = ""

    def fields(self) -> dict[str, Any]:
        """The fields of an ``m.room.message`` that carry text."""
        fields: dict[str, Any] = {"body": self.body}
        if self.html:
            fields |= {"format": "org.matrix.custom.html", "formatted_body": self.html}
        return fields

    def followed_by(self, other: Piece) -> Piece:
        """Return this piece with another below it, as one message."""
        if not self.body:
            return other
        html = ""
        if self.html or other.html:
            html = (self.html or _html_of_lines(self.body)) + (
                other.html or _html_of_lines(other.body)
            )
        return Piece(f"{self.body}{_GAP}{other.body}", html)


def render(text: str, *, limit: int = PIECE_BYTES) -> tuple[Piece, ...]:
    """Return an engine's Markdown as messages of at most ``limit`` bytes; none if nothing is seen.

    For a long one use ``channels.text.long``.
    """
    return render_answer(parse(text), limit=limit)


def render_answer(answer: AnswerBlocks, *, limit: int = PIECE_BYTES) -> tuple[Piece, ...]:
    """Blocks as messages. Files and buttons are not text and stay out."""
    return tuple(_pieces(answer.blocks, limit))


def render_plain(text: str, *, limit: int = PIECE_BYTES) -> tuple[Piece, ...]:
    """A text that is shown as it is written, without any markup."""
    return tuple(
        Piece(passage.text.strip("\n"))
        for passage in _passages(TextBlock(clean(text).strip("\n")), limit // 2)
    )


def render_partial(text: str, *, limit: int = PIECE_BYTES) -> Piece | None:
    """The first message of a text that is still being written; None if nothing is seen yet."""
    found = render(text, limit=limit)
    if not found:
        return None
    return found[0] if len(found) == 1 else with_line(found[0], _CUT)


def with_line(piece: Piece, line: str) -> Piece:
    """The piece with a short plain line below."""
    return piece.followed_by(Piece(line))


def weight(piece: Piece) -> int:
    """Bytes that a piece takes in the JSON of an event."""
    return _json_bytes(piece.body) + _json_bytes(piece.html)


def _json_bytes(text: str) -> int:
    return len(json.dumps(text, ensure_ascii=False).encode("utf-8", "replace"))


def _html_of_lines(body: str) -> str:
    return html_of(TextBlock(body))


# -- pieces ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A block, or a stretch of one, that fits into a message."""

    piece: Piece
    size: int
    is_heading: bool = False


def _pieces(blocks: Sequence[Block], limit: int) -> Iterator[Piece]:
    """Join chunks into messages; a heading is not left at the end of one."""
    waiting: list[_Chunk] = []
    size = 0
    for block in blocks:
        for chunk in _chunks(_openable(block), limit):
            if waiting and size + chunk.size > limit:
                chunks: list[_Chunk] = []
                while len(waiting) > 1 and waiting[-1].is_heading and len(chunks) < _HEADINGS_MAX:
                    chunks.insert(0, waiting.pop())
                if sum(one.size for one in chunks) + chunk.size > limit:
                    waiting, chunks = waiting + chunks, []
                yield _joined(waiting)
                waiting, size = chunks, sum(one.size for one in chunks)
            waiting.append(chunk)
            size += chunk.size
    if waiting:
        yield _joined(waiting)


def _joined(chunks: Sequence[_Chunk]) -> Piece:
    return Piece(
        _GAP.join(chunk.piece.body for chunk in chunks),
        "".join(chunk.piece.html for chunk in chunks),
    )


def _chunks(block: Block, limit: int) -> Iterator[_Chunk]:
    """Yield a block whole if it fits, else in parts that fit."""
    chunk = _chunk(block)
    if chunk is None:
        return
    if chunk.size <= limit:
        yield chunk
        return
    match block:
        case Table():
            yield from _table_chunks(block, limit)
        case CodeBlock(_, language):
            for passage in _fitting(block, limit):
                yield from _sure(CodeBlock(passage.text, language))
        case TextBlock(_, _, heading):
            for passage in _fitting(block, limit):
                yield from _sure(replace(passage, heading=heading))


def _sure(block: Block) -> Iterator[_Chunk]:
    chunk = _chunk(block)
    if chunk is not None:
        yield chunk


def _chunk(block: Block) -> _Chunk | None:
    body = plain(AnswerBlocks((block,)), width=_BODY_COLUMNS).strip("\n")
    if is_blank(body):
        return None
    piece = Piece(body, html_of(block))
    is_heading = isinstance(block, TextBlock) and block.heading > 0
    return _Chunk(piece, weight(piece) + len(_GAP) * 2, is_heading)


def _fitting(block: TextBlock | CodeBlock, limit: int) -> list[TextBlock]:
    """Return passages that all fit after escaping: they are made shorter until they do."""
    room = limit // 2
    while True:
        found = list(_passages(block, room))
        heaviest = max((_size_of(block, one) for one in found), default=0)
        if heaviest <= limit:
            return found
        if room <= MIN_LIMIT:  # nothing but long links side by side
            return [one if _size_of(block, one) <= limit else _bare(one) for one in found]
        room = max(MIN_LIMIT, min(room * 3 // 4, room * limit // (heaviest + 1)))


def _bare(text: TextBlock) -> TextBlock:
    return replace(text, spans=tuple(s for s in text.spans if s.style is not Style.LINK))


def _size_of(block: TextBlock | CodeBlock, passage: TextBlock) -> int:
    if isinstance(block, CodeBlock):
        chunk = _chunk(CodeBlock(passage.text, block.language))
    else:
        chunk = _chunk(replace(passage, heading=block.heading))
    return 0 if chunk is None else chunk.size


def _passages(block: TextBlock | CodeBlock, room: int) -> Iterator[TextBlock]:
    flow = lay_out(
        AnswerBlocks((replace(block, heading=0) if isinstance(block, TextBlock) else block,))
    )
    for passage in passages(flow, room, TextUnit.BYTES):
        yield TextBlock(passage.text, passage.spans)


def _table_chunks(table: Table, limit: int) -> Iterator[_Chunk]:
    """Yield groups of rows, each below the header; a row that is too large becomes a record."""
    chunk = _chunk(table)
    if chunk is None:
        return
    if chunk.size <= limit:
        yield chunk
    elif len(table.rows) <= 1:
        yield from _chunks(layout.records(table), limit)
    else:
        groups = min(len(table.rows), chunk.size // limit + 1)
        each = -(-len(table.rows) // groups)
        for start in range(0, len(table.rows), each):
            yield from _table_chunks(replace(table, rows=table.rows[start : start + each]), limit)


def _openable(block: Block) -> Block:
    """Return the block without links whose target alone would fill a message."""
    match block:
        case TextBlock():
            return _short_links(block)
        case Table(header, rows):
            return replace(
                block,
                header=tuple(map(_short_links, header)),
                rows=tuple(tuple(map(_short_links, row)) for row in rows),
            )
        case _:
            return block


def _short_links(text: TextBlock) -> TextBlock:
    if all(len(span.arg) <= _MAX_URL_CHARS for span in text.spans):
        return text
    return replace(text, spans=tuple(s for s in text.spans if len(s.arg) <= _MAX_URL_CHARS))
