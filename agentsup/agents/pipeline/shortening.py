"""How much of a result a model is shown. Pure."""

from __future__ import annotations

CALL_CHARS = 20_000
"""Most characters of one result that are shown."""
TURN_CHARS = 80_000
"""Most characters of results in one turn; beyond it only ends are shown."""
LEAST_CHARS = 1_000
"""Shown of each result, however much the turn has seen."""


def allowance(room_chars: int) -> int:
    """How much of the next result may be shown when the turn has room for ``room_chars`` more."""
    return max(LEAST_CHARS, min(CALL_CHARS, room_chars))


def head_and_tail(text: str, limit: int, reference: str) -> str:
    """The first three quarters and the last quarter of ``limit`` characters, and where the rest is."""
    note = (
        f"\n[… {{left}} of {len(text)} characters are left out here; read on with "
        f'result_read(ref="{reference}", offset={{head}}) …]\n'
    )
    room = max(0, limit - len(note) - 12)
    head = _cut_at_line(text, room * 3 // 4)
    tail = room - room * 3 // 4
    return text[:head] + note.format(left=len(text) - head - tail, head=head) + text[-tail:]


def _cut_at_line(text: str, at: int) -> int:
    """The end of the last whole line before ``at`` if one ends near, else ``at``."""
    line_end = text.rfind("\n", max(0, at - 200), at)
    return at if line_end < 0 else line_end + 1
