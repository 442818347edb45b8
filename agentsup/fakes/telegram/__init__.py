"""A strict Telegram Bot API on the loopback, and a driver that plays the people in it."""

from __future__ import annotations

from agentsup.fakes.telegram.driver import ControlRefused, TelegramDriver
from agentsup.fakes.telegram.server import Bot, FakeTelegram

__all__ = ["Bot", "ControlRefused", "FakeTelegram", "TelegramDriver"]
