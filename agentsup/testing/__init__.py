"""The test kit: a simulated loop, a leak check and fakes. It may import anything.

Nothing but the tests and the demonstration command imports it.
"""

from agentsup.testing.telegram import FakeTelegram, TelegramDriver

__all__ = ["FakeTelegram", "TelegramDriver"]
