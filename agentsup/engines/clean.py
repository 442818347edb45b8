"""Values of engines: events made fit for the database, sockets and people; JSON of programs; states.

A model may stream half a surrogate pair, and a client library may pass on numbers that no column
holds. Neither may fail the turn, so both are corrected here, as soon as they leave the engine.
"""

from __future__ import annotations

import functools
import json
import math
from dataclasses import fields, replace
from typing import Any

from agentsup.model.engine import EngineEvent, Usage

_MAX_TOKENS = 2**53
_MAX_DEPTH = 64
_VERSION = 1


def clean(text: str) -> str:
    """``text`` without lone surrogates, which no database and no socket would take."""
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode("utf-8")
    return text


class HalfJoiner:
    """Joins characters whose halves came in two deltas."""

    def __init__(self) -> None:
        self._half = ""

    def feed(self, delta: str) -> str:
        """Return the text up to a first half at its end, which waits for the next delta."""
        text = self._half + delta
        self._half = text[-1] if text and "\ud800" <= text[-1] <= "\udbff" else ""
        if self._half:
            text = text[:-1]
        return text if text.isascii() else clean(_joined(text))

    def end(self) -> str:
        """Return what still waits."""
        return clean(self._half)


def _joined(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def clean_value(value: Any, depth: int = 0) -> Any:
    """A JSON value with every text in it cleaned, keys too; what is not JSON stays as it is."""
    if isinstance(value, str):
        return clean(value)
    if depth < _MAX_DEPTH and isinstance(value, dict):
        return {clean_value(k): clean_value(v, depth + 1) for k, v in value.items()}
    if depth < _MAX_DEPTH and isinstance(value, list | tuple):
        return [clean_value(each, depth + 1) for each in value]
    return value


def as_dict(value: Any) -> dict[str, Any]:
    """The value if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def objects(value: Any) -> list[dict[str, Any]]:
    """The JSON objects in a JSON array; none if the value is something else."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def json_object(line: bytes) -> dict[str, Any] | None:
    """The JSON object in a line of a program's output; None for any other line."""
    try:
        found = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def clean_event(event: EngineEvent) -> EngineEvent:
    """``event`` with storable texts and numbers; itself if nothing had to change."""
    if isinstance(event, Usage):
        return _usage(event)
    changed: dict[str, Any] = {}
    for name in _names(type(event)):  # type: ignore[arg-type]  # types can be hashed
        value = getattr(event, name)
        cleaned = tuple(map(clean, value)) if isinstance(value, tuple) else clean_value(value)
        if cleaned is not value:
            changed[name] = cleaned
    return replace(event, **changed) if changed else event


@functools.cache
def _names(kind: type[Any]) -> tuple[str, ...]:
    """The names of the fields of a kind of event, of which there are few."""
    return tuple(each.name for each in fields(kind))


def _usage(used: Usage) -> Usage:
    """Correct counts that no column holds or that are negative, and drop such a cost."""
    usd = used.usd
    if usd is not None and not (math.isfinite(usd) and usd >= 0):
        usd = None
    return replace(
        used,
        input_tokens=_count(used.input_tokens),
        output_tokens=_count(used.output_tokens),
        cache_read_tokens=_count(used.cache_read_tokens),
        cache_write_tokens=_count(used.cache_write_tokens),
        usd=usd,
    )


def _count(tokens: int) -> int:
    return min(max(0, tokens), _MAX_TOKENS)


def dump(engine: str, **facts: Any) -> bytes:
    """The facts as the opaque state of a session, or as a checkpoint."""
    return json.dumps({"v": _VERSION, "engine": engine, **facts}).encode()


def load(state: bytes | None, engine: str) -> dict[str, Any] | None:
    """The value that was given to ``dump``; None if there is none, of another engine, or
    unreadable."""
    try:
        saved = json.loads(state or b"")
    except (ValueError, RecursionError):
        return None
    is_ours = isinstance(saved, dict) and (saved.get("v"), saved.get("engine")) == (
        _VERSION,
        engine,
    )
    return saved if is_ours else None
