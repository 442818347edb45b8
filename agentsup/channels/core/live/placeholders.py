"""The messages in which answers are streamed by edits: as rows, what becomes of each, and its end.

A row is written before the message is sent where a send can be repeated by its key, else as soon as
the platform has returned the id. So a crash during a stream neither doubles an answer nor leaves
half of one in the chat (P2).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
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
from agentsup.channels.core.live.rate_limit import StreamMode
from agentsup.channels.core.receiving.messages import Address
from agentsup.kit.clock import Clock
from agentsup.kit.compute import compute
from agentsup.kit.log import get_logger
from agentsup.mailbox.delivery import answer_of
from agentsup.mailbox.messages import find_message
from agentsup.model.agent import Streaming
from agentsup.model.channel import OutboxState
from agentsup.model.errors import Overloaded, StoreUnavailable
from agentsup.model.message import MessageOutcome, MessageState
from agentsup.store import Database, Reader, Tx

_log = get_logger(__name__)
_ATTEMPTS = 5
_PAUSE_S = 3.0
_WAIT_MAX_S = 60.0


class Trust(StrEnum):
    """The certainty about the text that a placeholder shows."""

    TRUSTED = "trusted"
    """It shows what was put there last."""
    UNSAFE = "unsafe"
    """An edit with unknown outcome may still change it, or the answer was sent as a new message."""
    REPLACING = "replacing"
    """The answer was being put there; no request of the stream was under way any more."""


@dataclass(frozen=True, slots=True)
class Placeholder:
    """One row of ``placeholders``."""

    message_id: str
    conversation: str
    platform_id: str
    """Empty until the platform has returned it: then it is not known whether the message exists."""
    begun_at: int
    """Wall ms."""
    trust: Trust = Trust.TRUSTED


def put_tx(tx: Tx, channel: str, agent_id: str, placeholder: Placeholder) -> None:
    """Store it; replaces an earlier one of the same message."""
    tx.execute(
        "INSERT OR REPLACE INTO placeholders"
        " (channel, agent_id, message_id, conversation, platform_id, trust, at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            channel,
            agent_id,
            placeholder.message_id,
            placeholder.conversation,
            placeholder.platform_id,
            placeholder.trust,
            placeholder.begun_at,
        ),
    )


def shown_tx(tx: Tx, channel: str, agent_id: str, message_id: str, platform_id: str) -> None:
    """Record the platform's message that was sent."""
    tx.execute(
        "UPDATE placeholders SET platform_id = ?"
        " WHERE channel = ? AND agent_id = ? AND message_id = ?",
        (platform_id, channel, agent_id, message_id),
    )


def distrust_tx(tx: Tx, channel: str, agent_id: str, message_id: str) -> None:
    """Record that no answer may be put there; see ``Trust.UNSAFE``."""
    tx.execute(
        "UPDATE placeholders SET trust = 'unsafe'"
        " WHERE channel = ? AND agent_id = ? AND message_id = ?",
        (channel, agent_id, message_id),
    )


def replacing_tx(tx: Tx, channel: str, agent_id: str, message_id: str) -> None:
    """Record that the answer is put there; see ``Trust.REPLACING``."""
    tx.execute(
        "UPDATE placeholders SET trust = 'replacing'"
        " WHERE channel = ? AND agent_id = ? AND message_id = ? AND trust = 'trusted'",
        (channel, agent_id, message_id),
    )


def forget_tx(tx: Tx, channel: str, agent_id: str, message_id: str) -> None:
    """Remove the row. A second call does nothing."""
    tx.execute(
        "DELETE FROM placeholders WHERE channel = ? AND agent_id = ? AND message_id = ?",
        (channel, agent_id, message_id),
    )


def all_of(reader: Reader, channel: str, agent_id: str) -> list[Placeholder]:
    """Return the stored placeholders of one agent's bot."""
    rows = reader.all(
        "SELECT message_id, conversation, platform_id, at, trust FROM placeholders"
        " WHERE channel = ? AND agent_id = ?",
        (channel, agent_id),
    )
    return [Placeholder(row[0], row[1], row[2], row[3], Trust(row[4])) for row in rows]


class StreamFate(StrEnum):
    """The next action on a placeholder."""

    OPEN = "open"
    """The turn runs, or will run again: wait."""
    PARKED = "parked"
    """The turn waits for a person, and its text so far is not the answer: delete the message."""
    ANSWERING = "answering"
    """The answer is being delivered and will replace the text: wait."""
    ANSWERED = "answered"
    """The answer has replaced the text: only remove the row."""
    UNCERTAIN = "uncertain"
    """The outcome of the answer's edit is unknown: repeat the edit, which does no harm."""
    STOPPED = "stopped"
    """A person stopped the turn: keep the text, and append that it was stopped."""
    BROKEN = "broken"
    """The turn failed for good, and a notice says why: keep the text, and append that it ended."""
    SILENT = "silent"
    """There is no answer for people: delete the message."""


@dataclass(frozen=True, slots=True)
class StreamOutcome:
    """The outcome of a stream, with the data to bring it about.

    ``text``: the whole answer, if there is one. ``platform_ids``: the messages that hold it.
    ``language``: the person's language, if it is known.
    """

    fate: StreamFate
    text: str = ""
    platform_ids: tuple[str, ...] = ()
    language: str = ""

    def is_in(self, platform_id: int | str) -> bool:
        """Whether that message holds a piece of the answer."""
        return str(platform_id) in self.platform_ids


def outcome_of(reader: Reader, message_id: str) -> StreamOutcome:
    """Read from the store what becomes of the placeholder of a message."""
    message = find_message(reader, message_id)
    language = "" if message is None else message.principal.language
    state = None if message is None else message.state
    if state in _BY_STATE:
        return StreamOutcome(_BY_STATE[state], language=language)
    if message is not None and message.outcome is MessageOutcome.FAILED:
        return StreamOutcome(StreamFate.BROKEN, language=language)
    answer = answer_of(reader, message_id)
    if answer is None:
        return StreamOutcome(StreamFate.SILENT)
    fate = _BY_ANSWER.get(answer.state, StreamFate.SILENT)
    return StreamOutcome(fate, str(answer.body.get("text", "")), answer.platform_ids)


_BY_STATE: dict[MessageState | None, StreamFate] = {
    MessageState.QUEUED: StreamFate.OPEN,
    MessageState.LEASED: StreamFate.OPEN,
    MessageState.PARKED: StreamFate.PARKED,
    MessageState.CANCELLED: StreamFate.STOPPED,
    MessageState.DEAD: StreamFate.BROKEN,
}
_BY_ANSWER = {
    OutboxState.PENDING: StreamFate.ANSWERING,
    OutboxState.DELIVERED: StreamFate.ANSWERED,
    OutboxState.UNKNOWN: StreamFate.UNCERTAIN,
}


def is_delivered_here(reader: Reader, message_id: str, agent_id: str, conversation: str) -> bool:
    """Whether the answer of a message is delivered to ``conversation`` through ``agent_id``'s own bot.

    ``conversation`` is ``<channel>:<name>``. A silent delivery does not count.
    """
    message = find_message(reader, message_id)
    if message is None:
        return False
    to = message.deliver_to
    return (
        to.kind == "chat"
        and not to.silent
        and (to.agent_id or message.agent_id) == agent_id
        and f"{to.channel}:{to.conversation}" == conversation
    )


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
        is_stored = await self._mark(put_tx, row)
        if is_stored:
            self.row = row
        return is_stored

    async def distrust(self) -> None:
        """Store that no answer may be put into the placeholder."""
        await self._mark(distrust_tx, self.message_id)

    async def forget(self) -> None:
        """Remove the row of the placeholder."""
        self.row = None
        await self._mark(forget_tx, self.message_id)

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
