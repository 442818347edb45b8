"""What waits in the lanes of a Telegram bot."""

from __future__ import annotations

from dataclasses import dataclass

from agentsup.channels import lanes
from agentsup.channels.telegram.event import Event
from agentsup.channels.telegram.updates import Row

__all__ = ["Item", "Lane", "Lanes"]


@dataclass(frozen=True, slots=True)
class Item:
    """A kept update as read; without an event it made no sense, and ``fault`` says why."""

    row: Row
    event: Event | None
    fault: str = ""


Lane = lanes.Lane[Item]
Lanes = lanes.Lanes[Item]
