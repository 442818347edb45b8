"""The life of a bot, and the report of its state."""
