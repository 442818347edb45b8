"""A strict Telegram Bot API on the loopback, and a driver that plays the people in it."""

from agentsup.testing.telegram.driver import ControlRefused, TelegramDriver
from agentsup.testing.telegram.server import Bot, FakeTelegram

__all__ = ["Bot", "ControlRefused", "FakeTelegram", "TelegramDriver"]
