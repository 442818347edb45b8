"""Dependencies of the code that handles the updates of one Telegram bot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agentsup.channels.core.receiving import lanes, messages
from agentsup.channels.telegram.access import People
from agentsup.channels.telegram.client import TelegramClient
from agentsup.channels.telegram.content import BotUser
from agentsup.channels.telegram.event import UpdateEvent
from agentsup.channels.telegram.menus import Menus

ReceivedItem = messages.ReceivedItem[UpdateEvent]
Lane = lanes.ChatLane[ReceivedItem]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveDependencies(messages.ReceiveDependencies):
    """The dependencies of passing messages to one agent."""

    me: BotUser
    client: TelegramClient
    people: People
    menus: Menus
    accepted: Callable[[str, str, int], None]
    """Called for each new message with its id, the conversation and Telegram's message id."""
    album_s: float
    comment_s: float
