"""Delivery of the outbox on a platform, piece by piece: what platforms share.

The pieces of a part are cached while it is being sent. So changed settings do not change them, and
a long text is rendered once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import tzinfo
from pathlib import Path
from typing import Final, Generic, TypeVar

from agentsup.channels.core.errors import (
    LowPriorityDropped,
    NotSent,
    PlatformError,
    RateLimited,
    RequestRefused,
    TokenRefused,
)
from agentsup.kit.pool import BoundedPool
from agentsup.model.channel import ABSENT_BOT, Begin, Delivery, DeliveryOutcome, OutboxPart

_CACHED_PARTS = 64
_UNWELL_S: Final = 30.0
LONG_PAUSE_S: Final = 60.0
"""A longer pause is shown to people."""

PauseWatcher = Callable[[str, float], None]
"""Gets a conversation, and for how many seconds nothing is sent there."""

Bot = TypeVar("Bot")
Where = TypeVar("Where")
Piece = TypeVar("Piece")


@dataclass(frozen=True, slots=True)
class DeliverySettings:
    """The settings of deliveries, which may change while the bot runs."""

    workspace: Path
    """Files are sent only from here."""
    files: BoundedPool = field(
        default_factory=lambda: BoundedPool("files"), compare=False, kw_only=True
    )
    """The threads that read the workspace."""
    long_as_file_pieces: int = 0
    """An answer of more pieces is sent as a file with a summary; 0: never."""
    timezone: tzinfo | None = None


class PieceChannel(ABC, Generic[Bot, Where, Piece]):
    """Implements ``model.channel.Channel`` for all bots of a daemon on one platform.

    ``Bot`` is what is needed of a running bot, ``Where`` the platform's address.
    """

    name: str
    idempotent: bool
    in_pieces: bool = True
    is_event: bool = False

    def __init__(self) -> None:
        self._bots: dict[str, Bot] = {}
        self._cached: dict[int, tuple[Piece, ...]] = {}
        self._watchers: dict[str, PauseWatcher] = {}

    @abstractmethod
    def _where(self, part: OutboxPart) -> Where:
        """Return where a part is sent. Raises ``ValueError`` if its conversation is no address."""

    @abstractmethod
    async def _rendered(self, part: OutboxPart, bot: Bot, where: Where) -> tuple[Piece, ...]:
        """Return the pieces of a part, at least one."""

    @abstractmethod
    async def _deliver_piece(
        self, bot: Bot, part: OutboxPart, where: Where, piece: Piece, begin: Begin, *, more: bool
    ) -> Delivery:
        """Send the piece at ``part.progress`` and return the result; ``more``: others follow."""

    def attach(self, agent_id: str, bot: Bot) -> None:
        """Deliver the parts of this agent through ``bot`` from now on."""
        self._bots[agent_id] = bot

    def watch_pauses(self, agent_id: str, watcher: PauseWatcher) -> None:
        """Call ``watcher`` when the platform asks an attached bot for a pause of over a minute."""
        self._watchers[agent_id] = watcher

    def detach(self, agent_id: str) -> None:
        """Let the agent's parts wait from now on."""
        self._watchers.pop(agent_id, None)
        self._bots.pop(agent_id, None)

    async def deliver(self, part: OutboxPart, begin: Begin) -> Delivery:
        """Send the piece at ``part.progress`` and return the result."""
        bot = self._bots.get(part.agent_id)
        if bot is None:
            return ABSENT_BOT
        try:
            where = self._where(part)
        except ValueError as error:
            return Delivery(DeliveryOutcome.REFUSED, str(error))
        pieces = await self._pieces(part, bot, where)
        if part.progress >= len(pieces):
            # The last piece was begun by a process that ended; nothing is left to send.
            self._forget(part)
            return Delivery(DeliveryOutcome.DELIVERED)
        more = part.progress + 1 < len(pieces)
        piece = pieces[part.progress]
        delivery = await self._deliver_piece(bot, part, where, piece, begin, more=more)
        if delivery.outcome is not DeliveryOutcome.RETRY and not delivery.more:
            self._forget(part)
        watcher = self._watchers.get(part.agent_id)
        if watcher is not None and delivery.is_free and delivery.retry_after_s > LONG_PAUSE_S:
            watcher(part.conversation, delivery.retry_after_s)
        return delivery

    async def _pieces(self, part: OutboxPart, bot: Bot, where: Where) -> tuple[Piece, ...]:
        pieces = self._cached.get(part.outbox_id)
        if pieces is None:
            pieces = await self._rendered(part, bot, where)
            if len(self._cached) >= _CACHED_PARTS:
                del self._cached[next(iter(self._cached))]
            if len(pieces) > 1:
                self._cached[part.outbox_id] = pieces
        return pieces

    def _forget(self, part: OutboxPart) -> None:
        """Drop what is cached of a part, whose delivery is over."""
        self._cached.pop(part.outbox_id, None)


def delivery_for(error: PlatformError) -> Delivery:
    """Return the result of a piece for an error; apart from the last case, nothing was done."""
    match error:
        case RateLimited():
            return later(error.message, error.retry_after_s)
        case NotSent():
            return Delivery(DeliveryOutcome.RETRY, error.message)
        case LowPriorityDropped():
            return later(error.message, 1.0)
        case TokenRefused():
            # The bot's own life reports it; its parts wait until that is corrected.
            return later(error.message, _UNWELL_S)
        case RequestRefused():
            return Delivery(DeliveryOutcome.REFUSED, error.message)
        case _:
            return Delivery(DeliveryOutcome.UNKNOWN, error.message)


def later(detail: str, after_s: float) -> Delivery:
    """Return a retry that does not count as an attempt."""
    return Delivery(DeliveryOutcome.RETRY, detail, retry_after_s=after_s, is_free=True)
