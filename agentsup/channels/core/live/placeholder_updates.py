"""Changes of a placeholder apart from the stream itself: storing it, its last edit, its removal."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from agentsup.channels.core.errors import (
    LowPriorityDropped,
    NotSent,
    OutcomeUnknown,
    PlatformError,
    RateLimited,
    TokenRefused,
)
from agentsup.channels.core.live import placeholders
from agentsup.channels.core.live.placeholders import Placeholder
from agentsup.channels.core.live.rate_limit import StreamMode
from agentsup.channels.core.live.stream_outcome import StreamFate, StreamOutcome, outcome_of
from agentsup.channels.core.receiving.messages import Address
from agentsup.kit.clock import Clock
from agentsup.kit.compute import compute
from agentsup.kit.log import get_logger
from agentsup.model.agent import Streaming
from agentsup.model.errors import Overloaded, StoreUnavailable
from agentsup.store import Database

_log = get_logger(__name__)

_ATTEMPTS = 5
_PAUSE_S = 3.0
_WAIT_MAX_S = 60.0

Piece = TypeVar("Piece")
AddressT = TypeVar("AddressT", bound=Address)
SenderT = TypeVar("SenderT")


@dataclass(frozen=True, slots=True)
class StreamContext:
    """The dependencies that all live answers of one bot share."""

    channel: str
    agent_id: str
    database: Database
    clock: Clock
    streaming: Callable[[], Streaming]
    mode: Callable[[], StreamMode]
    typing: Callable[[str], AbstractContextManager[None]]
    """Shows the typing sign in a conversation while the context is open."""


class PlaceholderUpdates(ABC, Generic[Piece, AddressT, SenderT]):
    """Stores the placeholder of one message and brings it to its final state.

    No method raises for a failure of the store, and none but those that say so for one of the
    platform. If a step fails, the row stays, and the next life of the bot tries again.
    """

    def __init__(
        self,
        context: StreamContext,
        message_id: str,
        address: AddressT,
        sender: SenderT,
        left: Placeholder | None = None,
    ) -> None:
        """``left``: the placeholder of an earlier life, if there is one."""
        self.context = context
        self.message_id = message_id
        self.address = address
        self.sender = sender
        self.row = left
        """The stored placeholder, if there is one."""

    # -- of the platform ---------------------------------------------------------------------------

    @abstractmethod
    def _render(self, text: str) -> Sequence[Piece]:
        """Return the pieces of an answer."""

    @abstractmethod
    def _edit_call(self, platform_id: str, piece: Piece) -> Callable[[], Awaitable[object]]:
        """Return a call that edits the placeholder; it may be repeated and raises a
        ``PlatformError``."""

    @abstractmethod
    async def _delete_once(self, platform_id: str) -> None:
        """Delete the placeholder. Raises a ``PlatformError``."""

    # -- the row -----------------------------------------------------------------------------------

    async def record(self, platform_id: str) -> bool:
        """Store the placeholder, whose id is empty until it was sent; False if that failed."""
        row = Placeholder(
            self.message_id, self.address.conversation, platform_id, self.context.clock.now_ms()
        )
        is_stored = await self._mark(placeholders.put_tx, row)
        if is_stored:
            self.row = row
        return is_stored

    async def distrust(self) -> None:
        """Store that no answer may be put into the placeholder."""
        await self._mark(placeholders.distrust_tx, self.message_id)

    async def forget(self) -> None:
        """Remove the row of the placeholder."""
        self.row = None
        await self._mark(placeholders.forget_tx, self.message_id)

    async def _mark(self, change: Callable[..., None], *args: object) -> bool:
        bot = (self.context.channel, self.context.agent_id)
        try:
            await self.context.database.write(change, *bot, *args, name="stream.record")
        except (StoreUnavailable, Overloaded) as error:
            _log.warning(f"the record of a streamed answer is not right: {error}")
            return False
        return True

    async def outcome(self) -> StreamOutcome:
        """Return what becomes of the message; ``StreamFate.OPEN`` if the store is not available."""
        try:
            return await self.context.database.read(outcome_of, self.message_id, name="stream.fate")
        except (StoreUnavailable, Overloaded):
            return StreamOutcome(StreamFate.OPEN)

    # -- its end -----------------------------------------------------------------------------------

    async def found(self) -> str:
        """Return the id of a placeholder that may have been sent, or ""."""
        return ""

    async def mend(self, platform_id: str, answer: str) -> bool:
        """Edit the placeholder to the beginning of the answer; harmless if it shows it already."""
        pieces = await compute(partial(self._render, answer), key=self.context.agent_id)
        return bool(pieces) and await self.edit(platform_id, pieces[0])

    async def edit(self, platform_id: str, piece: Piece) -> bool:
        """Edit the placeholder to its last text; False if that failed."""
        return bool(await self._insist(self._edit_call(platform_id, piece)))

    async def delete(self, platform_id: str) -> bool:
        """Delete the placeholder; also True if it is gone or the platform refuses the deletion."""
        return await self._insist(partial(self._delete_once, platform_id)) is not None

    async def _insist(self, do: Callable[[], Awaitable[object]]) -> bool | None:
        """Call ``do``, with repeats.

        True: done. False: refused for good. None: the platform was not reached or refused the
        token.
        """
        for attempt in range(_ATTEMPTS):
            pause_s = _PAUSE_S * (attempt + 1)
            try:
                await do()
            except RateLimited as error:
                pause_s = min(error.retry_after_s, _WAIT_MAX_S)
            except (NotSent, OutcomeUnknown, LowPriorityDropped) as error:
                _log.debug(f"the end of a streamed answer: {error}")
            except TokenRefused:
                return None
            except PlatformError as error:
                _log.debug(f"the end of a streamed answer is refused: {error}")
                return False
            else:
                return True
            await self.context.clock.sleep(pause_s)
        return None
