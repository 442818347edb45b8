"""The channel port: where people talk. A channel is thin: inbox in, outbox out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol


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


class DeliveryOutcome(StrEnum):
    DELIVERED = "delivered"
    UNKNOWN = "unknown"
    RETRY = "retry"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Delivery:
    outcome: DeliveryOutcome
    detail: str = ""
    retry_after_s: float = 0.0


class Channel(Protocol):
    """A way to deliver. ``deliver`` never raises for what the platform did; it says so."""

    name: str

    async def deliver(self, part: OutboxPart) -> Delivery: ...
