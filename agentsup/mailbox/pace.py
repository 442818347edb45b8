"""How long turns of an agent take, as measured; the base of every estimate of waiting time."""

from __future__ import annotations

__all__ = ["Pace", "eta_s"]

_WEIGHT = 0.2  # of the newest sample: about the last ten turns decide


def eta_s(position: int, mean_s: float | None, slots: int) -> float | None:
    """Estimated seconds until a message with ``position`` others before it is done.

    None where nothing was measured yet.
    """
    return None if mean_s is None else (position + 1) * mean_s / max(1, slots)


class Pace:
    """A moving mean per agent, in seconds."""

    def __init__(self) -> None:
        """Nothing is measured yet."""
        self._means_s: dict[str, float] = {}

    def sample(self, agent_id: str, seconds: float) -> None:
        """One finished turn took ``seconds``."""
        old = self._means_s.get(agent_id)
        new = max(0.0, seconds)
        self._means_s[agent_id] = new if old is None else old + _WEIGHT * (new - old)

    def seed(self, agent_id: str, seconds: float) -> None:
        """A mean read from the store; measured ones win."""
        self._means_s.setdefault(agent_id, seconds)

    def mean_s(self, agent_id: str) -> float | None:
        """The mean, or None before the first turn."""
        return self._means_s.get(agent_id)
