"""How a bot is: what status, health and the operator see."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["ChannelReport", "ChannelState"]


class ChannelState(StrEnum):
    CONNECTING = "connecting"
    UP = "up"
    RETRYING = "retrying"
    """The platform can't be reached now."""
    CONFLICT = "conflict"
    """Another program polls with the same token, or a webhook is set."""
    REFUSED = "refused"
    """The platform does not know the token; nothing helps but another one."""
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class ChannelReport:
    """How a bot is, for ``/status``, health and ``degraded``. Times are wall ms."""

    agent_id: str
    state: ChannelState
    detail: str = ""
    """What is wrong and what to do, or empty."""
    bot_name: str = ""
    last_poll_at: int | None = None
    """When a poll was last answered: the only proof that the bot hears."""
    quarantined: int = 0
    """Updates that could not be handled."""
    channel: str = "telegram"

    @property
    def is_well(self) -> bool:
        return self.state in (ChannelState.UP, ChannelState.STOPPED)
