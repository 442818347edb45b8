"""Tables that can be read on a phone.

Columns are aligned if they fit its width; else each row is a record with ``header: value`` lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest

from wcwidth import wcswidth

from agentsup.model.answer import Align, Style, Table, TextBlock, TextSpan

PHONE_COLUMNS = 34
"""Columns of a monospaced line that a phone shows without breaking it."""

_GAP = "  "
_NOTHING = "–"
_EMPTY = TextBlock("")


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
