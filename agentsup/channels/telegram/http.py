"""The HTTP session of all bots as Telegram's see it, and what each of them has sent lately."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from agentsup.channels.http import (
    Answering,
    BeforeSending,
    HttpAnswer,
    HttpPool,
    Unanswered,
    Unsent,
)
from agentsup.channels.telegram.errors import FateUnknown, NotSent
from agentsup.channels.telegram.flood import Flood, Rates

__all__ = ["HttpAnswer", "SharedHttp"]

_CONFLICT = 409


class SharedHttp:
    """One HTTP session for all bots of a daemon, opened at first use."""

    def __init__(
        self,
        *,
        connect_timeout_s: float = 8.0,
        rates: Rates | None = None,
        pool: HttpPool | None = None,
    ) -> None:
        """`connect_timeout_s` bounds the way to a connection, name look-up and TLS included.

        `rates` are the platform's limits, should they be others than the public server's. `pool`
        is a session that others use too, and close.
        """
        self._rates = rates
        self._floods: dict[str, Flood] = {}
        self._pool = pool or HttpPool(connect_timeout_s=connect_timeout_s)
        self._is_ours = pool is None

    async def post(
        self, url: str, data: Any, *, timeout_s: float, before: BeforeSending | None = None
    ) -> HttpAnswer:
        """POST a form and read the whole answer, all within ``timeout_s``.

        Raises ``NotSent`` when surely nothing reached the server, else ``FateUnknown``.
        """
        async with _translated():
            # After a conflict the next poll shall come over another connection.
            return await self._pool.request(
                "POST",
                url,
                data=data,
                timeout_s=timeout_s,
                hang_up_after=_CONFLICT,
                before=before,
            )

    @asynccontextmanager
    async def get(self, url: str, *, timeout_s: float) -> AsyncIterator[Answering]:
        """GET and give the response to read from. Raises like ``post``."""
        async with _translated(), self._pool.open("GET", url, timeout_s=timeout_s) as response:
            yield response

    def flood_of(self, bot: str) -> Flood:
        """What this bot has sent lately; kept for as long as the daemon runs."""
        return self._floods.setdefault(bot, Flood(self._rates))

    async def close(self) -> None:
        """Close the session if it is our own; calls under way fail. Harmless when repeated."""
        if self._is_ours:
            await self._pool.close()


@asynccontextmanager
async def _translated() -> AsyncIterator[None]:
    try:
        yield
    except Unsent as error:
        raise NotSent(f"Telegram can't be reached: {error.message}") from None
    except Unanswered as error:
        raise FateUnknown(f"no answer from Telegram: {error.message}") from None
