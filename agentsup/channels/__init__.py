"""Channels: where people talk. What is received goes to the inbox, what the outbox has is sent.

Offers: a bot for Telegram or Matrix, the page's chats and the console as channels of one kind.
Entry: ``telegram/life`` and ``matrix/life`` run a bot; ``core`` has all that platforms share.
Owns: what was received, chats, buttons, presses, placeholders, pairings, offered bots.
Never: knows agents, or what a command does.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
