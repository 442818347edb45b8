"""What is done to the message in which an answer was streamed, besides showing the stream in it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from agentsup.channels.pace import Mode
from agentsup.channels.streamed import Fate, Outcome, fate_of
from agentsup.channels.telegram import placeholders, render
from agentsup.channels.telegram.errors import (
    Dropped,
    FateUnknown,
    FloodWait,
    NotModified,
    NotSent,
    TelegramError,
    TokenRefused,
)
from agentsup.channels.telegram.place import Place
from agentsup.channels.telegram.placeholders import Placeholder
from agentsup.channels.telegram.sender import SendPriority
from agentsup.channels.telegram.status import Outgoing
from agentsup.kit.clock import Clock
from agentsup.model.agent import Streaming
from agentsup.model.errors import Overloaded, StoreUnavailable
from agentsup.store.database import Database, Tx

__all__ = ["NO_PREVIEW", "Bench", "Upkeep"]

_log = logging.getLogger(__name__)

NO_PREVIEW: Final = {"link_preview_options": {"is_disabled": True}}
_ATTEMPTS = 5
_PAUSE_S = 3.0
_WAIT_MAX_S = 60.0


@dataclass(slots=True)
class Bench:
    """What the answers of one bot share."""

    database: Database
    clock: Clock
    agent_id: str
    sender: Outgoing
    streaming: Callable[[], Streaming]
    mode: Callable[[], Mode]
    typing: Callable[[Place], AbstractContextManager[None]]
    """Shows there that something is being done."""
    refused_drafts: set[int] = field(default_factory=set)
    """Chats in which the platform takes no drafts; 0 stands for all."""

    def takes_drafts(self, place: Place) -> bool:
        """Whether the platform may show a preview there."""
        return place.is_private and not self.refused_drafts & {0, place.chat_id}


class Upkeep:
    """Keeps the placeholder of one message on record and brings it to its end.

    Nothing here raises for what the platform or the store do; what could not be done stays on
    record and is tried again by the next life of the bot.
    """

    def __init__(self, bench: Bench, message_id: str, place: Place) -> None:
        self._bench = bench
        self._message_id = message_id
        self._place = place

    async def record(self, platform_id: int) -> None:
        """Put the placeholder on record."""
        row = Placeholder(self._message_id, self._place.conversation, platform_id)
        at, agent_id = self._bench.clock.now_ms(), self._bench.agent_id
        await self._write(lambda tx: placeholders.put_tx(tx, agent_id, row, at))

    async def distrust(self) -> None:
        """Put on record that nobody knows what it will show."""
        await self._write(
            partial(
                placeholders.distrust_tx,
                agent_id=self._bench.agent_id,
                message_id=self._message_id,
            )
        )

    async def forget(self) -> None:
        """Take it off the record."""
        await self._write(
            partial(
                placeholders.forget_tx, agent_id=self._bench.agent_id, message_id=self._message_id
            )
        )

    async def _write(self, change: Callable[[Tx], None]) -> None:
        try:
            await self._bench.database.write(change, name="stream.record")
        except (StoreUnavailable, Overloaded) as error:
            _log.warning("the record of a streamed answer is not right: %s", error)

    async def outcome(self) -> Outcome:
        """What becomes of the message; "open" while the store can't say."""
        try:
            return await self._bench.database.read(
                partial(fate_of, message_id=self._message_id), name="stream.fate"
            )
        except (StoreUnavailable, Overloaded):
            return Outcome(Fate.OPEN)

    async def mend(self, platform_id: int, answer: str) -> bool:
        """Put the beginning of the answer in place, which does no harm if it is there already."""
        pieces = await asyncio.to_thread(render.render, answer)
        return bool(pieces) and await self.edit(platform_id, pieces[0].fields())

    async def edit(self, platform_id: int, fields: dict[str, Any]) -> bool:
        """Give it its last text; False if that can't be done."""
        return bool(await self._insist("editMessageText", message_id=platform_id, **fields))

    async def delete(self, platform_id: int) -> bool:
        """Remove it; True as well if it is gone or may not be removed any more."""
        return await self._insist("deleteMessage", message_id=platform_id) is not None

    async def _insist(self, method: str, **fields: Any) -> bool | None:
        """Do it, several times if need be: True done, False refused for good, None not reached."""
        for attempt in range(_ATTEMPTS):
            pause_s = _PAUSE_S * (attempt + 1)
            try:
                await self._bench.sender.send(
                    self._place.chat_id, method, priority=SendPriority.EDIT, **fields
                )
            except FloodWait as error:
                pause_s = min(error.retry_after_s, _WAIT_MAX_S)
            except (NotSent, FateUnknown, Dropped) as error:
                _log.debug("%s of a streamed answer: %s", method, error)
            except NotModified:
                return True
            except TokenRefused:
                return None
            except TelegramError as error:
                _log.debug("%s of a streamed answer is refused: %s", method, error)
                return False
            else:
                return True
            await self._bench.clock.sleep(pause_s)
        return None
