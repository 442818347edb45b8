"""What engines say, made fit for the database, sockets and people.

A model may stream half a surrogate pair, and a client library may hand on numbers that no column
holds. Neither may cost the turn, so both are mended here, at the engine's edge.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from agentsup.model.engine import (
    Done,
    EngineEvent,
    FileOut,
    ModelRequest,
    Notice,
    Suspended,
    TextDelta,
    ThinkingDelta,
    ToolFinished,
    ToolStarted,
    Usage,
)

__all__ = ["clean", "clean_event", "clean_value"]

_MAX_TOKENS = 2**53
_MAX_DEPTH = 64


def clean(text: str) -> str:
    """``text`` without lone surrogates, which no database and no socket would take."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode("utf-8")
    return text


def clean_value(value: Any, depth: int = 0) -> Any:
    """A JSON value with every text in it cleaned, keys too; what is not JSON stays as it is."""
    if isinstance(value, str):
        return clean(value)
    if depth < _MAX_DEPTH and isinstance(value, dict):
        return {clean_value(k): clean_value(v, depth + 1) for k, v in value.items()}
    if depth < _MAX_DEPTH and isinstance(value, list | tuple):
        return [clean_value(each, depth + 1) for each in value]
    return value


def clean_event(event: EngineEvent) -> EngineEvent:
    """``event`` with storable texts and numbers; itself if nothing had to change."""
    match event:
        case TextDelta() | ThinkingDelta() | Notice():
            text = clean(event.text)
            return event if text is event.text else replace(event, text=text)
        case ToolStarted():
            return replace(event, name=clean(event.name), args=clean_value(event.args))
        case ToolFinished():
            return replace(event, name=clean(event.name), preview=clean(event.preview))
        case FileOut():
            return replace(event, path=clean(event.path))
        case ModelRequest():
            return event
        case Usage():
            return _usage(event)
        case Suspended():
            return replace(
                event,
                text=clean(event.text),
                options=tuple(clean(option) for option in event.options),
                kind=clean(event.kind),
            )
        case Done():
            return replace(
                event, text=clean(event.text), error=clean(event.error), code=clean(event.code)
            )


def _usage(used: Usage) -> Usage:
    """Counts that no column holds, or that would pay money back, are not believed."""
    usd = used.usd
    if usd is not None and not (math.isfinite(usd) and usd >= 0):
        usd = None
    return replace(
        used,
        input_tokens=_count(used.input_tokens),
        output_tokens=_count(used.output_tokens),
        usd=usd,
    )


def _count(tokens: int) -> int:
    return min(max(0, tokens), _MAX_TOKENS)
