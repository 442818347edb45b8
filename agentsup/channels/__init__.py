"""Channels: where people talk. What is received goes to the inbox, what the outbox has is sent.

Offers: a bot for Telegram or Matrix, the page's chats and the console as channels of one kind.
Entry: ``telegram/life`` and ``matrix/life`` run a bot; ``core`` has all that platforms share.
Owns: what was received, chats, buttons, presses, placeholders, pairings, offered bots.
Never: knows agents, or what a command does.
"""
