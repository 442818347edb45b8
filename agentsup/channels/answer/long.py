"""When a long answer goes as a file rather than as a row of messages."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from agentsup.channels.answer.clean import clean
from agentsup.channels.answer.layout import lay_out
from agentsup.channels.answer.markdown import parse
from agentsup.channels.answer.split import passages
from agentsup.model.answer import TextUnit

SUMMARY_SIZE = 600
"""Units of a summary at most; it fits into the caption of a file."""

_CUT = "…"


@dataclass(frozen=True, slots=True)
class LongAnswer:
    """The file and the text that goes with it: how the answer begins."""

    name: str
    data: bytes
    summary: str


def as_file(
    text: str,
    limit_pieces: int,
    *,
    limit: int = 4096,
    unit: TextUnit = TextUnit.UTF16,
    name: str = "answer.md",
) -> LongAnswer | None:
    """The answer as a file if it takes more than ``limit_pieces`` messages of ``limit`` units.

    None otherwise, and always for ``limit_pieces`` of 0 or less, which is the setting's default.
    The file holds the engine's Markdown as UTF-8. Costs as much as rendering does.
    """
    if limit_pieces <= 0 or len(text) <= limit // 4:
        return None
    flow = lay_out(parse(text))
    if len(list(islice(passages(flow, limit, unit), limit_pieces + 1))) <= limit_pieces:
        return None
    first = next(passages(flow, min(limit, SUMMARY_SIZE) - len(f" {_CUT}".encode()), unit))
    data = clean(text).strip() + "\n"
    return LongAnswer(name, data.encode(), f"{first.text.strip()} {_CUT}")
