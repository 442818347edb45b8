"""Handles each received update: admits or refuses it, handles it once, or quarantines it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from agentsup.catalogue import words
from agentsup.channels.core.errors import NotSent, OutcomeUnknown, RateLimited
from agentsup.channels.core.receiving.gate import AccessReason, AccessVerdict
from agentsup.channels.core.receiving.incoming import ReceivedItems
from agentsup.channels.core.receiving.messages import end_rows, write_patiently
from agentsup.channels.core.receiving.rows import SkipReason
from agentsup.channels.core.receiving.strangers import shown_name
from agentsup.channels.core.sending.cards import QUESTION
from agentsup.channels.telegram import received
from agentsup.channels.telegram.access import may, named, remedy
from agentsup.channels.telegram.event import UpdateEvent, UpdateKind
from agentsup.channels.telegram.menus import TelegramPress
from agentsup.channels.telegram.messages import (
    Lane,
    ReceiveDependencies,
    ReceivedItem,
    TelegramMessages,
    may_go_on,
    rest_of_message,
    unreadable_text,
)
from agentsup.channels.telegram.received import ledger_id
from agentsup.mailbox.delivery import shown_in
from agentsup.mailbox.messages import sessions
from agentsup.model.managed_bots import CreatedBot
from agentsup.model.pairing import Stranger
from agentsup.model.principal import Principal
from agentsup.store import Reader

_LATE_WAIT_S = 2.0
_AGAIN_S = 3.0
"""Seconds before Telegram is asked again for what it did not answer."""


class Incoming(ReceivedItems[UpdateEvent]):
    """Handles all updates of one bot, in order per chat."""

    _deps: ReceiveDependencies

    def __init__(
        self,
        deps: ReceiveDependencies,
        *,
        watch: Callable[[str, str], None],
        caught_up: Callable[[], bool],
    ) -> None:
        """``caught_up``: whether the platform has no more updates waiting."""
        super().__init__(deps, TelegramMessages(deps, self._would_answer), watch)
        self._caught_up = caught_up

    def _chat_of(self, item: ReceivedItem) -> int:
        if item.event is not None and item.event.created is not None:
            return item.event.created.bot_id
        return 0 if item.event is None or item.event.chat_id is None else item.event.chat_id

    def _urgent(self, event: UpdateEvent) -> str:
        """Stops and presses are urgent. Answers and other presses have own queues."""
        if event.kind is UpdateKind.PRESS:
            return "answer" if event.data.startswith(QUESTION) else "press"
        return "stop" if event.is_stop and event.kind is UpdateKind.MESSAGE else ""

    # -- one item ----------------------------------------------------------------------------------

    async def _route(self, item: ReceivedItem, event: UpdateEvent, lane: Lane) -> None:
        if event.created is not None:
            await self._bot(item, event, event.created)
            return
        if event.migrated_to is not None or event.migrated_from is not None:
            await self._migrated(item, event)
            return
        if event.draft_id is not None and not await self._is_open(event.draft_id):
            await self._skip([item], SkipReason.NOTHING_TO_ANSWER)
            return
        verdict = may(event, self._deps.spec(), self._deps.people)
        if may_go_on(event, verdict) and not self._is_late(item):
            event = await rest_of_message(event, lane, self._deps.limits)
            verdict = may(event, self._deps.spec(), self._deps.people)
        if verdict.principal is None:
            await self._not_admitted([item, *lane.taken], event, verdict)
            return
        principal = named(verdict.principal, event)
        if event.kind is UpdateKind.PRESS:
            await self._deps.menus.on_press(await self._press(item, event), principal)
            await self._done(item)
        elif event.kind is UpdateKind.REACTION:
            await self._reaction(item, event, principal)
        elif not event.has_content:
            await self._unreadable(item, event)
        elif self._is_late(item):
            await self._late(item, lane, self._admitted)
        else:
            await self._messages.handle(item, event, principal, lane)

    async def _bot(self, item: ReceivedItem, event: UpdateEvent, created: CreatedBot) -> None:
        """Let main have a bot that somebody created. The update ends once its token is kept."""
        if not self._deps.spec().is_main or event.user_id is None:
            await self._skip([item], SkipReason.NOTHING_TO_ANSWER)
            return
        while True:
            try:
                await self._deps.bots.seen(created, event.user_id, event.language)
            except RateLimited as error:
                await self._deps.clock.sleep(error.retry_after_s)
            except (NotSent, OutcomeUnknown):
                await self._deps.clock.sleep(_AGAIN_S)
            else:
                break
        await self._done(item)

    async def _is_open(self, draft_id: int) -> bool:
        """Whether the stop button of that draft is not too late."""
        is_open = partial(received.has_open_draft, agent_id=self._deps.agent_id, draft_id=draft_id)
        return await self._deps.database.read(is_open, name="telegram.draft")

    async def _reaction(self, item: ReceivedItem, event: UpdateEvent, principal: Principal) -> None:
        press_id = ledger_id(item.row)
        for emoji in event.emoji:
            await self._deps.menus.on_reaction(
                event.address.conversation, event.message_id or 0, emoji, principal, press_id
            )
        await self._done(item)

    async def _unreadable(self, item: ReceivedItem, event: UpdateEvent) -> None:
        """Skip an update without usable content; if a person sent it, notify them."""
        notices = {}
        if event.unreadable and event.kind is UpdateKind.MESSAGE:
            text = unreadable_text(event.unreadable, words(event.language))
            notices[event.address.conversation] = text
        reason = SkipReason.NOTHING_TO_ANSWER
        await end_rows(self._deps, [item.row], "skip", notices=notices, skip=reason)

    async def _press(self, item: ReceivedItem, event: UpdateEvent) -> TelegramPress:
        conversation = event.address.conversation
        if event.is_placeless:
            conversation = await self._deps.database.read(
                lambda reader: self._shown_in(reader, event) or conversation,
                name="telegram.pressed",
            )
        return TelegramPress(
            callback_id=event.callback_id,
            data=event.data,
            press_id=ledger_id(item.row),
            conversation=conversation,
            chat_id=event.chat_id or 0,
            message_id=event.message_id,
            language=event.language,
        )

    def _shown_in(self, reader: Reader, event: UpdateEvent) -> str | None:
        """Return the conversation of the message whose button was pressed, from the outbox."""
        return shown_in(
            reader,
            channel=received.CHANNEL,
            agent_id=self._deps.agent_id,
            platform_id=str(event.message_id),
            fits=lambda conversation: conversation.partition("/")[0] == str(event.chat_id),
        )

    # -- not admitted ------------------------------------------------------------------------------

    async def _not_admitted(
        self, items: Sequence[ReceivedItem], event: UpdateEvent, verdict: AccessVerdict
    ) -> None:
        """Skip updates; log once how to admit the sender. A stranger gets no reply but a code, for a
        message in a private chat."""
        if event.kind is UpdateKind.PRESS and self._is_guest(event, verdict):
            # He sees the buttons of others, and Telegram would show his press as pending.
            await self._deps.menus.on_press(await self._press(items[0], event), None)
        is_stranger = verdict.reason is AccessReason.STRANGER
        who = event.user_id if is_stranger else event.chat_id
        how = remedy(event, verdict, self._deps.spec())
        if is_stranger and event.kind is UpdateKind.MESSAGE and self._may_pair(items[0], event):
            await self._pair(items, _stranger(event), how)
            return
        await self._refuse(items, verdict.reason, who, how)

    def _may_pair(self, item: ReceivedItem, event: UpdateEvent) -> bool:
        return event.is_private and not self._is_late(item) and self._deps.pairing.is_on()

    def _is_guest(self, event: UpdateEvent, verdict: AccessVerdict) -> bool:
        """Whether the sender is a stranger in a group that the agent serves."""
        return (
            verdict.reason is AccessReason.STRANGER
            and event.chat_id in self._deps.spec().allowed_group_ids
        )

    async def _migrated(self, item: ReceivedItem, event: UpdateEvent) -> None:
        """Handle a new id of a group: its session moves there, and the operator is notified."""
        deps = self._deps
        old, new = event.migrated_from or event.chat_id, event.migrated_to or event.chat_id
        if old in self._deps.spec().allowed_group_ids:
            keys = [f"chat:{received.CHANNEL}:{each}" for each in (old, new)]
            await write_patiently(
                deps, lambda tx: sessions.move_tx(tx, deps.agent_id, *keys), "telegram.moved"
            )
        if event.migrated_to is not None and old in self._deps.spec().allowed_group_ids:
            name = self._deps.agent_name
            text = (
                f"The Telegram group {event.chat_title!r} has a new id: {event.migrated_to} instead "
                f"of {event.chat_id}. Put it into allowed_group_ids of {name}, or {name} is silent "
                "there."
            )
            await self._notices.tell(text)
        await self._skip([item], SkipReason.MOVED)

    def _would_answer(self, event: UpdateEvent) -> bool:
        return may(event, self._deps.spec(), self._deps.people).allowed

    # -- late --------------------------------------------------------------------------------------

    @property
    def _late_wait_s(self) -> float:
        return 0.0 if self._caught_up() else _LATE_WAIT_S

    async def _admitted(
        self, item: ReceivedItem, event: UpdateEvent
    ) -> tuple[UpdateEvent, str] | None:
        return (event, event.language) if self._would_answer(event) else None

    def _awaits(self, event: UpdateEvent) -> str | None:
        return event.language if event.is_message and self._would_answer(event) else None


def _stranger(event: UpdateEvent) -> Stranger:
    return Stranger(
        received.CHANNEL,
        str(event.user_id),
        shown_name(event.user_name),
        event.address.conversation,
        event.language,
    )
