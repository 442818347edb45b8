"""What is done to the event in which an answer was streamed, besides showing the stream in it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from agentsup.channels.matrix import placeholders
from agentsup.channels.matrix.errors import (
    Dropped,
    FateUnknown,
    MatrixError,
    NotSent,
    RateLimited,
    TokenRefused,
)
from agentsup.channels.matrix.outgoing import MESSAGE, edit_of, new_of
from agentsup.channels.matrix.place import Place
from agentsup.channels.matrix.placeholders import Placeholder, short
from agentsup.channels.matrix.render import Piece, render
from agentsup.channels.pace import Mode
from agentsup.channels.streamed import Fate, Outcome, fate_of
from agentsup.kit.clock import Clock
from agentsup.model.agent import Streaming
from agentsup.model.errors import Overloaded, StoreUnavailable
from agentsup.store.database import Database, Tx

__all__ = ["Bench", "Outbound", "Upkeep", "content_of"]

_log = logging.getLogger(__name__)

SEND_TIMEOUT_S: Final = 10.0
_ATTEMPTS = 5
_PAUSE_S = 3.0
_WAIT_MAX_S = 60.0
_DOTS = Piece("…")


class Outbound(Protocol):
    """What is used here of the bot's ``Sender``."""

    async def send(
        self,
        room_id: str,
        event_type: str,
        content: Mapping[str, Any],
        *,
        txn_id: str,
        droppable: bool = False,
        timeout_s: float = 20.0,
    ) -> str: ...

    async def redact(
        self, room_id: str, event_id: str, *, txn_id: str, droppable: bool = False
    ) -> None: ...

    async def typing(self, room_id: str, is_on: bool, timeout_ms: int) -> None: ...

    def pause_s(self, room_id: str) -> float: ...


@dataclass(frozen=True, slots=True)
class Bench:
    """What the answers of one bot share."""

    database: Database
    clock: Clock
    agent_id: str
    sender: Outbound
    streaming: Callable[[], Streaming]
    mode: Callable[[], Mode]
    typing: Callable[[Place], AbstractContextManager[None]]
    """Shows there that something is being done."""


def content_of(piece: Piece) -> dict[str, Any]:
    """A piece as the content of a message that rings for nobody in particular."""
    return {"msgtype": "m.text", "m.mentions": {}, **piece.fields()}


class Upkeep:
    """Keeps the placeholder of one message on record and brings it to its end.

    Nothing here raises for what the store does; what could not be done stays on record and is tried
    again by the next life of the bot.
    """

    def __init__(
        self, bench: Bench, message_id: str, place: Place, left: Placeholder | None
    ) -> None:
        self._bench = bench
        self._message_id = message_id
        self._place = place
        self._row = left
        self.is_unsure = left is not None
        """An event may be there whose id is not known."""
        self._life = f"ag-e-{short(message_id)}-{bench.clock.now_ms()}"
        self._edits = 0

    @property
    def is_begun(self) -> bool:
        """Whether an event was sent, or may have been."""
        return self._row is not None

    async def create(self, content: Mapping[str, Any]) -> str:
        """Send the event, or learn its id if it was sent before. Raises a ``MatrixError``."""
        row = self._row
        if row is None:
            row = Placeholder(
                self._message_id, self._place.conversation, "", self._bench.clock.now_ms()
            )
            begin = partial(placeholders.begin_tx, agent_id=self._bench.agent_id, placeholder=row)
            if not await self._write(begin):
                raise Dropped("the store can't keep a record of it")
            self._row = row
        was_unsure, self.is_unsure = self.is_unsure, True
        try:
            event_id = await self._bench.sender.send(
                self._place.room_id,
                MESSAGE,
                new_of(content, self._place),
                txn_id=row.txn_id,
                droppable=True,
                timeout_s=SEND_TIMEOUT_S,
            )
        except FateUnknown:
            raise
        except MatrixError:
            self.is_unsure = was_unsure
            raise
        await self._write(
            partial(
                placeholders.shown_tx,
                agent_id=self._bench.agent_id,
                message_id=self._message_id,
                event_id=event_id,
            )
        )
        return event_id

    def next_edit(self) -> str:
        """The transaction id of another edit, different from those of earlier lives."""
        self._edits += 1
        return f"{self._life}-{self._edits}"

    async def change(self, event_id: str, content: Mapping[str, Any], txn_id: str) -> None:
        """Edit it once, as a courtesy. Raises a ``MatrixError``."""
        await self._bench.sender.send(
            self._place.room_id,
            MESSAGE,
            edit_of(content, event_id),
            txn_id=txn_id,
            droppable=True,
            timeout_s=SEND_TIMEOUT_S,
        )

    async def distrust(self) -> None:
        """Put on record that no answer may take its place."""
        await self._write(
            partial(
                placeholders.distrust_tx,
                agent_id=self._bench.agent_id,
                message_id=self._message_id,
            )
        )

    async def taken(self) -> None:
        """Put on record that the answer is put there, so that a later life may do so at once."""
        await self._write(
            partial(
                placeholders.taken_tx,
                agent_id=self._bench.agent_id,
                message_id=self._message_id,
            )
        )

    async def forget(self) -> None:
        """Take it off the record."""
        self._row = None
        await self._write(
            partial(
                placeholders.forget_tx, agent_id=self._bench.agent_id, message_id=self._message_id
            )
        )

    async def _write(self, change: Callable[[Tx], None]) -> bool:
        try:
            await self._bench.database.write(change, name="stream.record")
        except (StoreUnavailable, Overloaded) as error:
            _log.warning("the record of a streamed answer is not right: %s", error)
            return False
        return True

    async def outcome(self) -> Outcome:
        """What becomes of the message; "open" while the store can't say."""
        try:
            return await self._bench.database.read(
                partial(fate_of, message_id=self._message_id), name="stream.fate"
            )
        except (StoreUnavailable, Overloaded):
            return Outcome(Fate.OPEN)

    # -- its end -----------------------------------------------------------------------------------

    async def found(self) -> str | None:
        """The id of an event of which it is not known whether it was sent; it is there then."""
        if not self.is_unsure:
            await self.forget()
            return None
        found: list[str] = []

        async def ask() -> None:
            found.append(await self.create(content_of(_DOTS)))

        await self._insist(ask)
        return found[0] if found else None

    async def mend(self, event_id: str, answer: str) -> bool:
        """Put the beginning of the answer in place, which does no harm if it is there already."""
        pieces = await asyncio.to_thread(render, answer)
        return bool(pieces) and await self.edit(event_id, pieces[0])

    async def edit(self, event_id: str, piece: Piece) -> bool:
        """Give it its last text; False if that can't be done."""
        txn_id = self.next_edit()

        async def do() -> None:
            await self._bench.sender.send(
                self._place.room_id,
                MESSAGE,
                edit_of(content_of(piece), event_id),
                txn_id=txn_id,
                droppable=True,
            )

        return bool(await self._insist(do))

    async def delete(self, event_id: str) -> bool:
        """Take it back; True as well if that is refused for good."""

        return await self._insist(partial(self.redact, event_id)) is not None

    async def redact(self, event_id: str) -> None:
        """Take it back once. Raises a ``MatrixError``."""
        await self._bench.sender.redact(
            self._place.room_id, event_id, txn_id=f"ag-x-{short(event_id)}", droppable=True
        )

    async def _insist(self, do: Callable[[], Awaitable[None]]) -> bool | None:
        """Do it, several times if need be: True done, False refused for good, None not reached."""
        for attempt in range(_ATTEMPTS):
            try:
                await do()
            except (RateLimited, NotSent, FateUnknown, Dropped) as error:
                _log.debug("the end of a streamed answer: %s", error)
            except TokenRefused:
                return None
            except MatrixError as error:
                _log.debug("the end of a streamed answer is refused: %s", error)
                return False
            else:
                return True
            pause_s = min(_WAIT_MAX_S, self._bench.sender.pause_s(self._place.room_id))
            await self._bench.clock.sleep(max(pause_s, _PAUSE_S * (attempt + 1)))
        return None
