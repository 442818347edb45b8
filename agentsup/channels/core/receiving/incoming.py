"""The received items of one bot: queued by chat, handled once, refused, or named in a late notice."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic

from agentsup.catalogue import words
from agentsup.channels.core.errors import TokenRefused
from agentsup.channels.core.receiving import quarantine, strangers
from agentsup.channels.core.receiving import rows as stored
from agentsup.channels.core.receiving import texts as receiving_texts
from agentsup.channels.core.receiving.feed import Feed
from agentsup.channels.core.receiving.gate import AccessReason
from agentsup.channels.core.receiving.handler import MessageHandler
from agentsup.channels.core.receiving.lanes import ChatLanes
from agentsup.channels.core.receiving.messages import (
    AnyEventT,
    EventT,
    Lane,
    PlatformMessages,
    ReceiveDependencies,
    ReceivedItem,
    end_rows,
    is_passing,
    shown,
    write_patiently,
)
from agentsup.channels.core.receiving.rows import ReceivedRow, SkipReason
from agentsup.kit import faults
from agentsup.kit.log import get_logger
from agentsup.model.errors import AgentsupError, Overloaded, StoreUnavailable
from agentsup.model.pairing import PairingRequest, Stranger, shown_code
from agentsup.store import Tx, is_over

_NOTIFIED_MAX = 1000
_log = get_logger(__name__)
_STORE_PAUSE_S = 1.0


def read_item(
    row: ReceivedRow, read: Callable[[ReceivedRow, str], AnyEventT]
) -> ReceivedItem[AnyEventT]:
    """Return the row as read; whatever one row holds, the next ones must be read."""
    try:
        return ReceivedItem(row, read(row, row.raw))
    except ValueError as error:  # malformed
        return ReceivedItem(row, None, str(error))
    except Exception as error:  # noqa: BLE001
        # supervision boundary: as said above
        return ReceivedItem(row, None, f"{type(error).__name__}: {error}")


class OperatorNotices:
    """Notices about a bot for the operator, in the log or in main's chat."""

    def __init__(self, agent_name: str, tell: Callable[[str], Awaitable[None]]) -> None:
        self._agent_name = agent_name
        self._tell = tell
        self._notified: set[tuple[str, object]] = set()

    def is_first(self, subject: tuple[str, object]) -> bool:
        """Whether this is the first call for ``subject`` in this life of the bot.

        False for every new one once there are very many.
        """
        if subject in self._notified or len(self._notified) >= _NOTIFIED_MAX:
            return False
        self._notified.add(subject)
        return True

    def warn_once(self, subject: tuple[str, object], text: str) -> None:
        """Log ``text``, if it is not empty and was not logged for ``subject`` before."""
        if text and self.is_first(subject):
            _log.warning(text, agent=self._agent_name)

    async def tell(self, text: str) -> None:
        """Log ``text`` and send it to the operator. A failure to send is only logged."""
        _log.warning(text, agent=self._agent_name)
        try:
            await self._tell(text)
        except AgentsupError as error:
            _log.warning("nobody could be told", agent=self._agent_name, why=str(error))

    async def tell_once(self, subject: tuple[str, object], text: str) -> None:
        """``tell``, unless it was done for ``subject`` before."""
        if self.is_first(subject):
            await self.tell(text)


class ReceivedItems(ABC, Generic[EventT]):
    """Handles all that one bot receives, in order per chat.

    A platform says what is urgent, and what is done with an item.
    """

    def __init__(
        self,
        deps: ReceiveDependencies,
        messages: PlatformMessages[EventT],
        watch: Callable[[str, str], None],
    ) -> None:
        self._deps = deps
        self._messages = MessageHandler(deps, messages, watch)
        self._notices = OperatorNotices(deps.agent_name, deps.tell)
        self._lanes: ChatLanes[ReceivedItem[EventT]] = ChatLanes(
            self._handle,
            name=f"{deps.channel}:{deps.agent_name}",
            at_once=deps.limits.chats_at_once,
            backlog=deps.limits.backlog,
        )
        self.feed = Feed(
            deps,
            self._lanes,
            read=lambda row: read_item(row, messages.read),
            chat_of=self._chat_of,
            urgent=self._queue_of,
        )
        """Brings received rows into the lanes of their chats."""

    # -- what a platform does ----------------------------------------------------------------------

    @abstractmethod
    def _chat_of(self, item: ReceivedItem[EventT]) -> Hashable:
        """Return what names the chat in which the item keeps its order."""

    @abstractmethod
    def _urgent(self, event: EventT) -> str:
        """Return the queue in which the event passes those that wait in its chat, or ""."""

    @abstractmethod
    async def _route(self, item: ReceivedItem[EventT], event: EventT, lane: Lane[EventT]) -> None:
        """Handle one item; what it raises puts the item into quarantine, unless it passes."""

    @abstractmethod
    def _awaits(self, event: EventT) -> str | None:
        """Return the language of who waits for an answer to it; None if nobody does."""

    @property
    def _late_wait_s(self) -> float:
        """Seconds to wait for further late messages before the notice about them."""
        return 0.0

    # -- the way of an item ------------------------------------------------------------------------

    async def close(self, drain_s: float) -> None:
        """Give running work ``drain_s`` seconds to end; the next life handles the other rows."""
        await self.feed.close()
        await self._lanes.close(drain_s)
        await self._messages.close()

    async def _handle(self, item: ReceivedItem[EventT], lane: Lane[EventT]) -> None:
        """Handle one item of a lane: what is passing is tried again, what fails is quarantined."""
        deps = self._deps
        while True:
            try:
                faults.platform_point(deps.channel, "before_handle")
                if item.event is None:
                    await self._quarantine(item, item.fault)
                else:
                    await self._route(item, item.event, lane)
                faults.platform_point(deps.channel, "after_handle")
            except Exception as error:  # noqa: BLE001
                # supervision boundary: one update must not cost the chat those behind it
                if is_passing(error) or isinstance(error, TokenRefused):
                    if is_over(error):
                        return  # the next life of the bot handles its row
                    lane.give_back()
                    await deps.clock.sleep(_STORE_PAUSE_S)
                    continue
                _log.exception(
                    "an update could not be handled",
                    agent=deps.agent_name,
                    external_id=item.row.external_id,
                )
                lane.give_back()
                await self._quarantine(item, f"{type(error).__name__}: {error}")
                return
            else:
                return

    async def _done(self, item: ReceivedItem[EventT]) -> None:
        """Mark an item as handled."""
        await end_rows(self._deps, [item.row], "done")

    async def _skip(
        self, items: Sequence[ReceivedItem[EventT]], reason: SkipReason, why: str = ""
    ) -> None:
        """Mark items that need no work."""
        rows = [item.row for item in items]
        await end_rows(self._deps, rows, "skip", skip=reason, why=why)

    async def _quarantine(self, item: ReceivedItem[EventT], why: str) -> None:
        """Put an update into quarantine, and notify the person who waits for an answer."""
        event, deps = item.event, self._deps
        _log.error(
            "an update is in quarantine",
            agent=deps.agent_name,
            external_id=item.row.external_id,
            row_id=item.row.row_id,
            why=why,
        )
        language = None if event is None else self._awaits(event)
        count = 0

        def step(tx: Tx) -> None:
            nonlocal count
            stored.quarantine_tx(tx, item.row, why)
            count = stored.quarantined(tx, item.row.owner)
            if event is not None and language is not None:
                name = quarantine.name_of(deps.channel, item.row.row_id)
                text = words(language)("message.quarantined", id=name)
                deps.notices.add_tx(tx, event.address.conversation, text)

        try:
            await write_patiently(deps, step, f"{deps.channel}.quarantine")
        except (StoreUnavailable, Overloaded):
            return
        deps.set_aside(count)

    def _queue_of(self, item: ReceivedItem[EventT]) -> str:
        return "" if item.event is None or self._is_late(item) else self._urgent(item.event)

    async def _refuse(
        self,
        items: Sequence[ReceivedItem[EventT]],
        reason: AccessReason,
        who: object,
        remedy: str,
    ) -> None:
        """Skip items that are not admitted; log once for ``who`` how they can be."""
        self._notices.warn_once((reason, who), remedy)
        await self._skip(items, SkipReason.NOT_ALLOWED, reason.value)

    async def _pair(
        self, items: Sequence[ReceivedItem[EventT]], stranger: Stranger, remedy: str
    ) -> None:
        """Skip what a stranger wrote in private, and give the stranger a code if there is none.

        Nothing of what was written is read by anybody.
        """
        deps, rows = self._deps, [item.row for item in items]
        code, at = strangers.new_code(deps.entropy), deps.clock.now_ms()
        request: PairingRequest | None = None

        def step(tx: Tx) -> None:
            nonlocal request
            request = strangers.ask_tx(tx, deps.agent_id, stranger, code, at=at)
            if request is not None:
                self._tell_code_tx(tx, request)
            stored.skip_tx(tx, rows, SkipReason.NOT_ALLOWED, AccessReason.STRANGER.value)

        await write_patiently(deps, step, f"{deps.channel}.pair")
        if request is not None:
            await deps.pairing.asked(request)
        else:
            self._notices.warn_once((AccessReason.STRANGER, stranger.user_id), remedy)

    def _tell_code_tx(self, tx: Tx, request: PairingRequest) -> None:
        """Tell the stranger the code, and whom to give it to."""
        stranger = request.stranger
        text = words(stranger.language)("pairing.code", code=shown_code(request.code))
        self._deps.notices.add_tx(tx, stranger.conversation, text)

    # -- late messages -----------------------------------------------------------------------------

    def _is_late(self, item: ReceivedItem[EventT]) -> bool:
        """Whether it is a message or an edit that is too old to be answered."""
        return item.event is not None and item.event.is_message and self._is_old(item.event)

    def _is_old(self, event: EventT) -> bool:
        now = self._deps.clock.now_ms()
        return event.at is not None and now - event.at > self._deps.limits.max_age_s * 1000

    async def _late(
        self,
        first: ReceivedItem[EventT],
        lane: Lane[EventT],
        admitted: Callable[[ReceivedItem[EventT], EventT], Awaitable[tuple[EventT, str] | None]],
    ) -> None:
        """Answer all late messages of a lane with one notice per conversation.

        ``admitted`` returns a message as it counts, and the language of its notice; None if nobody
        waits for an answer to it.
        """
        items: list[ReceivedItem[EventT]] = []
        texts: dict[str, list[str]] = {}
        languages: dict[str, str] = {}
        found = [first, *lane.taken]
        while found:
            for item in found:
                items.append(item)
                if item.event is None or not item.event.has_content:
                    continue
                if (late := await admitted(item, item.event)) is not None:
                    conversation = late[0].address.conversation
                    texts.setdefault(conversation, []).append(shown(late[0]))
                    languages[conversation] = late[1]
            another = await lane.next_like(self._is_late, self._late_wait_s)
            found = [] if another is None else [another]
        hours = self._deps.limits.max_age_s / 3600
        notices = {
            conversation: receiving_texts.late_notice(late, hours, words(languages[conversation]))
            for conversation, late in texts.items()
        }
        rows = [item.row for item in items]
        await end_rows(self._deps, rows, "late", notices=notices, skip=SkipReason.TOO_LATE)
