"""Telegram: updates come in through a durable inbox, answers go out through the outbox."""
