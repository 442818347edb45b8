"""The HTTP session of all Telegram bots, and the rate limiter of each bot."""

from __future__ import annotations

from typing import Final

from agentsup.channels.core.sending.http import HttpPool
from agentsup.channels.telegram.flood import RateLimiter, Rates

SERVER: Final = "Telegram"
"""The server's name in the messages of errors."""


class SharedHttp:
    """The HTTP session of all bots of a daemon, and the rate limiter of each."""

    def __init__(self, *, rates: Rates | None = None, pool: HttpPool | None = None) -> None:
        """``rates`` are the server's limits, if they differ from the public server's.

        ``pool`` is a shared session, which its owner closes.
        """
        self._rates = rates
        self._floods: dict[str, RateLimiter] = {}
        self.pool = pool or HttpPool()
        self._is_ours = pool is None

    def flood_of(self, bot: str) -> RateLimiter:
        """Return the rate limiter of this bot; it exists as long as the daemon runs."""
        return self._floods.setdefault(bot, RateLimiter(self._rates))

    async def close(self) -> None:
        """Close the session if it is our own; calls under way fail. A second call does nothing."""
        if self._is_ours:
            await self.pool.close()
