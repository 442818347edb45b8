"""Long answers that are sent as a file instead of many messages."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from agentsup.channels.text.clean import clean
from agentsup.channels.text.layout import lay_out
from agentsup.channels.text.markdown import parse
from agentsup.channels.text.split import passages

SUMMARY_SIZE = 600
"""Most units of a summary; it fits into the caption of a file."""

_CUT = "…"
_LIMIT = 4096


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
