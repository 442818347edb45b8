"""Limits of how much of a result a model is shown. Pure."""

from __future__ import annotations

CALL_CHARS = 20_000
"""The most characters that are shown of one result."""
TURN_CHARS = 80_000
"""The most characters of results in one turn; beyond that only the ends are shown."""
LEAST_CHARS = 1_000
"""Characters that are shown of each result, however much the turn has read."""


def allowance(room_chars: int) -> int:
    """Characters of the next result that may be shown if ``room_chars`` of the turn are left."""
    return max(LEAST_CHARS, min(CALL_CHARS, room_chars))


def head_and_tail(text: str, limit: int, reference: str) -> str:
    """``text`` in at most ``limit`` characters: three quarters from its beginning, one quarter from
    its end, and between them how to read the rest."""
    note = (
        f"\n[… {{left}} of {len(text)} characters are left out here; read on with "
        f'result_read(ref="{reference}", offset={{head}}) …]\n'
    )
    room = max(0, limit - len(note) - 12)
    head = _cut_at_line(text, room * 3 // 4)
    tail = room - room * 3 // 4
    return text[:head] + note.format(left=len(text) - head - tail, head=head) + text[-tail:]


def _cut_at_line(text: str, at: int) -> int:
    """The end of the last whole line in the 200 characters before ``at``, else ``at``."""
    line_end = text.rfind("\n", max(0, at - 200), at)
    return at if line_end < 0 else line_end + 1
