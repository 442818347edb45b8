"""Rendering of Markdown that does not block the event loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from agentsup.kit.compute import compute

T = TypeVar("T")
ON_LOOP_MAX_CHARS = 1_000
"""Texts up to this length take 2.5 ms, dense ones 9 ms; longer ones are rendered in a thread."""


async def rendered(render: Callable[[str], T], text: str, *, agent_id: str) -> T:
    """Return ``render(text)``; a long text is rendered in ``kit.compute`` under ``agent_id``.

    Raises what ``render`` raises, and ``RuntimeError`` if the system can start no thread.
    """
    if len(text) <= ON_LOOP_MAX_CHARS:
        return render(text)
    return await compute(partial(render, text), key=agent_id)
