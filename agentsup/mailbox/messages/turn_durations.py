"""The measured durations of an agent's turns; the base of every estimate of waiting time."""

from __future__ import annotations

_WEIGHT = 0.2  # of the newest sample: about the last ten turns decide


def eta_s(position: int, mean_s: float | None, slots: int) -> float | None:
    """Estimated seconds until a message with ``position`` others before it is done.

    None where nothing was measured yet.
    """
    return None if mean_s is None else (position + 1) * mean_s / max(1, slots)


class TurnDurations:
    """A moving mean per agent, in seconds."""

    def __init__(self) -> None:
        """Start without measurements."""
        self._means_s: dict[str, float] = {}

    def sample(self, agent_id: str, seconds: float) -> None:
        """Add a finished turn that took ``seconds``."""
        old = self._means_s.get(agent_id)
        new = max(0.0, seconds)
        self._means_s[agent_id] = new if old is None else old + _WEIGHT * (new - old)

    def seed(self, agent_id: str, seconds: float) -> None:
        """Set a mean read from the store, unless there is a measured one."""
        self._means_s.setdefault(agent_id, seconds)

    def mean_s(self, agent_id: str) -> float | None:
        """The mean, or None before the first turn."""
        return self._means_s.get(agent_id)
