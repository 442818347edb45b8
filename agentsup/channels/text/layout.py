"""From blocks to one visible text: with spans, from which every channel makes its messages, or plain.

The text of a flow is exactly what people see. Splitting only chooses positions in it, so the pieces
together show what the flow shows. Tables are made so that they can be read on a phone: their columns
are aligned if they fit its width, else each row is a record with ``header: value`` lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest

from wcwidth import wcswidth

from agentsup.channels.text.clean import scrub
from agentsup.model.answer import (
    Align,
    AnswerBlocks,
    Block,
    CodeBlock,
    Style,
    Table,
    TextBlock,
    TextSpan,
)

PHONE_COLUMNS = 34
"""Columns of a monospaced line that a phone shows without breaking it."""

_GAP = "  "
_NOTHING = "–"
_EMPTY = TextBlock("")
_BETWEEN_BLOCKS = "\n\n"


@dataclass(frozen=True, slots=True)
class Aligned:
    """A table as lines of equal columns. ``head``: header and rule, empty if there is none."""

    head: str
    body: str


def align(table: Table, columns: int = PHONE_COLUMNS) -> Aligned | None:
    """Return the table as monospaced text, or None if it cannot be shown so.

    That is so if it would be wider than ``columns`` terminal cells, or if a table cell has a link
    or several lines.
    """
    rows = [table.header, *table.rows]
    count = max(map(len, rows), default=0)
    if not count or any(_is_rich(cell) for row in rows for cell in row):
        return None
    texts = [[_flat(cell) for cell in row] + [""] * (count - len(row)) for row in rows]
    widths = [1] * count
    room = columns - len(_GAP) * (count - 1)
    for row in texts:
        widths = [max(width, _width(text)) for width, text in zip(widths, row, strict=True)]
        if sum(widths) > room:
            return None
    aligns = [*table.align, *[Align.LEFT] * count][:count]
    lines = [
        _GAP.join(map(_pad, row, widths, aligns)).rstrip()
        for row in (texts if any(texts[0]) else texts[1:])
    ]
    if not any(texts[0]):
        return Aligned("", "\n".join(lines))
    rule = _GAP.join("─" * width for width in widths)
    return Aligned(f"{lines[0]}\n{rule}", "\n".join(lines[1:]))


def records(table: Table) -> TextBlock:
    """Return one paragraph per row, with a bold first line; without rows, the header's cells.

    The first record names all columns, the others only columns in which they have a value.
    """
    parts: list[str] = []
    spans: list[TextSpan] = []
    length = 0

    def add(text: str) -> None:
        nonlocal length
        parts.append(text)
        length += len(text)

    for record, row in enumerate(table.rows or (table.header,)):
        add("\n\n" if parts else "")
        start = length
        header = table.header if table.rows else ()
        for number, (name, value) in enumerate(zip_longest(header, row, fillvalue=_EMPTY)):
            if record and number and not value.text.strip():
                continue
            add("\n" if number else "")
            title = " ".join(name.text.split())
            add(f"{title}: " if title else "")
            spans += (
                TextSpan(length + s.start, length + s.end, s.style, s.arg) for s in value.spans
            )
            add(value.text if value.text.strip() else _NOTHING)
            if not number:
                spans.append(TextSpan(start, length, Style.BOLD))
    spans.sort(key=lambda span: (span.start, -span.end))
    return TextBlock("".join(parts), tuple(spans))


def _is_rich(cell: TextBlock) -> bool:
    return "\n" in cell.text.strip() or any(span.style is Style.LINK for span in cell.spans)


def _flat(cell: TextBlock) -> str:
    return " ".join(cell.text.split())


def _width(text: str) -> int:
    """Cells of a terminal; wide characters and emoji take two, joined marks none."""
    if text.isascii():
        return len(text)
    width = wcswidth(text)
    return width if width >= 0 else len(text)


def _pad(text: str, width: int, side: Align) -> str:
    room = width - _width(text)
    left = room if side is Align.RIGHT else room // 2 if side is Align.CENTER else 0
    return " " * left + text + " " * (room - left)


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
    aligned = align(table)
    if aligned is None:
        listed = records(table)
        return listed.text, listed.spans, 0
    text = "\n".join(filter(None, (aligned.head, aligned.body)))
    head = len(aligned.head) + 1 if aligned.head and aligned.body else 0
    return text, (TextSpan(0, len(text), Style.PRE),), head


def plain(answer: AnswerBlocks, *, width: int = 80) -> str:
    """Return the whole answer as text; tables are aligned if they fit ``width`` columns."""
    shown = (_plain_block(block, width) for block in answer.blocks)
    return scrub("\n\n".join(text for text in shown if text.strip()))


def _plain_block(block: Block, width: int) -> str:
    match block:
        case TextBlock():
            return _text(block)
        case CodeBlock(text, language):
            # The fence must be longer than any in the text.
            fence = "```"
            while fence in text:
                fence += "`"
            return f"{fence}{language}\n{text}\n{fence}"
        case Table():
            aligned = align(block, width)
            if aligned is None:
                return _text(records(block))
            return "\n".join(filter(None, (aligned.head, aligned.body)))


def _text(text: TextBlock) -> str:
    """Return text with link targets in parentheses and quotes marked; other styles are dropped."""
    added: list[tuple[int, int, str]] = []
    for span in text.spans:
        if span.style is Style.LINK:
            added += _target(text.text, span)
        elif span.style is Style.QUOTE:
            added.append((span.start, 1, "> "))
            at = text.text.find("\n", span.start, span.end)
            while at >= 0:
                added.append((at + 1, 1, "> "))
                at = text.text.find("\n", at + 1, span.end)
    parts: list[str] = []
    done = 0
    for at, _, mark in sorted(added):
        parts += (text.text[done:at], mark)
        done = at
    return "".join([*parts, text.text[done:]])


def _target(text: str, span: TextSpan) -> list[tuple[int, int, str]]:
    shown = text[span.start : span.end]
    return (
        []
        if shown in {span.arg, span.arg.removeprefix("mailto:")}
        else [(span.end, 0, f" ({span.arg})")]
    )
