"""The subject of a request: the first words of its message, for lists of traces."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from agentsup.model.message import Part, text_of
from agentsup.store import Reader

CHARS = 80
"""The most characters of an excerpt."""
_READ = 4_000


def texts(reader: Reader, messages: Sequence[str]) -> dict[str, str]:
    """The text of each of these messages as it was written; pruned ones are missing."""
    rows = reader.all(
        "SELECT message_id, parts FROM messages WHERE message_id IN"
        " (SELECT value FROM json_each(?))",
        (json.dumps(messages),),
    )
    return {row[0]: text_of(tuple(map(Part.from_json, json.loads(row[1])))) for row in rows}


def excerpt(text: str, redact: Callable[[str, int], str]) -> str:
    """The beginning of ``text`` on one line. ``redact(text, limit)`` removes secrets and leaves no
    part of one at its cut."""
    line = " ".join(redact(text, _READ).split())
    return line if len(line) <= CHARS else line[: CHARS - 1] + "…"
