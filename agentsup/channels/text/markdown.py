"""From Markdown, as models write it, to the blocks of an answer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markdown_it.token import Token

from agentsup.channels.text.clean import clean
from agentsup.channels.text.grammar import Grammar
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

_GRAMMAR = Grammar()

_RULE = "———"
_BULLETS = ("•", "◦", "▪")
_TASK = re.compile(r"\[([ xX])\](?:\s|$)")
_STYLES = {"strong": Style.BOLD, "em": Style.ITALIC, "s": Style.STRIKE}
# Targets that a person can open from a chat; others are shown as text.
_OPENABLE = re.compile(r"(?:https?|tg)://.|mailto:.", re.IGNORECASE)
_CELL_BREAK = re.compile(r"\s*<br\s*/?>\s*", re.IGNORECASE)
_CELL_END = re.compile(r"(?<!\\)\|")


MAX_MARKS = 50_000
"""A text with more marks is shown without Markdown. The parser needs up to 100 µs per mark, and a
text of nothing else must not delay other answers for a minute."""
_MARKS = "*_~[`\n"


def parse(text: str) -> AnswerBlocks:
    """Return the blocks of an answer. Never raises; an open fence runs to the end of the text.

    Takes usually 2 to 9 µs per character, so long texts belong in ``kit.compute``.
    """
    source = clean(text)
    marks = sum(map(source.count, _MARKS))
    tokens = _GRAMMAR.tokens(source) if marks <= MAX_MARKS else None
    if tokens is None:
        return AnswerBlocks((TextBlock(source.strip()),))
    writer = _Writer(source.split("\n"))
    writer.write(tokens)
    return AnswerBlocks(tuple(writer.blocks))


@dataclass(slots=True)
class _List:
    """An open list; ``number`` is that of the next item, None for bullets."""

    number: int | None
    marker: str = ""


class _Writer:
    """Collects text until a block ends. One per text."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.blocks: list[Block] = []
        self._lines = lines
        self._line = _Line()
        self._lists: list[_List] = []
        self._quotes = 0
        self._quote_from: int | None = None

    def write(self, tokens: Sequence[Token]) -> None:
        """Write all tokens of a text, in order."""
        stream = iter(enumerate(tokens))
        for at, token in stream:
            kind = token.type
            if kind in {"paragraph_open", "heading_open"}:
                self._prose(token, tokens[at + 1])
            elif kind in {"fence", "code_block"}:
                self._code(token)
            elif kind == "table_open":
                self._end_block()
                self.blocks.append(_table(stream, self._lines))
            elif kind == "hr":
                self._start_line(2)
                self._line.add(_RULE)
                self._end_top_block()
            elif kind in {"bullet_list_open", "ordered_list_open"}:
                self._end_top_block()
                start = int(token.attrs.get("start", 1))
                self._lists.append(_List(start if kind == "ordered_list_open" else None))
            elif kind in {"bullet_list_close", "ordered_list_close"}:
                self._lists.pop()
                self._end_top_block()
            elif kind == "list_item_open":
                self._item(tokens, at)
            elif kind == "list_item_close":
                self._lists[-1].marker = ""
            elif kind == "blockquote_open":
                self._end_top_block()
                self._quotes += 1
            elif kind == "blockquote_close":
                self._quotes -= 1
                if not self._quotes:
                    self._end_quote()
                    self._end_top_block()
        self._end_block()

    # -- lines -------------------------------------------------------------------------------------

    @property
    def _indent(self) -> str:
        return "  " * len(self._lists)

    def _start_line(self, gap: int) -> None:
        """Begin a line, ``gap`` line ends after the text so far; an item begins with its marker."""
        marker = self._lists[-1].marker if self._lists else ""
        if self._line.length:
            self._line.add("\n" * (1 if marker else gap))
        if self._quotes and self._quote_from is None:
            self._quote_from = self._line.length
        if marker:
            self._lists[-1].marker = ""
            self._line.add("  " * (len(self._lists) - 1) + marker + " ")
        else:
            self._line.add(self._indent)

    def _prose(self, opening: Token, inline: Token) -> None:
        is_heading = opening.type == "heading_open"
        level = int(opening.tag[1]) if is_heading and not (self._lists or self._quotes) else 0
        if level:
            self._end_block()
        self._start_line(1 if opening.hidden else 2)
        start = self._line.length
        children = inline.children or []
        if self._lists and children and _TASK.match(children[0].content):
            children[0].content = children[0].content[4:]
        self._line.inline(children, self._indent)
        if level:
            self._end_block(heading=level)
        elif is_heading:
            self._line.mark(start, Style.BOLD)
        else:
            self._end_top_block()

    def _item(self, tokens: Sequence[Token], at: int) -> None:
        """Store the marker for the item's first line; add an empty line if the list has them."""
        current = self._lists[-1]
        marker = _BULLETS[min(len(self._lists), len(_BULLETS)) - 1]
        if current.number is not None:
            marker = f"{current.number}."
            current.number += 1
        first, inline = tokens[at + 1], tokens[at + 2] if at + 2 < len(tokens) else None
        if first.type == "paragraph_open" and inline is not None and inline.children:
            task = _TASK.match(inline.children[0].content)
            if task is not None:
                box = "☐" if task.group(1) == " " else "☑"
                marker = box if current.number is None else f"{marker} {box}"
            if not first.hidden and self._line.length:
                self._line.add("\n")  # the author keeps the items apart
        current.marker = marker
        if first.type == "list_item_close":
            self._start_line(1)

    def _code(self, token: Token) -> None:
        if self._lists and self._lists[-1].marker:
            self._start_line(1)
        self._end_block()
        text = token.content.strip("\n")
        if text.strip():
            language = token.info.split(maxsplit=1)[0] if token.info.strip() else ""
            self.blocks.append(CodeBlock(text.rstrip(), language))

    # -- ends --------------------------------------------------------------------------------------

    def _end_quote(self) -> None:
        if self._quote_from is not None:
            self._line.mark(self._quote_from, Style.QUOTE)
            self._quote_from = None

    def _end_top_block(self) -> None:
        """End a block unless it is inside a list or a quote."""
        if not self._lists and not self._quotes:
            self._end_block()

    def _end_block(self, heading: int = 0) -> None:
        self._end_quote()
        text = self._line.take(heading)
        if text is not None:
            self.blocks.append(text)


class _Line:
    """The text that is being collected, with its spans."""

    def __init__(self) -> None:
        self.length = 0
        self._parts: list[str] = []
        self._spans: list[TextSpan] = []

    def add(self, text: str) -> None:
        self._parts.append(text)
        self.length += len(text)

    def mark(self, start: int, style: Style, arg: str = "") -> None:
        """Give this style to the text that was added since ``start``."""
        if start < self.length:
            self._spans.append(TextSpan(start, self.length, style, arg))

    def take(self, heading: int = 0) -> TextBlock | None:
        """Return the text so far, or None if it is blank, and begin a new one."""
        text, spans = "".join(self._parts).rstrip(), self._spans
        self._parts, self._spans, self.length = [], [], 0
        if not text.strip():
            return None
        clipped = (TextSpan(s.start, min(s.end, len(text)), s.style, s.arg) for s in spans)
        ordered = sorted((s for s in clipped if s.start < s.end), key=lambda s: (s.start, -s.end))
        return TextBlock(text, tuple(ordered), heading)

    def inline(self, tokens: Sequence[Token], indent: str = "") -> None:
        """Add text within a block. ``indent`` begins each further line."""
        opened: list[tuple[int, str]] = []
        for token in tokens:
            kind = token.type
            if kind == "code_inline":
                start = self.length
                self.add(token.content)
                self.mark(start, Style.CODE)
            elif kind in {"softbreak", "hardbreak"}:
                self.add("\n" + indent)
            elif kind == "image":
                start = self.length
                self.inline(token.children or (), indent)
                self._link(start, str(token.attrGet("src") or ""))
            elif token.nesting == 1:
                opened.append((self.length, str(token.attrGet("href") or "")))
            elif token.nesting == -1:
                start, href = opened.pop()
                if kind == "link_close":
                    self._link(start, href)
                else:
                    self.mark(start, _STYLES[token.tag])
            else:
                self.add(token.content)

    def _link(self, start: int, url: str) -> None:
        """Link the text added since ``start``; a target that cannot be opened is added as text."""
        shown = _GRAMMAR.readable_url(url)
        if self.length == start:
            self.add(shown)
        if _OPENABLE.match(url):
            self.mark(start, Style.LINK, url)
        elif shown and not shown.startswith("#") and self._since(start) != shown:
            self.add(f" ({shown})")

    def _since(self, start: int) -> str:
        """Return the text added since ``start``, which must be where an addition began."""
        at, length = len(self._parts), self.length
        while length > start:
            at -= 1
            length -= len(self._parts[at])
        return "".join(self._parts[at:])


# -- tables ----------------------------------------------------------------------------------------


def _table(stream: Iterator[tuple[int, Token]], lines: Sequence[str]) -> Table:
    """Read the tokens up to the end of the table."""
    rows: list[list[TextBlock]] = []
    align: list[Align] = []
    for _, token in stream:
        if token.type == "table_close":
            break
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "th_open":
            align.append(_align(token))
        elif token.type == "inline":
            rows[-1].append(_cell(token.children or ()))
            if len(rows) > 1 and len(rows[-1]) == len(align) and token.map:
                rows[-1] += _further_cells(lines[token.map[0]], len(align))
    header, *body = rows or [[]]
    return Table(tuple(header), tuple(map(tuple, body)), tuple(align))


def _align(token: Token) -> Align:
    style = str(token.attrGet("style") or "")
    return next((align for align in Align if style.endswith(align.value)), Align.LEFT)


def _cell(children: Sequence[Token]) -> TextBlock:
    for child in children:
        if child.type == "text":
            child.content = _CELL_BREAK.sub("\n", child.content)
    if children and children[0].type == "text":
        children[0].content = children[0].content.lstrip()
    line = _Line()
    line.inline(children)
    return line.take() or TextBlock("")


def _further_cells(line: str, columns: int) -> list[TextBlock]:
    """Return the cells for which the header has no column; the parser drops them."""
    cells = _CELL_END.split(line.strip(" \t>").removeprefix("|"))
    if cells and not cells[-1].strip():
        cells.pop()
    return [_cell(_GRAMMAR.inline(cell.strip())) for cell in cells[columns:]]
