"""The channel port. A channel only receives into the inbox and delivers from the outbox."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

from agentsup.model.errors import AgentsupError


class OutboxState(StrEnum):
    PENDING = "pending"
    DELIVERED = "delivered"
    UNKNOWN = "unknown"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class OutboxPart:
    """One part to deliver. ``kind``: answer | notice | question | file | echo."""

    outbox_id: int
    message_id: str
    agent_id: str
    session_id: str
    channel: str
    conversation: str
    part_no: int
    kind: str
    body: dict[str, Any]
    attempts: int
    progress: int = 0
    """The number of settled pieces, and so the next one to send. Only a channel ``in_pieces`` goes
    beyond 0."""
    doubts: int = 0
    """The number of settled pieces with an unknown outcome."""
    begun_at: int = 0
    """When the next piece was first given to a channel with keyed sends (wall ms), if it may have
    arrived; 0 if it certainly has not."""

    @property
    def is_edit(self) -> bool:
        """Whether its next piece replaces the text of an existing message, which may safely be
        repeated. ``body["in_place"]`` is that message's platform id."""
        return self.progress == 0 and "in_place" in self.body


class RetryReason(StrEnum):
    """Why a part waits, where an event may end the wait."""

    NONE = ""
    """Only time ends it."""
    ABSENT_BOT = "absent_bot"
    """The bot is not connected: one that connects makes such parts due."""


class DeliveryOutcome(StrEnum):
    DELIVERED = "delivered"
    UNKNOWN = "unknown"
    RETRY = "retry"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Delivery:
    """The outcome of a part, or of one piece of it."""

    outcome: DeliveryOutcome
    detail: str = ""
    retry_after_s: float = 0.0
    more: bool = False
    """Whether further pieces of the part follow; this one is settled (delivered or unknown)."""
    platform_ids: tuple[str, ...] = ()
    """Ids that the platform gave to what was delivered; they are stored with the part."""
    is_free: bool = False
    """A retry before which nothing was tried: it does not count as an attempt, and the pause is
    ``retry_after_s``."""
    is_final: bool = False
    """An unknown outcome that no further attempt could clear up without the risk of a duplicate: no
    attempt follows, whatever the channel is."""
    reason: RetryReason = RetryReason.NONE
    """For a retry."""


ABSENT_BOT: Final = Delivery(
    DeliveryOutcome.RETRY,
    "the bot is not connected",
    retry_after_s=5.0,
    is_free=True,
    reason=RetryReason.ABSENT_BOT,
)
"""The outcome of a part whose bot is not connected."""


class NotBegun(AgentsupError):
    """A piece could not be marked as begun, so it must not be sent now. Nothing was sent."""

    code = "part_not_begun"
    status = 503


class Begin(Protocol):
    """Marks the next piece of a part while a channel sends it. Both methods raise ``NotBegun`` if
    the store can't record the mark, or if the part was settled meanwhile."""

    async def __call__(self) -> None:
        """Commit that the piece is begun. From then on its outcome is unknown until the delivery
        reports it. Repeated calls do nothing."""

    async def refused(self) -> None:
        """Commit that the piece is not begun: the platform refused it, and it is sent again in
        another form. Does nothing if it was not begun."""


class Channel(Protocol):
    """A way to deliver. ``deliver`` never raises for what the platform did; it returns the outcome.

    A channel that is not idempotent awaits ``begin`` before the first byte of a piece can leave,
    and as late as possible: a piece whose process was killed before that was certainly not sent,
    and the next process sends it. For an idempotent channel ``begin`` does nothing. ``NotBegun``
    may be passed on.

    A channel may send a part ``in_pieces``. It then gets the part once for each piece, with the
    number of earlier pieces in ``part.progress``, and returns ``more`` for all but the last. A
    piece that an ended process had begun counts as settled, so ``progress`` may equal the number of
    pieces: then nothing remains to send, and the channel returns delivered.
    """

    name: str
    idempotent: bool
    """Whether delivering the same part twice does no harm (console, web, a keyed send)."""
    in_pieces: bool
    """Whether a part is delivered piece by piece, or else once as a whole."""
    is_event: bool
    """Whether the event that a part was delivered is its delivery; ``deliver`` is not called then."""

    async def deliver(self, part: OutboxPart, begin: Begin) -> Delivery: ...
