"""Blocks of an answer as the HTML that Matrix clients show: our own tags, everything escaped. Pure.

Only tags from the list in the client-server specification are written, and no attribute but the
target of a link, the language of code and the mark of a spoiler. Nothing of a text can become a
tag, as each character goes through ``html.escape``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from itertools import pairwise

from agentsup.channels.text.clean import scrub
from agentsup.model.answer import Block, CodeBlock, Style, Table, TextBlock, TextSpan

OPENABLE = re.compile(r"(?:https?|ftp)://[^\s/?#]|mailto:[^\s@]+@|magnet:\?", re.IGNORECASE)
"""Targets that clients may open; any other link is shown as its text."""
_LANGUAGE = re.compile(r"[A-Za-z0-9_+#.-]{1,32}")
# From the outside in.
_ORDER = (
    Style.LINK,
    Style.SPOILER,
    Style.BOLD,
    Style.ITALIC,
    Style.STRIKE,
    Style.CODE,
)
_TAGS = {
    Style.BOLD: "strong",
    Style.ITALIC: "em",
    Style.STRIKE: "del",
    Style.CODE: "code",
    Style.LINK: "a",
    Style.SPOILER: "span",
}
_NBSP = "\u00a0"
_INDENT = re.compile(r"(?m)^[ \t]+")


def html_of(block: Block) -> str:
    """One block."""
    match block:
        case TextBlock():
            return _text(block)
        case CodeBlock(text, language):
            name = f' class="language-{language}"' if _LANGUAGE.fullmatch(language) else ""
            return f"<pre><code{name}>{_escaped(text)}\n</code></pre>"
        case Table():
            return _table(block)


def _escaped(text: str) -> str:
    return escape(scrub(text), quote=True)


def _lines(text: str) -> str:
    """Running text: line ends and the indentation of lines are kept, which HTML would not do."""
    indented = _INDENT.sub(lambda found: _NBSP * len(found[0].expandtabs(4)), text)
    return _escaped(indented).replace("\n", "<br>")


# -- text ------------------------------------------------------------------------------------------


def _text(text: TextBlock) -> str:
    if not text.text.strip():
        return ""
    if text.heading:
        tag = f"h{min(6, max(1, text.heading))}"
        return f"<{tag}>{_styled(text.text, text.spans)}</{tag}>"
    quotes = [span for span in text.spans if span.style is Style.QUOTE]
    parts: list[str] = []
    done = 0
    for start, end in _joined(quotes):
        parts += _paragraph(text, done, start, "p")
        parts += _paragraph(text, start, end, "blockquote")
        done = end
    parts += _paragraph(text, done, len(text.text), "p")
    return "".join(parts)


def _joined(spans: Iterable[TextSpan]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for span in sorted(spans, key=lambda one: (one.start, one.end)):
        if joined and span.start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], span.end))
        else:
            joined.append((span.start, span.end))
    return joined


def _paragraph(text: TextBlock, start: int, end: int, tag: str) -> list[str]:
    """The stretch as an element of its own, without the line ends around it."""
    part = text.text[start:end]
    end = start + len(part.rstrip())
    start += len(part) - len(part.lstrip("\n"))
    if start >= end:
        return []
    within = tuple(
        TextSpan(max(s.start, start) - start, min(s.end, end) - start, s.style, s.arg)
        for s in text.spans
        if s.start < end and s.end > start
    )
    return [f"<{tag}>{_styled(text.text[start:end], within)}</{tag}>"]


def _styled(text: str, spans: Sequence[TextSpan]) -> str:
    """Text with its spans as properly nested tags, however the spans overlap."""
    wanted = [
        (span, opening)
        for span in spans
        if span.start < span.end and (opening := _opening(span)) is not None
    ]
    positions = sorted({0, len(text), *(p for s, _ in wanted for p in (s.start, s.end))})
    parts: list[str] = []
    opened: list[tuple[Style, str]] = []
    coming = sorted(wanted, key=lambda one: one[0].start)
    running: list[tuple[TextSpan, tuple[Style, str]]] = []
    at = 0
    for start, end in pairwise(positions):
        while at < len(coming) and coming[at][0].start <= start:
            running.append(coming[at])
            at += 1
        running = [one for one in running if one[0].end > start]
        stack = _stack(opening for _, opening in running)
        shared = 0
        while shared < min(len(stack), len(opened)) and stack[shared] == opened[shared]:
            shared += 1
        parts += (f"</{_TAGS[style]}>" for style, _ in reversed(opened[shared:]))
        parts += (tag for _, tag in stack[shared:])
        opened = stack
        # A line that goes on from the stretch before has no indentation.
        shown = text[start:end]
        parts.append(_lines(shown) if not start or text[start - 1] == "\n" else _rest(shown))
    parts += (f"</{_TAGS[style]}>" for style, _ in reversed(opened))
    return "".join(parts)


def _rest(text: str) -> str:
    first, line_end, more = text.partition("\n")
    return _escaped(first) + (f"<br>{_lines(more)}" if line_end else "")


def _stack(openings: Iterable[tuple[Style, str]]) -> list[tuple[Style, str]]:
    """The open tags, outermost first; one of each kind."""
    found = dict(openings)
    return [(style, found[style]) for style in _ORDER if style in found]


def _opening(span: TextSpan) -> tuple[Style, str] | None:
    match span.style:
        case Style.LINK:
            if not OPENABLE.match(span.arg):
                return None
            return span.style, f'<a href="{_escaped(span.arg)}">'
        case Style.SPOILER:
            return span.style, "<span data-mx-spoiler>"
        case style if style in _TAGS:
            return style, f"<{_TAGS[style]}>"
        case Style.PRE:
            return Style.CODE, "<code>"
        case _:
            return None


# -- tables ----------------------------------------------------------------------------------------


def _table(table: Table) -> str:
    """A real table; clients show it with columns. Cells keep their styles."""
    count = max(map(len, (table.header, *table.rows)), default=0)
    if not count:
        return ""
    head = ""
    if any(cell.text.strip() for cell in table.header):
        head = f"<thead>{_row(table.header, count, 'th')}</thead>"
    body = "".join(_row(row, count, "td") for row in table.rows)
    return f"<table>{head}<tbody>{body}</tbody></table>"


def _row(cells: Sequence[TextBlock], count: int, tag: str) -> str:
    shown = [f"<{tag}>{_styled(cell.text.strip(), _inner(cell))}</{tag}>" for cell in cells]
    shown += [f"<{tag}></{tag}>"] * (count - len(cells))
    return f"<tr>{''.join(shown)}</tr>"


def _inner(cell: TextBlock) -> tuple[TextSpan, ...]:
    """The spans of a cell's text once it is stripped."""
    stripped = cell.text.strip()
    lead = len(cell.text) - len(cell.text.lstrip())
    moved = (
        TextSpan(max(0, s.start - lead), min(len(stripped), s.end - lead), s.style, s.arg)
        for s in cell.spans
    )
    return tuple(span for span in moved if span.start < span.end)
