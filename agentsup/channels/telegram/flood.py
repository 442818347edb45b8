"""How much may be sent when: windows and pauses of one bot and its chats. Decisions only."""
