"""The Telegram channel of the outbox: one part becomes pieces, each sent once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from agentsup.channels.telegram.client import TelegramClient
from agentsup.channels.telegram.sender import Sender
from agentsup.model.channel import Delivery, OutboxPart

__all__ = ["NOT_ATTACHED", "BotHandle", "TelegramChannel", "TelegramSettings"]

NOT_ATTACHED = "the bot is not connected"
"""The detail of a part that waits for its bot; see `mailbox.outbox.wake_tx`."""


@dataclass(frozen=True, slots=True)
class TelegramSettings:
    """What may change while the bot runs."""

    workspace: Path
    """Files are sent from here only."""
    long_as_file_pieces: int = 0
    """An answer of more pieces goes as a file with a summary; 0: never."""
    silent_notices: bool = False


@dataclass(frozen=True, slots=True)
class BotHandle:
    """What the channel needs of a running bot."""

    client: TelegramClient
    sender: Sender
    settings: Callable[[], TelegramSettings]
    takeover: Callable[[str], Awaitable[int | None]] | None = None
    """Given a message id: the id of the Telegram message in which its answer was streamed."""
    moved: Callable[[int, int], None] | None = None
    """Told when a group has become another chat: its old and new id."""


class TelegramChannel:
    """Implements ``model.channel.Channel`` for all bots of a daemon."""

    name = "telegram"
    idempotent = False
    in_pieces = True

    def attach(self, agent_id: str, bot: BotHandle) -> None:
        """Deliver the parts of this agent through ``bot`` from now on."""

    def detach(self, agent_id: str) -> None:
        """The agent's parts wait from now on."""

    async def deliver(self, part: OutboxPart) -> Delivery:
        """Send the piece at ``part.progress``."""
        raise NotImplementedError
