"""Answers as Telegram shows them: texts with entities, each within the limits of a message.

Entities rather than MarkdownV2 or HTML: there is nothing to escape, so no answer can break a
parser. Everything here is pure; the same answer gives the same pieces after a restart (P2).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

from agentsup.channels.answer.clean import is_blank
from agentsup.channels.answer.layout import lay_out
from agentsup.channels.answer.markdown import parse
from agentsup.channels.answer.split import Passage, passages, utf16_len
from agentsup.model.answer import (
    Answer,
    Buttons,
    Capabilities,
    Markup,
    Span,
    Style,
    TextUnit,
)
from agentsup.model.errors import BadRequest

__all__ = [
    "CAPABILITIES",
    "ON_LOOP_MAX_CHARS",
    "Entity",
    "Piece",
    "keyboard",
    "plain",
    "render",
    "render_answer",
    "render_partial",
    "utf16_len",
]

CAPABILITIES = Capabilities(
    text_limit=4096,
    text_unit=TextUnit.UTF16,
    caption_limit=1024,
    markup=Markup.ENTITIES,
    edits=True,
    min_edit_interval_ms=1_500,
    buttons=True,
    drafts=True,
    reactions=True,
    threads=True,
    typing=True,
    files=True,
    max_file_bytes=50 * 1024 * 1024,
)

ON_LOOP_MAX_CHARS = 1_000
"""Texts up to here take 2.5 ms, dense ones 9 ms; longer ones belong in a thread."""

MAX_ENTITIES = 100
_MAX_CALLBACK_BYTES = 64
_MAX_URL_CHARS = 2_048
_MAX_LANGUAGE_CHARS = 32
_LONG_QUOTE_CHARS, _LONG_QUOTE_LINES = 600, 10

_TYPES = {
    Style.BOLD: "bold",
    Style.ITALIC: "italic",
    Style.STRIKE: "strikethrough",
    Style.SPOILER: "spoiler",
    Style.CODE: "code",
    Style.PRE: "pre",
    Style.LINK: "text_link",
    Style.QUOTE: "blockquote",
}
# Kept first when there are too many. A spoiler hides what must not be seen at once.
_IMPORTANCE = (
    Style.SPOILER,
    Style.PRE,
    Style.LINK,
    Style.QUOTE,
    Style.CODE,
    Style.BOLD,
    Style.STRIKE,
    Style.ITALIC,
)
_MAY_SURROUND_CODE = frozenset({Style.QUOTE, Style.LINK})
_OPENABLE = re.compile(r"(?:https?|tg)://[^\s/?#]|mailto:[^\s@]+@", re.IGNORECASE)
_CUT = "…"


class Entity(TypedDict):
    """A MessageEntity; ``offset`` and ``length`` in UTF-16 units."""

    type: str
    offset: int
    length: int
    url: NotRequired[str]
    language: NotRequired[str]


@dataclass(frozen=True, slots=True)
class Piece:
    """One message: text and its entities, sorted by offset."""

    text: str
    entities: tuple[Entity, ...] = ()

    def fields(self) -> dict[str, Any]:
        """For sendMessage, editMessageText, sendMessageDraft."""
        return {"text": self.text} | ({"entities": [*self.entities]} if self.entities else {})

    def caption_fields(self) -> dict[str, Any]:
        """For sendDocument, sendPhoto and their like."""
        entities = {"caption_entities": [*self.entities]} if self.entities else {}
        return {"caption": self.text} | entities


def render(text: str, *, limit: int = CAPABILITIES.text_limit) -> tuple[Piece, ...]:
    """An engine's Markdown as messages of at most ``limit`` UTF-16 units; none if nothing is seen.

    Costs 2 to 10 µs per character: above ``ON_LOOP_MAX_CHARS`` run it in a thread.
    """
    return render_answer(parse(text), limit=limit)


def render_answer(answer: Answer, *, limit: int = CAPABILITIES.text_limit) -> tuple[Piece, ...]:
    """Blocks as messages. Files and buttons are not text: they go by methods of their own."""
    return tuple(_piece(passage) for passage in passages(lay_out(answer), limit))


def render_partial(text: str, *, limit: int = CAPABILITIES.text_limit) -> Piece | None:
    """The first message of a text that is still being written, for a preview; None if empty.

    It ends in an ellipsis if there is more. Only as much of the text is read as that needs.
    """
    length = 2 * limit + _MAX_URL_CHARS
    while True:
        flow = lay_out(parse(text[:length]))
        found = next(passages(flow, limit - len("\n" + _CUT)), None)
        # What was cut in the midst of its markup is shown raw, so the first message ends before it.
        if length >= len(text) or (found and len(flow.text) - found.end >= _MAX_URL_CHARS):
            break
        length *= 2  # much of the source was markup
    if found is None:
        return None
    piece = _piece(found)
    return piece if is_blank(flow.text[found.end :]) else _with_ellipsis(piece)


def plain(piece: Piece) -> str:
    """What to send when the platform refuses the entities: the same text without them."""
    return piece.text


def keyboard(buttons: Buttons) -> dict[str, Any]:
    """An inline keyboard. Raises ``BadRequest`` for data of more than 64 bytes."""
    for button in (button for row in buttons.rows for button in row):
        if len(button.data.encode()) > _MAX_CALLBACK_BYTES:
            raise BadRequest(
                f"the button {button.label!r} carries more than {_MAX_CALLBACK_BYTES} bytes",
                field="buttons",
            )
    rows = [
        [
            {"text": button.label, "url": button.url}
            if button.url
            else {"text": button.label, "callback_data": button.data}
            for button in row
        ]
        for row in buttons.rows
        if row
    ]
    return {"inline_keyboard": rows}


# -- pieces ----------------------------------------------------------------------------------------


def _with_ellipsis(piece: Piece) -> Piece:
    is_code_last = any(
        entity["type"] == "pre" and entity["offset"] + entity["length"] == utf16_len(piece.text)
        for entity in piece.entities
    )
    return Piece(piece.text + ("\n" if is_code_last else " ") + _CUT, piece.entities)


def _piece(passage: Passage) -> Piece:
    """White space at the ends goes, as the platform would have it, save the indentation of code."""
    text = passage.text.rstrip()
    first_code = min((s.start for s in passage.spans if s.style is Style.PRE), default=len(text))
    lead = min(len(text) - len(text.lstrip()), first_code)
    text = text[lead:]
    moved = (
        Span(max(s.start - lead, 0), min(s.end - lead, len(text)), s.style, s.arg)
        for s in passage.spans
    )
    return Piece(text, _entities(text, _tidy(text, moved)))


def _tidy(text: str, spans: Iterable[Span]) -> list[Span]:
    """Spans the platform takes as they are: none empty, none around code that may not be."""
    kept: list[Span] = []
    by_style: dict[Style, list[Span]] = {}
    for span in spans:
        by_style.setdefault(span.style, []).append(span)
    links = [span for span in by_style.pop(Style.LINK, []) if _is_openable(span.arg)]
    codes = [
        code
        for code in by_style.pop(Style.CODE, [])
        if not any(link.start < code.end and code.start < link.end for link in links)
    ]
    kept += links
    kept += codes
    kept += by_style.pop(Style.PRE, [])
    for style, found in by_style.items():
        joined = _joined(found)
        if style not in _MAY_SURROUND_CODE:
            joined = _outside(joined, codes)
        kept += joined
    trimmed = (span if span.style is Style.PRE else _trimmed(text, span) for span in kept)
    return [span for span in trimmed if text[span.start : span.end].strip()]


def _is_openable(url: str) -> bool:
    return bool(_OPENABLE.match(url)) and len(url) <= _MAX_URL_CHARS


def _joined(spans: list[Span]) -> list[Span]:
    """Spans of one style without overlaps; they come sorted by start."""
    joined: list[Span] = []
    for span in spans:
        if joined and span.start < joined[-1].end:
            last = joined[-1]
            joined[-1] = Span(last.start, max(last.end, span.end), last.style)
        else:
            joined.append(span)
    return joined


def _outside(spans: list[Span], holes: list[Span]) -> list[Span]:
    """What remains of spans beside the holes; both sorted and without overlaps."""
    found: list[Span] = []
    for span in spans:
        start = span.start
        for hole in holes:
            if hole.end <= start or hole.start >= span.end:
                continue
            found.append(Span(start, hole.start, span.style))
            start = hole.end
        found.append(Span(start, span.end, span.style))
    return [span for span in found if span.start < span.end]


def _trimmed(text: str, span: Span) -> Span:
    part = text[span.start : span.end]
    start = span.start + len(part) - len(part.lstrip())
    return Span(start, max(start, span.start + len(part.rstrip())), span.style, span.arg)


def _entities(text: str, spans: list[Span]) -> tuple[Entity, ...]:
    if len(spans) > MAX_ENTITIES:
        spans.sort(key=lambda span: (_rank(text, span), span.start))
        spans = spans[:MAX_ENTITIES]
    spans.sort(key=lambda span: (span.start, -span.end, span.style))
    return tuple(_entity(text, span) for span in spans)


def _rank(text: str, span: Span) -> int:
    """A link that shows its own address is one without an entity as well."""
    is_bare = span.style is Style.LINK and text[span.start : span.end] == span.arg
    return len(_IMPORTANCE) if is_bare else _IMPORTANCE.index(span.style)


def _entity(text: str, span: Span) -> Entity:
    shown = text[span.start : span.end]
    entity = Entity(
        type=_TYPES[span.style], offset=utf16_len(text[: span.start]), length=utf16_len(shown)
    )
    if span.style is Style.LINK:
        entity["url"] = span.arg
    elif span.style is Style.PRE and span.arg:
        entity["language"] = span.arg[:_MAX_LANGUAGE_CHARS]
    elif span.style is Style.QUOTE and (
        len(shown) > _LONG_QUOTE_CHARS or shown.count("\n") >= _LONG_QUOTE_LINES
    ):
        entity["type"] = "expandable_blockquote"
    return entity
