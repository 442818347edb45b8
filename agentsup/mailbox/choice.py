"""Who gets a piece of work: a pure choice by load, then by idleness, then by id.

The same candidates always give the same choice, so a test can say what it is and a person can
check it against what was recorded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

__all__ = ["Candidate", "Choice", "eligible", "least_loaded", "lightest"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """An agent that could do the work. ``load`` is how many messages are open with it, ``last_at``
    (wall ms) when it was last given or last finished one, as far as the choice looked."""

    agent_id: str
    name: str
    load: int = 0
    last_at: int = 0
    is_up: bool = True
    """It works now, or will without anybody's help."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Who was chosen, among whom, and why in a few words."""

    chosen: Candidate
    reason: str
    considered: tuple[Candidate, ...]


def eligible(
    candidates: Iterable[Candidate], sender_id: str = "", busy_with_it: Collection[str] = ()
) -> tuple[Candidate, ...]:
    """Those who may be chosen: nobody who waits for this very work (``busy_with_it``), the sender
    only where there is nobody else, and an agent that is down only where all are."""
    apart = [each for each in candidates if each.agent_id not in busy_with_it]
    others = [each for each in apart if each.agent_id != sender_id] or apart
    return tuple([each for each in others if each.is_up] or others)


def lightest(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Those with the least load. Raises ``ValueError`` if there are no candidates."""
    least = min(each.load for each in candidates)
    return tuple(each for each in candidates if each.load == least)


def least_loaded(candidates: Sequence[Candidate]) -> Choice:
    """The least loaded candidate; among equals the one idle longest, then the first by id.

    Raises ``ValueError`` if there are no candidates.
    """
    tied = lightest(candidates)
    chosen = min(tied, key=lambda each: (each.last_at, each.agent_id))
    if len(candidates) == 1:
        reason = "the only one"
    elif len(tied) == 1:
        reason = f"least loaded, {chosen.load} open"
    elif sum(each.last_at == chosen.last_at for each in tied) == 1:
        reason = f"least loaded, {chosen.load} open, and idle longest"
    else:
        reason = f"least loaded, {chosen.load} open, and first by id among equals"
    return Choice(chosen, reason, tuple(candidates))
