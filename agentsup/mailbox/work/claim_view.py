"""State of an agent's queue at its last claim: when, and why, another claim may find more. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from agentsup.mailbox.messages.values import Claimed
from agentsup.model.message import LaneName

_NEVER = -1


@dataclass(frozen=True, slots=True)
class ClaimView:
    """The view of one claim, as of its commit. The first claim follows an empty one."""

    touches: int = 0
    """Number of commits that had woken the pump by then."""
    left: frozenset[LaneName] = frozenset()
    """The lanes in which messages were left for want of a slot or of their session."""
    due_s: float | None = None
    """When the next delayed message may start (monotonic)."""

    @classmethod
    def of(
        cls,
        claimed: Claimed,
        *,
        touches: int,
        sessions: Collection[str],
        steady_ms: int,
        now_s: float,
    ) -> ClaimView:
        """``sessions`` are those at work now, ``steady_ms`` is now on the clock of ``due_at``."""
        # A session at work may have become free between the claim and its commit.
        freed = {lane for session, lane in claimed.at_work.items() if session not in sessions}
        due_s = None
        if claimed.due_at is not None:
            due_s = now_s + (claimed.due_at - steady_ms) / 1000
        return cls(touches, claimed.left | freed, due_s)

    def may_find_more(self, touches: int) -> bool:
        """Whether a claim with one more free slot could start something."""
        return bool(self.left) or self.touches != touches

    def after_due(self, now_s: float) -> ClaimView:
        """The view while there is no slot for the message that is due: it starts with the next
        free one, which must not seem to be looked for already."""
        if self.due_s is None or self.due_s > now_s:
            return self
        return replace(self, touches=_NEVER, due_s=None)

    def is_due_before(self, other: ClaimView) -> bool:
        """Whether a pump that sleeps by ``other`` would sleep too long."""
        return self.due_s is not None and (other.due_s is None or self.due_s < other.due_s)

    def pause_s(self, now_s: float, most_s: float) -> float:
        """The longest pause of the pump if nothing wakes it."""
        return most_s if self.due_s is None else min(most_s, max(0.0, self.due_s - now_s))
