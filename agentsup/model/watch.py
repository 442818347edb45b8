"""Subscriptions of an agent to the events of other agents, as people write them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from agentsup.model.name import name_problem

ANYONE = "*"
STARTED, FINISHED, FAILED = "started", "finished", "failed"
WHAT = (STARTED, FINISHED, FAILED)
"""The events of a message of the watched agent."""


@dataclass(frozen=True, slots=True)
class EventSubscription:
    """One subscription: an agent's name or ``*``, and one event or all of them."""

    name: str
    what: frozenset[str]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``name``, ``*``, ``name:failed`` and the like. Raises ``ValueError``."""
        name, colon, what = text.partition(":")
        if name != ANYONE and (problem := name_problem(name)):
            raise ValueError(f"{text!r} begins with no agent's name and not with '*': {problem}")
        if colon and what not in WHAT:
            raise ValueError(f"{text!r} ends with none of {', '.join(WHAT)}")
        return cls(name, frozenset((what,) if colon else WHAT))

    def is_of(self, name: str) -> bool:
        """Whether the subscription covers the agent called ``name``."""
        return self.name in (ANYONE, name) or self.name.casefold() == name.casefold()
