"""Answers as a terminal shows them: bold, code, lists and tables, while they are still written.

A piece of the text is shown once nothing that follows can change it: a line of prose or code, an item
with what is indented below it, a whole table. What is not shown yet is ``unfinished``.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Final

from agentsup.cli.output.show import GAP, cards, painted, width_of
from agentsup.kit.terminal import clean
from agentsup.model.answer import Block, CodeBlock, Style, Table, TextBlock, TextSpan

_FENCE: Final = re.compile(r"(`{3,}|~{3,})([^`]*)")
_STRUCTURE: Final = re.compile(r"#{1,6}\s|[-*+]\s|\d{1,9}[.)]\s|\||>|(?:[-*_]\s*){3,}$|`{3,}|~{3,}")
"""The beginning of a line that is no prose."""
_ITEM: Final = re.compile(r"(?:[-*+]|\d{1,9}[.)])\s")
"""The beginning of an item of a list. What is indented below it belongs to it."""
_MARKER: Final = re.compile(r"\s*(?:[•◦▪☐☑]|\d+\.)\s(?:[☐☑]\s)?")
_CODE_INDENT: Final = "  "
_LEAST: Final = 20
_LONGEST: Final = 32_768
"""Characters after which a piece is shown in parts. An agent may write a line or a table without end,
and what is unfinished is drawn with each key."""
_CODES: Final = {Style.BOLD: "bold", Style.CODE: "cyan"}


@dataclass(frozen=True, slots=True)
class _Row:
    """A line with the colours of its characters (empty: none has one); ``hanging`` begins what is
    broken off it."""

    text: str
    colours: Sequence[str] = ()
    hanging: str = ""
    breaks: bool = True


class MarkdownStream:
    """One text, as it comes. ``lead`` is written before its first line."""

    def __init__(self, lead: str, width: Callable[[], int], colour: str = "") -> None:
        """``colour``: of what has no style of its own."""
        self.unfinished = ""
        self._lead = lead
        self._width = width
        self._colour = colour
        self._fence = ""
        self._is_blank = True
        self._scanned = 0  # how much of ``unfinished`` is known to belong to its first piece

    @property
    def lead(self) -> str:
        """The prefix of the first line; empty once that is written."""
        return self._lead

    def add(self, text: str) -> list[str]:
        """Take more of the text; returns the lines that can be shown now."""
        self.unfinished += text
        shown: list[str] = []
        whole, start = self.unfinished, 0
        while (end := self._piece(whole, start)) is not None:
            shown += self._lines(whole[start:end])
            start, self._scanned = end, 0
        self.unfinished = whole[start:]
        return shown

    def end(self) -> list[str]:
        """The lines of what is left: nothing follows for now."""
        shown = self.add("")
        piece, self.unfinished = self.unfinished, ""
        return shown + (self._lines(piece) if piece.strip() else [])

    # -- pieces ------------------------------------------------------------------------------------

    def _piece(self, text: str, start: int) -> int | None:
        """The end of the piece that begins at ``start``, with its line end; None if it is not
        complete."""
        most = start + _LONGEST
        at = text.find("\n", start, most) + 1
        if not at:
            return most if len(text) >= most else None
        is_table = text.startswith("|", start)
        if self._fence or not (is_table or _ITEM.match(text, start, at)):
            return at
        at = max(at, start + self._scanned)
        while at < len(text):
            following = text[at]
            goes_on = following == "|" if is_table else following in " \t"
            if not goes_on:
                return at
            end = text.find("\n", at, most) + 1
            if not end:
                return at if len(text) >= most else None
            if not text[at:end].strip():
                return at
            at, self._scanned = end, end - start
        return None

    def _lines(self, piece: str) -> list[str]:
        line = piece.rstrip("\n")
        if fence := self._code(line):
            return [] if fence is True else self._shown([fence])
        if not line.strip():
            if self._is_blank:
                return []
            self._is_blank = True
            return [""]
        from agentsup.channels.text import parse  # the parser, where a terminal shows an answer

        rows = [row for block in parse(piece).blocks for row in self._rows(block)]
        return self._shown(rows, is_prose=not _STRUCTURE.match(line.lstrip()))

    def _code(self, line: str) -> _Row | bool:
        """A line of code; True for the line of a fence itself, False for any other line."""
        if self._fence:
            if line.strip().startswith(self._fence) and not line.strip().strip(self._fence[0]):
                self._fence = ""
                return True
            return _code_row(line)
        if found := _FENCE.match(line):
            self._fence = found[1]
            return True
        return False

    # -- lines -------------------------------------------------------------------------------------

    def _rows(self, block: Block) -> Iterator[_Row]:
        if isinstance(block, CodeBlock):
            yield from (_code_row(line) for line in block.text.split("\n"))
        elif isinstance(block, Table):
            yield from (_Row(line, breaks=False) for line in _table(block, self._room()))
        else:
            yield from _prose(block)

    def _shown(self, rows: Sequence[_Row], *, is_prose: bool = False) -> list[str]:
        shown: list[str] = []
        self._is_blank = False
        if self._lead and rows:
            lead, self._lead = self._lead, ""
            if is_prose:
                first = rows[0]
                moved = [""] * len(lead) + [*first.colours] if first.colours else ()
                rows = [_Row(lead + first.text, moved, first.hanging), *rows[1:]]
            else:
                shown.append(painted(lead.rstrip(), self._colour, plain=not self._colour))
        for row in rows:
            shown += self._broken(row)
        return shown

    def _broken(self, row: _Row) -> Iterator[str]:
        """The row as lines that fit, each painted."""
        start, indent = 0, ""
        while True:
            end = following = len(row.text)
            if row.breaks:
                end, following = fitting(row.text, start, self._room() - width_of(indent))
            yield indent + self._painted(row, start, end)
            if following >= len(row.text):
                return
            start, indent = following, row.hanging

    def _room(self) -> int:
        return max(_LEAST, self._width() - 1)

    def _painted(self, row: _Row, start: int, end: int) -> str:
        if not row.colours:
            text = row.text[start:end]
            return painted(text, self._colour, plain=not self._colour) if text else ""
        parts = []
        signs = zip(row.text[start:end], row.colours[start:end], strict=True)
        for own, run in groupby(signs, itemgetter(1)):
            colour = own or self._colour
            parts.append(painted("".join(sign for sign, _ in run), colour, plain=not colour))
        return "".join(parts)


def fitting(text: str, start: int, room: int) -> tuple[int, int]:
    """The end of the line that begins at ``start`` and fits into ``room`` columns, and the beginning
    of the next. It is broken at a space, or within a word if it has none."""
    columns, space = 0, -1
    for at in range(start, len(text)):
        columns += width_of(text[at])
        if columns > room and at > start:
            return (space, space + 1) if space > start else (at, at)
        if text[at] == " ":
            space = at
    return len(text), len(text)


def _code_row(line: str) -> _Row:
    text = _CODE_INDENT + clean(line).expandtabs(4)
    return _Row(text, ["cyan"] * len(text), _CODE_INDENT)


def _prose(block: TextBlock) -> Iterator[_Row]:
    """The lines of a paragraph, a list, a quote or a heading."""
    text, spans = _with_targets(block)
    text, begin = clean(text), 0  # an entity (&#27;) has become the character that it stands for
    colours, is_quote = ["bold" if block.heading else ""] * len(text), bytearray(len(text))
    for style in (Style.QUOTE, Style.BOLD, Style.CODE):
        for span in (each for each in spans if each.style is style):
            start, end = span.start, min(span.end, len(text))
            if style is Style.QUOTE:
                is_quote[start:end] = b"\1" * (end - start)
            elif not block.heading:
                colours[start:end] = [_CODES[style]] * (end - start)
    for line in text.split("\n"):
        end = begin + len(line)
        lead = "│ " if any(is_quote[begin:end]) else ""
        marker = _MARKER.match(line)
        hanging = lead + " " * (marker.end() if marker else len(line) - len(line.lstrip()))
        yield _Row(lead + line, [""] * len(lead) + colours[begin:end], hanging)
        begin = end + 1


def _with_targets(block: TextBlock) -> tuple[str, list[TextSpan]]:
    """The text with the target behind each link that does not show it."""
    text, spans = block.text, list(block.spans)
    links = sorted(
        (s for s in spans if s.style is Style.LINK and s.arg != text[s.start : s.end]),
        key=lambda each: each.end,
    )
    added = [f" ({clean(each.arg)})" for each in links]
    ends, parts, past = [each.end for each in links], [], 0
    for end, target in zip(ends, added, strict=True):
        parts += [text[past:end], target]
        past = end
    moved = [*accumulate(map(len, added), initial=0)]
    return "".join((*parts, text[past:])), [
        TextSpan(
            s.start + moved[bisect_right(ends, s.start)],
            s.end + moved[bisect_left(ends, s.end)],
            s.style,
            s.arg,
        )
        for s in spans
    ]


def _table(block: Table, room: int) -> list[str]:
    """The table with aligned columns; where it is too wide, a block for each row."""
    head = [_cell(each) for each in block.header]
    columns = max([len(head), *(len(row) for row in block.rows)])
    rows = [[*map(_cell, row), *[""] * (columns - len(row))] for row in block.rows]
    head += [""] * (columns - len(head))
    widths = [max(map(width_of, (head[i], *(row[i] for row in rows)))) for i in range(columns)]
    if sum(widths) + GAP * (columns - 1) > room:
        return cards(head, rows, room).split("\n")
    lines = [
        (" " * GAP).join(c + " " * (w - width_of(c)) for c, w in zip(row, widths, strict=True))
        for row in (head, *rows)
    ]
    rule = (" " * GAP).join("─" * width for width in widths)
    return [lines[0].rstrip(), rule, *(line.rstrip() for line in lines[1:])]


def _cell(block: TextBlock) -> str:
    return " ".join(clean(block.text).split())
