"""Answers for Telegram: texts with entities, each within the limits of a message.

Entities are used instead of MarkdownV2 or HTML: nothing must be escaped, so no answer can cause a
parse error. All functions are pure; the same answer gives the same pieces after a restart (P2).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NotRequired, TypedDict

from agentsup.channels.text.clean import is_blank
from agentsup.channels.text.layout import lay_out
from agentsup.channels.text.markdown import parse
from agentsup.channels.text.split import Passage, passages, utf16_len
from agentsup.model.answer import AnswerBlocks, Capabilities, Style, TextSpan

CAPABILITIES = Capabilities(
    text_limit=4096,
    caption_limit=1024,
    max_file_bytes=50 * 1024 * 1024,
)

NO_PREVIEW: Final = {"link_preview_options": {"is_disabled": True}}
"""Fields of a call whose text shows no preview of links."""
MAX_ENTITIES = 100
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
# If there are too many spans, the first of these styles are kept. A spoiler hides text that must
# not be seen at once, so it comes first.
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
        """The fields for sendMessage, editMessageText, sendMessageDraft."""
        return {"text": self.text} | ({"entities": [*self.entities]} if self.entities else {})

    def caption_fields(self) -> dict[str, Any]:
        """The fields for sendDocument, sendPhoto and the like."""
        entities = {"caption_entities": [*self.entities]} if self.entities else {}
        return {"caption": self.text} | entities


def render(text: str, *, limit: int = CAPABILITIES.text_limit) -> tuple[Piece, ...]:
    """Render an engine's Markdown as messages of at most ``limit`` UTF-16 units; none if blank.

    Takes 2 to 10 µs per character, so long texts go through ``channels.text.long``.
    """
    return render_answer(parse(text), limit=limit)


def render_answer(
    answer: AnswerBlocks, *, limit: int = CAPABILITIES.text_limit
) -> tuple[Piece, ...]:
    """Render blocks as messages. Files and buttons are left out: other methods send them."""
    return tuple(_piece(passage) for passage in passages(lay_out(answer), limit))


def render_partial(text: str, *, limit: int = CAPABILITIES.text_limit) -> Piece | None:
    """Return the first message of an unfinished text, for a preview; None if it is blank.

    It ends with an ellipsis if there is more text. Only as much of the text is parsed as needed.
    """
    length = 2 * limit + _MAX_URL_CHARS
    while True:
        flow = lay_out(parse(text[:length]))
        found = next(passages(flow, limit - len("\n" + _CUT)), None)
        # Markup that was cut would be shown raw, so the first message must end well before the cut.
        if length >= len(text) or (found and len(flow.text) - found.end >= _MAX_URL_CHARS):
            break
        length *= 2  # much of the source was markup
    if found is None:
        return None
    piece = _piece(found)
    return piece if is_blank(flow.text[found.end :]) else _with_ellipsis(piece)


# -- pieces ----------------------------------------------------------------------------------------


def _with_ellipsis(piece: Piece) -> Piece:
    is_code_last = any(
        entity["type"] == "pre" and entity["offset"] + entity["length"] == utf16_len(piece.text)
        for entity in piece.entities
    )
    return Piece(piece.text + ("\n" if is_code_last else " ") + _CUT, piece.entities)


def _piece(passage: Passage) -> Piece:
    """Strip white space as the platform does, but keep the indentation of code at the start."""
    text = passage.text.rstrip()
    first_code = min((s.start for s in passage.spans if s.style is Style.PRE), default=len(text))
    lead = min(len(text) - len(text.lstrip()), first_code)
    text = text[lead:]
    moved = (
        TextSpan(max(s.start - lead, 0), min(s.end - lead, len(text)), s.style, s.arg)
        for s in passage.spans
    )
    return Piece(text, _entities(text, _tidy(text, moved)))


def _tidy(text: str, spans: Iterable[TextSpan]) -> list[TextSpan]:
    """Return spans that the platform accepts: none blank, and only allowed ones around code."""
    chosen: list[TextSpan] = []
    by_style: dict[Style, list[TextSpan]] = {}
    for span in spans:
        by_style.setdefault(span.style, []).append(span)
    links = [span for span in by_style.pop(Style.LINK, []) if _is_openable(span.arg)]
    codes = [
        code
        for code in by_style.pop(Style.CODE, [])
        if not any(link.start < code.end and code.start < link.end for link in links)
    ]
    chosen += links
    chosen += codes
    chosen += by_style.pop(Style.PRE, [])
    for style, found in by_style.items():
        joined = _joined(found)
        if style not in _MAY_SURROUND_CODE:
            joined = _outside(joined, codes)
        chosen += joined
    trimmed = (span if span.style is Style.PRE else _trimmed(text, span) for span in chosen)
    return [span for span in trimmed if text[span.start : span.end].strip()]


def _is_openable(url: str) -> bool:
    return bool(_OPENABLE.match(url)) and len(url) <= _MAX_URL_CHARS


def _joined(spans: list[TextSpan]) -> list[TextSpan]:
    """Merge overlapping spans of one style; they must be sorted by start."""
    joined: list[TextSpan] = []
    for span in spans:
        if joined and span.start < joined[-1].end:
            last = joined[-1]
            joined[-1] = TextSpan(last.start, max(last.end, span.end), last.style)
        else:
            joined.append(span)
    return joined


def _outside(spans: list[TextSpan], holes: list[TextSpan]) -> list[TextSpan]:
    """Return the parts of spans outside the holes; both sorted and without overlaps."""
    found: list[TextSpan] = []
    for span in spans:
        start = span.start
        for hole in holes:
            if hole.end <= start or hole.start >= span.end:
                continue
            found.append(TextSpan(start, hole.start, span.style))
            start = hole.end
        found.append(TextSpan(start, span.end, span.style))
    return [span for span in found if span.start < span.end]


def _trimmed(text: str, span: TextSpan) -> TextSpan:
    part = text[span.start : span.end]
    start = span.start + len(part) - len(part.lstrip())
    return TextSpan(start, max(start, span.start + len(part.rstrip())), span.style, span.arg)


def _entities(text: str, spans: list[TextSpan]) -> tuple[Entity, ...]:
    if len(spans) > MAX_ENTITIES:
        spans.sort(key=lambda span: (_rank(text, span), span.start))
        spans = spans[:MAX_ENTITIES]
    spans.sort(key=lambda span: (span.start, -span.end, span.style))
    return tuple(_entity(text, span) for span in spans)


def _rank(text: str, span: TextSpan) -> int:
    """Return the rank of a span; a link that shows its own URL needs no entity and comes last."""
    is_bare = span.style is Style.LINK and text[span.start : span.end] == span.arg
    return len(_IMPORTANCE) if is_bare else _IMPORTANCE.index(span.style)


def _entity(text: str, span: TextSpan) -> Entity:
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
