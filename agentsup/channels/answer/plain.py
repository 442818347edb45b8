"""The blocks of an answer as plain text, for a terminal, a notice or a channel without styles."""

from __future__ import annotations

from agentsup.channels.answer import tables
from agentsup.channels.answer.clean import scrub
from agentsup.model.answer import (
    Answer,
    Block,
    Buttons,
    Code,
    FileRef,
    Span,
    Status,
    Style,
    Table,
    Text,
)


def plain(answer: Answer, *, width: int = 80) -> str:
    """The whole answer as text; tables are aligned if ``width`` columns are enough for them."""
    shown = (_block(block, width) for block in answer.blocks)
    return scrub("\n\n".join(text for text in shown if text.strip()))


def _block(block: Block, width: int) -> str:
    match block:
        case Text():
            return _text(block)
        case Code(text, language):
            # A fence longer than any within.
            fence = "```"
            while fence in text:
                fence += "`"
            return f"{fence}{language}\n{text}\n{fence}"
        case Table():
            aligned = tables.align(block, width)
            if aligned is None:
                return _text(tables.records(block))
            return "\n".join(filter(None, (aligned.head, aligned.body)))
        case FileRef():
            return f"📎 {block.label}"
        case Buttons(rows):
            return "\n".join(
                "  ".join(f"[{b.label}: {b.url}]" if b.url else f"[{b.label}]" for b in row)
                for row in rows
            )
        case Status(_, text):
            return text


def _text(text: Text) -> str:
    """Links name their target, quotes carry their mark on each line; other styles are left out."""
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


def _target(text: str, span: Span) -> list[tuple[int, int, str]]:
    shown = text[span.start : span.end]
    return (
        []
        if shown in {span.arg, span.arg.removeprefix("mailto:")}
        else [(span.end, 0, f" ({span.arg})")]
    )
