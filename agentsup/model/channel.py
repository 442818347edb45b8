"""The channel port: where people talk. A channel is thin: inbox in, outbox out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

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
    """Pieces already settled: the next one to send. Only a channel `in_pieces` counts further."""
    doubts: int = 0
    """Pieces among them whose fate is unknown."""
    begun_at: int = 0
    """When the next piece was first handed to a channel that repeats sends by a key (wall ms), if
    it may have arrived; 0: it surely has not."""

    @property
    def is_edit(self) -> bool:
        """Whether its next piece goes into a message that is there already (``body["in_place"]``,
        the platform's id of it), which does no harm when repeated."""
        return self.progress == 0 and "in_place" in self.body


class DeliveryOutcome(StrEnum):
    DELIVERED = "delivered"
    UNKNOWN = "unknown"
    RETRY = "retry"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Delivery:
    """What happened to a part, or to one piece of it."""

    outcome: DeliveryOutcome
    detail: str = ""
    retry_after_s: float = 0.0
    more: bool = False
    """This piece is settled (delivered or unknown); further pieces of the part follow."""
    platform_ids: tuple[str, ...] = ()
    """Ids the platform gave to what was delivered; they are kept with the part."""
    is_free: bool = False
    """A retry before which nothing was tried: no attempt counts, the pause is `retry_after_s`."""
    is_final: bool = False
    """An unknown fate that a further attempt would not clear up, or could double: there is none,
    whatever the channel is."""


class NotBegun(AgentsupError):
    """A piece could not be marked as begun, so it must not be sent now. Nothing was sent."""

    code = "part_not_begun"
    status = 503


class Begin(Protocol):
    """What a channel says of the next piece of a part while it sends it. Both raise ``NotBegun`` if
    the store can't note it, or if the part was settled meanwhile."""

    async def __call__(self) -> None:
        """Commits that the piece is begun: from then on its fate is in doubt until the delivery
        says how it ended. Repeated calls do nothing."""

    async def refused(self) -> None:
        """The platform refused the piece, which goes again in another form: commits that it is not
        begun, until it is. Does nothing where it was not."""


class Channel(Protocol):
    """A way to deliver. ``deliver`` never raises for what the platform did; it says so.

    A channel that is not idempotent awaits ``begin`` before the first byte of a piece can leave,
    and as late as it can: what is killed before that was surely not sent, and is sent by the next
    process. For an idempotent channel ``begin`` does nothing. ``NotBegun`` may be passed on.

    A channel may send a part ``in_pieces``. It is given the part once for each piece, ``part.progress`` counting those before it, and says ``more`` for
    all but the last. A piece that an ended process had begun counts as settled, so such a channel
    may find ``progress`` at the number of pieces: then nothing is left, and it says delivered.
    """

    name: str
    idempotent: bool
    """Whether giving the same part twice does no harm (console, web, a keyed send)."""
    in_pieces: bool
    """Whether a part goes piece by piece; else once and whole."""

    async def deliver(self, part: OutboxPart, begin: Begin) -> Delivery: ...
