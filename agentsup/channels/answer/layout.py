"""Blocks to one visible text with spans, the form from which every channel makes its messages.

The text of a flow is what people see; splitting it is a matter of choosing places, so that what
pieces show together is what the flow shows.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentsup.channels.answer import tables
from agentsup.channels.answer.clean import scrub
from agentsup.model.answer import Answer, Block, Code, Span, Status, Style, Table, Text

_BETWEEN_BLOCKS = "\n\n"


@dataclass(frozen=True, slots=True)
class Repeat:
    """``text[start:end]`` begins with a header that pieces from ``body`` on want to repeat."""

    start: int
    body: int
    end: int

    @property
    def length(self) -> int:
        """Of the header, with its line end."""
        return self.body - self.start


@dataclass(frozen=True, slots=True)
class Flow:
    """A whole answer, laid out. ``spans`` are sorted by start and lie within one block each.

    ``starts``: where blocks begin that may well begin a message. ``held``: where one begins that
    should not, because a heading stands above it. ``repeats`` do not overlap.
    """

    text: str
    spans: tuple[Span, ...] = ()
    starts: tuple[int, ...] = ()
    held: tuple[int, ...] = ()
    repeats: tuple[Repeat, ...] = ()


def lay_out(answer: Answer) -> Flow:
    """The text of an answer. Files and buttons are not text and stay out."""
    parts: list[str] = []
    spans: list[Span] = []
    starts: list[int] = []
    held: list[int] = []
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
            (held if is_below_heading else starts).append(length)
        parts.append(text)
        spans += (Span(length + s.start, length + s.end, s.style, s.arg) for s in of_block)
        if head:
            repeats.append(Repeat(length, length + head, length + len(text)))
        length += len(text)
        is_below_heading = isinstance(block, Text) and block.heading > 0
    spans.sort(key=lambda span: (span.start, -span.end))
    return Flow(scrub("".join(parts)), tuple(spans), tuple(starts), tuple(held), tuple(repeats))


def _block(block: Block) -> tuple[str, tuple[Span, ...], int]:
    """Text and spans of a block, and the length of the header its pieces repeat."""
    match block:
        case Text(text, spans, heading):
            bold = (Span(0, len(text), Style.BOLD),) if heading else ()
            return text, bold + spans, 0
        case Code(text, language):
            return text, (Span(0, len(text), Style.PRE, language),), 0
        case Table():
            return _table(block)
        case Status(_, text):
            return text.strip(), (), 0
        case _:
            return "", (), 0


def _table(table: Table) -> tuple[str, tuple[Span, ...], int]:
    aligned = tables.align(table)
    if aligned is None:
        listed = tables.records(table)
        return listed.text, listed.spans, 0
    text = "\n".join(filter(None, (aligned.head, aligned.body)))
    head = len(aligned.head) + 1 if aligned.head and aligned.body else 0
    return text, (Span(0, len(text), Style.PRE),), head
