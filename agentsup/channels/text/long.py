"""Long texts: rendered without blocking the event loop, or sent as a file instead of many messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TypeVar

from agentsup.channels.text.clean import clean
from agentsup.channels.text.layout import lay_out
from agentsup.channels.text.markdown import parse
from agentsup.channels.text.split import passages
from agentsup.kit.compute import compute

SUMMARY_SIZE = 600
"""Most units of a summary; it fits into the caption of a file."""

_CUT = "…"
_LIMIT = 4096
T = TypeVar("T")
ON_LOOP_MAX_CHARS = 1_000
"""Texts up to this length take 2.5 ms, dense ones 9 ms; longer ones are rendered in a thread."""


@dataclass(frozen=True, slots=True)
class LongAnswer:
    """The file, and as ``summary`` the beginning of the answer, which is sent with it."""

    name: str
    data: bytes
    summary: str


def as_file(text: str, limit_pieces: int) -> LongAnswer | None:
    """Return the answer as a file if it needs over ``limit_pieces`` messages of 4096 units.

    None otherwise, and always for ``limit_pieces`` of 0 or less, which is the setting's default.
    The file holds the engine's Markdown as UTF-8. Costs as much as rendering does.
    """
    if limit_pieces <= 0 or len(text) <= _LIMIT // 4:
        return None
    flow = lay_out(parse(text))
    if len(list(islice(passages(flow, _LIMIT), limit_pieces + 1))) <= limit_pieces:
        return None
    first = next(passages(flow, SUMMARY_SIZE - len(f" {_CUT}".encode())))
    data = clean(text).strip() + "\n"
    return LongAnswer("answer.md", data.encode(), f"{first.text.strip()} {_CUT}")


async def rendered(render: Callable[[str], T], text: str, *, agent_id: str) -> T:
    """Return ``render(text)``; a long text is rendered in ``kit.compute`` under ``agent_id``.

    Raises what ``render`` raises, and ``RuntimeError`` if the system can start no thread.
    """
    if len(text) <= ON_LOOP_MAX_CHARS:
        return render(text)
    return await compute(partial(render, text), key=agent_id)
