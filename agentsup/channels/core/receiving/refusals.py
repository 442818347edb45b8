"""Texts that were refused because the agent's queue was full: one notice for all of them.

The notice is sent once no more refused texts come. Until then their rows stay unhandled, so if the
bot's life ends before, the next life handles them: no text is lost without a notice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from agentsup.channels.core.receiving.rows import ReceivedRow
from agentsup.kit.clock import Clock
from agentsup.kit.tasks import OwnerClosed, TaskOwner, is_set_within
from agentsup.model.errors import Overloaded, StoreUnavailable

_QUIET_S: Final = 1.0
_AT_MOST_S: Final = 5.0


@dataclass(slots=True)
class QueueRefusal:
    """The refused texts of one conversation, in order. ``why`` is shown to the person."""

    conversation: str
    why: str = ""
    language: str = ""
    rows: list[ReceivedRow] = field(default_factory=list)
    texts: dict[int, str] = field(default_factory=dict)
    """The first ``row_id`` of each text to a few words by which the person recognises it."""
    more: asyncio.Event = field(default_factory=asyncio.Event)


class QueueRefusals:
    """The refusals of one bot."""

    def __init__(self, clock: Clock, tell: Callable[[QueueRefusal], Awaitable[None]]) -> None:
        """``tell`` stores the notice and closes the rows, in one transaction."""
        self._clock = clock
        self._tell = tell
        self._open: dict[str, QueueRefusal] = {}
        self._owner = TaskOwner("refusals")

    def add(
        self, conversation: str, rows: Sequence[ReceivedRow], text: str, *, why: str, language: str
    ) -> None:
        """Note a refused text, which came in ``rows``. Never blocks."""
        refusal = self._open.get(conversation)
        if refusal is None:
            refusal = self._open[conversation] = QueueRefusal(conversation)
            try:
                self._owner.spawn(self._serve(refusal), name=f"refusals:{conversation}")
            except OwnerClosed:
                return  # the next life of the bot handles the rows
        refusal.why, refusal.language = why, language
        refusal.rows += rows
        refusal.texts[rows[0].row_id] = text
        refusal.more.set()

    async def close(self) -> None:
        """End without further notices; the next life of the bot handles the rows."""
        await self._owner.close(1.0)

    async def _serve(self, refusal: QueueRefusal) -> None:
        until = self._clock.monotonic() + _AT_MOST_S
        try:
            while (left_s := until - self._clock.monotonic()) > 0:
                refusal.more.clear()
                if not await is_set_within(refusal.more, min(left_s, _QUIET_S)):
                    break
        finally:
            del self._open[refusal.conversation]
        try:
            await self._tell(refusal)
        except (StoreUnavailable, Overloaded):
            return  # the store is closed: the next life of the bot handles the rows
