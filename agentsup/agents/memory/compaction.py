"""When a session's history is too long, what of it is replaced, and by what without a model. Pure.

Whole turns are replaced, the oldest first, so that what is left is a history that could have been
said just so. The newest turn stays whatever its length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentsup.agents.memory.telling import one_line
from agentsup.agents.memory.tokens import clipped, tokens, tokens_of_bytes
from agentsup.agents.transcript import HISTORY_LIMIT, Said, SessionSize

KEPT_ENTRIES = HISTORY_LIMIT // 2
_BEGINNING = "It began with: "
_LEFT_OUT = "(turns between are left out)"
_FIRST_TOKENS = 200
_SIDE_TOKENS = 40
"""Of what was asked and of what was answered in a turn's line."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The entries of one message."""

    entries: tuple[Said, ...]

    @property
    def tokens(self) -> int:
        """Estimated length."""
        return sum(tokens(entry.text) for entry in self.entries)


@dataclass(frozen=True, slots=True)
class Shortening:
    """What a summary shall stand for. ``previous`` is the summary of what came before ``turns``."""

    previous: str
    turns: tuple[Turn, ...]
    max_tokens: int

    @property
    def upto_id(self) -> int:
        """The last entry that the summary stands for."""
        return self.turns[-1].entries[-1].entry_id


def is_too_long(size: SessionSize, budget_tokens: int, *, from_state: bool) -> bool:
    """Whether a session is to be shortened before its next turn. ``from_state``: the engine goes on
    from a state of its own that holds the history, so the length of that state counts."""
    if from_state and size.state_bytes:
        return tokens_of_bytes(size.state_bytes) > budget_tokens
    length = tokens_of_bytes(size.text_bytes + size.summary_bytes)
    return length > budget_tokens or size.entries > HISTORY_LIMIT


def turns_of(entries: Sequence[Said]) -> list[Turn]:
    """Entries by turn, in order."""
    turns: list[list[Said]] = []
    for entry in entries:
        if not turns or turns[-1][-1].message_id != entry.message_id:
            turns.append([])
        turns[-1].append(entry)
    return [Turn(tuple(each)) for each in turns]


def shortening(previous: str, entries: Sequence[Said], budget_tokens: int) -> Shortening | None:
    """What to replace so that about half of the budget is used; None where nothing can be."""
    turns = turns_of(entries)
    kept, room, count = 0, budget_tokens // 2, 0
    for turn in reversed(turns):
        count += len(turn.entries)
        room -= turn.tokens
        if kept and (room < 0 or count > KEPT_ENTRIES):
            break
        kept += 1
    dropped = turns[: len(turns) - kept]
    return Shortening(previous, tuple(dropped), budget_tokens // 4) if dropped else None


def excerpts(wanted: Shortening) -> str:
    """A summary without a model: how it began, and a line for each turn, the latest if not all fit."""
    earlier = wanted.previous.splitlines()
    if earlier:
        first, body = earlier[0], earlier[1:]
    else:
        asked = wanted.turns[0].entries[0].text
        first, body = clipped(f"{_BEGINNING}“{one_line(asked)}”", _FIRST_TOKENS), []
    lines = [line for line in body if line != _LEFT_OUT] + [_line(turn) for turn in wanted.turns]
    first = clipped(first, wanted.max_tokens // 2)
    room = wanted.max_tokens - tokens(first + "\n" + _LEFT_OUT + "\n")
    kept: list[str] = []
    for line in reversed(lines):
        room -= tokens(line + "\n")
        if room < 0:
            break
        kept.append(line)
    is_whole = len(kept) == len(lines) and _LEFT_OUT not in body
    return "\n".join([first, *([] if is_whole else [_LEFT_OUT]), *reversed(kept)])


def _line(turn: Turn) -> str:
    """A turn in one line."""
    sides = [clipped(one_line(entry.text), _SIDE_TOKENS) for entry in turn.entries]
    return "- " + " → ".join(side for side in sides if side)


def conversation(wanted: Shortening, most_tokens: int) -> str:
    """What a model is given to summarise: the earlier summary and the turns, the latest if not all
    fit."""
    room, said = most_tokens, list[str]()
    for turn in reversed(wanted.turns):
        text = "\n".join(f"{_WHO[e.role]}: {clipped(e.text, 500)}" for e in turn.entries)
        room -= tokens(text)
        if room < 0:
            break
        said.append(text)
    before = [f"Summary so far:\n{wanted.previous}"] if wanted.previous else []
    return "\n\n".join([*before, *reversed(said)])


_WHO = {"user": "User", "assistant": "Agent", "note": "Note"}
