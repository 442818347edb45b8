"""An engine's saved state between turns: one JSON object, marked with the engine's name."""

from __future__ import annotations

import json
from typing import Any

_VERSION = 1


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
