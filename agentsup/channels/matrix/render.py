"""Answers as Matrix shows them: a plain body and our own HTML, each within the size of an event.

Everything here is pure; the same answer gives the same pieces after a restart, so that a piece that
goes again with the same transaction id is the same piece (P2).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agentsup.channels.answer import tables
from agentsup.channels.answer.clean import clean, is_blank
from agentsup.channels.answer.layout import lay_out
from agentsup.channels.answer.markdown import parse
from agentsup.channels.answer.plain import plain
from agentsup.channels.answer.split import MIN_LIMIT, passages
from agentsup.channels.matrix.html import html_of
from agentsup.model.answer import (
    Answer,
    Block,
    Capabilities,
    Code,
    Markup,
    Status,
    Style,
    Table,
    Text,
    TextUnit,
)

__all__ = [
    "CAPABILITIES",
    "ON_LOOP_MAX_CHARS",
    "PIECE_BYTES",
    "Piece",
    "render",
    "render_answer",
    "render_partial",
    "render_plain",
    "weight",
    "with_line",
]

PIECE_BYTES = 40_000
"""Of JSON, body and HTML together: with relations, choices and the server's own part surely below
the 65,536 bytes of an event."""
ON_LOOP_MAX_CHARS = 1_000
"""Texts up to here take a few ms; longer ones belong in a thread."""
CAPABILITIES = Capabilities(
    text_limit=PIECE_BYTES,
    text_unit=TextUnit.BYTES,
    caption_limit=4_000,
    markup=Markup.HTML,
    edits=True,
    min_edit_interval_ms=1_000,
    buttons=False,
    drafts=False,
    reactions=True,
    threads=True,
    typing=True,
    files=True,
    max_file_bytes=50 * 1024 * 1024,
)

_BODY_COLUMNS = 80
_MAX_URL_CHARS = 2_048
_CUT = "…"
_GAP = "\n\n"


@dataclass(frozen=True, slots=True)
class Piece:
    """One message. ``html`` is empty where the body says it all as it stands."""

    body: str
    html: str = ""

    def fields(self) -> dict[str, Any]:
        """The fields of an ``m.room.message`` that carry text."""
        fields: dict[str, Any] = {"body": self.body}
        if self.html:
            fields |= {"format": "org.matrix.custom.html", "formatted_body": self.html}
        return fields

    def followed_by(self, other: Piece) -> Piece:
        """This piece and below it another, as one message."""
        if not self.body:
            return other
        html = ""
        if self.html or other.html:
            html = (self.html or _html_of_lines(self.body)) + (
                other.html or _html_of_lines(other.body)
            )
        return Piece(f"{self.body}{_GAP}{other.body}", html)


def render(text: str, *, limit: int = PIECE_BYTES) -> tuple[Piece, ...]:
    """An engine's Markdown as messages of at most ``limit`` bytes; none if nothing is seen.

    Above ``ON_LOOP_MAX_CHARS`` run it in a thread.
    """
    return render_answer(parse(text), limit=limit)


def render_answer(answer: Answer, *, limit: int = PIECE_BYTES) -> tuple[Piece, ...]:
    """Blocks as messages. Files and buttons are not text and stay out."""
    return tuple(_pieces(answer.blocks, limit))


def render_plain(text: str, *, limit: int = PIECE_BYTES) -> tuple[Piece, ...]:
    """A text that is shown as it is written, without any markup."""
    return tuple(
        Piece(passage.text.strip("\n"))
        for passage in _passages(Text(clean(text).strip("\n")), limit // 2)
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
    return html_of(Text(body))


# -- pieces ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A block, or a stretch of one, that fits into a message."""

    piece: Piece
    size: int
    is_heading: bool = False


def _pieces(blocks: Sequence[Block], limit: int) -> Iterator[Piece]:
    """Chunks gathered into messages; a heading is not left alone at the foot of one."""
    waiting: list[_Chunk] = []
    size = 0
    for block in blocks:
        for chunk in _chunks(_openable(block), limit):
            if waiting and size + chunk.size > limit:
                kept: list[_Chunk] = []
                while len(waiting) > 1 and waiting[-1].is_heading:
                    kept.insert(0, waiting.pop())
                if sum(one.size for one in kept) + chunk.size > limit:
                    waiting, kept = waiting + kept, []
                yield _joined(waiting)
                waiting, size = kept, sum(one.size for one in kept)
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
    """A block as it is where it fits, else in parts that do."""
    chunk = _chunk(block)
    if chunk is None:
        return
    if chunk.size <= limit:
        yield chunk
        return
    match block:
        case Table():
            yield from _table_chunks(block, limit)
        case Code(text, language):
            for passage in _fitting(block, limit):
                yield from _sure(Code(passage.text, language))
        case Text(_, _, heading):
            for passage in _fitting(block, limit):
                yield from _sure(replace(passage, heading=heading))
        case Status(_, text):
            yield from _chunks(Text(text), limit)


def _sure(block: Block) -> Iterator[_Chunk]:
    chunk = _chunk(block)
    if chunk is not None:
        yield chunk


def _chunk(block: Block) -> _Chunk | None:
    body = plain(Answer((block,)), width=_BODY_COLUMNS).strip("\n")
    if is_blank(body):
        return None
    piece = Piece(body, html_of(block))
    is_heading = isinstance(block, Text) and block.heading > 0
    return _Chunk(piece, weight(piece) + len(_GAP) * 2, is_heading)


def _fitting(block: Text | Code, limit: int) -> list[Text]:
    """Passages that all fit once they are escaped: the cut becomes finer until they do."""
    room = limit // 2
    while True:
        found = list(_passages(block, room))
        heaviest = max((_size_of(block, one) for one in found), default=0)
        if heaviest <= limit:
            return found
        if room <= MIN_LIMIT:  # nothing but long links side by side
            return [one if _size_of(block, one) <= limit else _bare(one) for one in found]
        room = max(MIN_LIMIT, min(room * 3 // 4, room * limit // (heaviest + 1)))


def _bare(text: Text) -> Text:
    return replace(text, spans=tuple(s for s in text.spans if s.style is not Style.LINK))


def _size_of(block: Text | Code, passage: Text) -> int:
    if isinstance(block, Code):
        chunk = _chunk(Code(passage.text, block.language))
    else:
        chunk = _chunk(replace(passage, heading=block.heading))
    return 0 if chunk is None else chunk.size


def _passages(block: Text | Code, room: int) -> Iterator[Text]:
    flow = lay_out(Answer((replace(block, heading=0) if isinstance(block, Text) else block,)))
    for passage in passages(flow, room, TextUnit.BYTES):
        yield Text(passage.text, passage.spans)


def _table_chunks(table: Table, limit: int) -> Iterator[_Chunk]:
    """Rows in groups, each below the header; a row too large for that as a record."""
    chunk = _chunk(table)
    if chunk is None:
        return
    if chunk.size <= limit:
        yield chunk
    elif len(table.rows) <= 1:
        yield from _chunks(tables.records(table), limit)
    else:
        groups = min(len(table.rows), chunk.size // limit + 1)
        each = -(-len(table.rows) // groups)
        for start in range(0, len(table.rows), each):
            yield from _table_chunks(replace(table, rows=table.rows[start : start + each]), limit)


def _openable(block: Block) -> Block:
    """Without links whose target alone would fill a message."""
    match block:
        case Text():
            return _short_links(block)
        case Table(header, rows):
            return replace(
                block,
                header=tuple(map(_short_links, header)),
                rows=tuple(tuple(map(_short_links, row)) for row in rows),
            )
        case _:
            return block


def _short_links(text: Text) -> Text:
    if all(len(span.arg) <= _MAX_URL_CHARS for span in text.spans):
        return text
    return replace(text, spans=tuple(s for s in text.spans if len(s.arg) <= _MAX_URL_CHARS))
