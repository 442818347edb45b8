"""From blocks to one visible text with spans, from which every channel makes its messages.

The text of a flow is exactly what people see. Splitting only chooses positions in it, so the pieces
together show what the flow shows.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentsup.channels.text import tables
from agentsup.channels.text.clean import scrub
from agentsup.model.answer import (
    AnswerBlocks,
    Block,
    CodeBlock,
    Style,
    Table,
    TextBlock,
    TextSpan,
)

_BETWEEN_BLOCKS = "\n\n"


@dataclass(frozen=True, slots=True)
class Repeat:
    """``text[start:end]`` begins with a header; a piece that starts in its body repeats it."""

    start: int
    body: int
    end: int

    @property
    def length(self) -> int:
        """The length of the header, with its line end."""
        return self.body - self.start


@dataclass(frozen=True, slots=True)
class Flow:
    """A whole answer, laid out. ``spans`` are sorted by start and lie within one block each.

    ``starts``: positions of blocks that may begin a message. ``after_headings``: positions
    of blocks that should not, because a heading is directly above. ``repeats`` do not overlap.
    """

    text: str
    spans: tuple[TextSpan, ...] = ()
    starts: tuple[int, ...] = ()
    after_headings: tuple[int, ...] = ()
    repeats: tuple[Repeat, ...] = ()


def lay_out(answer: AnswerBlocks) -> Flow:
    """Return the text of an answer."""
    parts: list[str] = []
    spans: list[TextSpan] = []
    starts: list[int] = []
    after_headings: list[int] = []
    repeats: list[Repeat] = []
    length = 0
    is_below_heading = False
    for block in answer.blocks:
        text, of_block, head = _block(block)
        if not text.strip():
            continue
        if parts:
            parts.append(_BETWEEN_BLOCKS)
            length += len(_BETWEEN_BLOCKS)
            (after_headings if is_below_heading else starts).append(length)
        parts.append(text)
        spans += (TextSpan(length + s.start, length + s.end, s.style, s.arg) for s in of_block)
        if head:
            repeats.append(Repeat(length, length + head, length + len(text)))
        length += len(text)
        is_below_heading = isinstance(block, TextBlock) and block.heading > 0
    spans.sort(key=lambda span: (span.start, -span.end))
    return Flow(
        scrub("".join(parts)), tuple(spans), tuple(starts), tuple(after_headings), tuple(repeats)
    )


def _block(block: Block) -> tuple[str, tuple[TextSpan, ...], int]:
    """Return text and spans of a block, and the length of the header that its pieces repeat."""
    match block:
        case TextBlock(text, spans, heading):
            bold = (TextSpan(0, len(text), Style.BOLD),) if heading else ()
            return text, bold + spans, 0
        case CodeBlock(text, language):
            return text, (TextSpan(0, len(text), Style.PRE, language),), 0
        case Table():
            return _table(block)


def _table(table: Table) -> tuple[str, tuple[TextSpan, ...], int]:
    aligned = tables.align(table)
    if aligned is None:
        listed = tables.records(table)
        return listed.text, listed.spans, 0
    text = "\n".join(filter(None, (aligned.head, aligned.body)))
    head = len(aligned.head) + 1 if aligned.head and aligned.body else 0
    return text, (TextSpan(0, len(text), Style.PRE),), head
