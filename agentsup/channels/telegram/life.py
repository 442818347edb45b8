"""One life of one agent's Telegram bot: connect, receive, show what runs, and take leave."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from agentsup.channels.inbox import Inbox
from agentsup.channels.telegram.access import People
from agentsup.channels.telegram.client import SharedHttp
from agentsup.channels.telegram.deliver import TelegramChannel
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.mailbox.mailbox import Mailbox
from agentsup.model.agent import AgentSpec, Secret
from agentsup.model.control import Commands
from agentsup.observe.live import LiveHub
from agentsup.store.database import Database
from agentsup.store.events import EventLog

__all__ = ["ChannelReport", "ChannelState", "ReceiveLimits", "TelegramBot", "TelegramDeps"]


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


@dataclass(frozen=True, slots=True)
class ReceiveLimits:
    """The bounds of receiving. Durations in seconds."""

    max_age_s: float = 24 * 3600.0
    """Messages older than this are named, not answered."""
    max_file_bytes: int = 20 * 1024 * 1024
    """What the Bot API gives out; a local server gives more."""
    poll_s: float = 50.0
    deaf_after_s: float = 180.0
    """Without an answered poll for this long, others are told."""
    chats_at_once: int = 16
    backlog: int = 2000
    """Stored updates held in memory; beyond it the next poll waits."""
    file_s: float = 120.0
    album_s: float = 1.0
    """How long the rest of an album is waited for."""
    waiting_note_s: float = 3.0
    """A message that waits longer than this behind others is told so."""
    drain_s: float = 3.0


@dataclass(frozen=True, slots=True)
class TelegramDeps:
    """What a bot works with; made by the daemon for each life."""

    agent_id: str
    agent_name: str
    workspace: Path
    token: Secret
    """Resolved, so no reference."""
    spec: Callable[[], AgentSpec]
    database: Database
    mailbox: Mailbox
    inbox: Inbox
    commands: Commands
    events: EventLog
    live: LiveHub
    clock: Clock
    entropy: Entropy
    channel: TelegramChannel
    http: SharedHttp
    people: People
    report: Callable[[ChannelReport], None]
    """Told of every change of state and of each answered poll."""
    tell: Callable[[str], Awaitable[None]]
    """Says something to the operator where this bot is not needed for it."""
    limits: ReceiveLimits = field(default_factory=ReceiveLimits)


class TelegramBot:
    """The bot of one agent. ``run`` is the body of a supervised child."""

    def __init__(self, deps: TelegramDeps) -> None:
        self._deps = deps

    async def run(self, ready: Callable[[], None], draining: asyncio.Event) -> None:
        """Receive and show until ``draining`` is set. ``ready`` is called once the bot polls.

        Raises ``TokenRefused`` when the platform does not know the token: a new life with the
        same token has no use. Everything else the platform does is waited out in here.
        """
        raise NotImplementedError
