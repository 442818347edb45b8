"""Texts that name a part of the outbox in a note about it. Pure."""

from __future__ import annotations

from agentsup.catalogue import LocalizedTexts
from agentsup.model.channel import OutboxPart

_EXCERPT_CHARS = 80


def excerpt(part: OutboxPart) -> str:
    """The beginning of the part's text, or the name of its file; empty if it has neither."""
    body = part.body
    attached = body.get("attached") or {}
    text = str(
        attached.get("name") or body.get("text") or body.get("name") or body.get("path") or ""
    )
    text = " ".join(text.split())
    if len(text) > _EXCERPT_CHARS:
        text = text[: _EXCERPT_CHARS - 1].rstrip() + "…"
    return text


def lost_text(part: OutboxPart, say: LocalizedTexts) -> str:
    """The note that the part may not have arrived, and how to see it again."""
    text = excerpt(part)
    which = f"“{text}”" if text else say("part.of_kind", kind=part.kind)
    return say("part.lost_piece" if part.progress else "part.lost", which=which, id=part.outbox_id)
