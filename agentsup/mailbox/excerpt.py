"""How a part of the outbox is named in a word about it. Pure."""

from __future__ import annotations

from agentsup.catalogue import Words
from agentsup.model.channel import OutboxPart

__all__ = ["excerpt", "lost_text"]

_EXCERPT_CHARS = 80


def excerpt(part: OutboxPart) -> str:
    """The beginning of what it says, or the name of its file; empty where it has neither."""
    body = part.body
    attached = body.get("attached") or {}
    told = str(
        attached.get("name") or body.get("text") or body.get("name") or body.get("path") or ""
    )
    told = " ".join(told.split())
    if len(told) > _EXCERPT_CHARS:
        told = told[: _EXCERPT_CHARS - 1].rstrip() + "…"
    return told


def lost_text(part: OutboxPart, say: Words) -> str:
    """That it may not have arrived, and how to see it again."""
    told = excerpt(part)
    which = f"“{told}”" if told else say("part.of_kind", kind=part.kind)
    return say("part.lost_piece" if part.progress else "part.lost", which=which, id=part.outbox_id)
