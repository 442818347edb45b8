"""The choice of an agent for work: by load, then by idle time, then by id. Pure.

The same candidates always give the same choice, so a test can predict it and a person can check it
against the recorded one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar


class Eligible(Protocol):
    """An agent of which it is asked whether it may be chosen."""

    @property
    def agent_id(self) -> str: ...

    @property
    def is_up(self) -> bool:
        """It works now, or will by itself."""


E = TypeVar("E", bound=Eligible)


@dataclass(frozen=True, slots=True)
class LoadCandidate:
    """An agent that could do the work.

    ``load`` is the number of its open messages, ``last_at`` (wall ms) when it last got or finished
    one.
    """

    agent_id: str
    name: str
    load: int = 0
    last_at: int = 0


@dataclass(frozen=True, slots=True)
class AgentChoice:
    """The chosen agent, all candidates, and the reason in a few words."""

    chosen: LoadCandidate
    reason: str
    considered: tuple[LoadCandidate, ...]


def eligible(
    candidates: Iterable[E], sender_id: str = "", busy_with_it: Collection[str] = ()
) -> tuple[E, ...]:
    """The candidates that may be chosen.

    Agents that wait for this very work (``busy_with_it``) may not; the sender may only if there is
    no other, an agent that is down only if all are.
    """
    apart = [each for each in candidates if each.agent_id not in busy_with_it]
    others = [each for each in apart if each.agent_id != sender_id] or apart
    return tuple([each for each in others if each.is_up] or others)


def lightest(candidates: Sequence[LoadCandidate]) -> tuple[LoadCandidate, ...]:
    """Those with the least load. Raises ``ValueError`` if there are no candidates."""
    least = min(each.load for each in candidates)
    return tuple(each for each in candidates if each.load == least)


def least_loaded(candidates: Sequence[LoadCandidate]) -> AgentChoice:
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
    return AgentChoice(chosen, reason, tuple(candidates))
