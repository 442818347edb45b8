"""The shared context of the modules that receive for one Matrix bot, and the texts of events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agentsup.channels.core.receiving import lanes, messages
from agentsup.channels.core.receiving.texts import with_quote
from agentsup.channels.matrix.access import People
from agentsup.channels.matrix.client import MatrixClient
from agentsup.channels.matrix.event import BotUser, RoomEvent
from agentsup.channels.matrix.menus import Menus

ReceivedItem = messages.ReceivedItem[RoomEvent]
Lane = lanes.ChatLane[ReceivedItem]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveDependencies(messages.ReceiveDependencies):
    """The dependencies of the modules that receive messages for one agent."""

    me: BotUser
    client: MatrixClient
    people: People
    menus: Menus
    accepted: Callable[[str, str, str], None]
    """Called for each new message: its id, the conversation, the event that it came with."""


def said(event: RoomEvent) -> str:
    """Return the text that the agent reads, with what it replies to."""
    blocks = (with_quote(event.text, event.quoted), *event.notes)
    return "\n".join(block for block in blocks if block.strip())
