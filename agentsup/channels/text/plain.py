"""The blocks of an answer as plain text, for a terminal, a notice or a channel without styles."""

from __future__ import annotations

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


def plain(answer: AnswerBlocks, *, width: int = 80) -> str:
    """Return the whole answer as text; tables are aligned if they fit ``width`` columns."""
    shown = (_block(block, width) for block in answer.blocks)
    return scrub("\n\n".join(text for text in shown if text.strip()))


def _block(block: Block, width: int) -> str:
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
            aligned = tables.align(block, width)
            if aligned is None:
                return _text(tables.records(block))
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
