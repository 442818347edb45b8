"""The state of a bot, as status, health and the operator see it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ChannelState(StrEnum):
    CONNECTING = "connecting"
    UP = "up"
    RETRYING = "retrying"
    """The platform cannot be reached now."""
    CONFLICT = "conflict"
    """Another program polls with the same token, or a webhook is set."""
    REFUSED = "refused"
    """The platform refuses the token; the bot needs another one."""
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class ChannelReport:
    """The state of a bot, for ``/status``, health and ``degraded``. Times are wall ms."""

    agent_id: str
    state: ChannelState
    channel: str
    detail: str = ""
    """The problem and its remedy, or empty."""
    last_poll_at: int | None = None
    """When a poll was last answered: the only proof that the bot receives updates (P9)."""
    quarantined: int = 0
    """The number of updates in quarantine."""
    paused: str = ""
    """Until when the platform asks not to send, and where; empty if it does not, or shortly."""
    notes: tuple[str, ...] = ()
    """Hints about the bot's setup on the platform, for people."""

    @property
    def is_well(self) -> bool:
        return self.state in (ChannelState.UP, ChannelState.STOPPED)
