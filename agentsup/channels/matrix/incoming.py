"""Handles stored Matrix events: checks access, handles each once, quarantines faulty ones."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

from agentsup.catalogue import words
from agentsup.channels.core.buttons.typed_answers import TypedText
from agentsup.channels.core.errors import PlatformError, TokenRefused
from agentsup.channels.core.files.inbox_files import Opened
from agentsup.channels.core.receiving import rows as stored
from agentsup.channels.core.receiving import strangers
from agentsup.channels.core.receiving.gate import AccessReason, AccessVerdict, with_name
from agentsup.channels.core.receiving.incoming import ReceivedItems
from agentsup.channels.core.receiving.messages import PlatformMessages, end_rows, write_patiently
from agentsup.channels.core.receiving.rows import ReceivedRow, SkipReason
from agentsup.channels.core.receiving.strangers import shown_name
from agentsup.channels.core.receiving.texts import Attachment
from agentsup.channels.matrix import received
from agentsup.channels.matrix.access import Room, may, remedy, would_answer
from agentsup.channels.matrix.context import (
    Context,
    Lane,
    ReceiveDependencies,
    ReceivedItem,
    as_first_said,
    said,
)
from agentsup.channels.matrix.encryption_guard import note_encrypted_tx
from agentsup.channels.matrix.event import RoomEvent, RoomEventKind, read
from agentsup.channels.matrix.invitations import InvitationHandler
from agentsup.channels.matrix.received import ledger_id
from agentsup.channels.matrix.rooms import RoomMembers
from agentsup.channels.matrix.status import ReadReceipts
from agentsup.kit.log import get_logger
from agentsup.mailbox.messages import state_of
from agentsup.model.message import MessageState
from agentsup.model.pairing import PairingRequest, Stranger
from agentsup.model.principal import PersonRole, Principal
from agentsup.store import Reader, Tx

_DOWNLOADS = 4
"""Parallel downloads of one bot."""
_log = get_logger(__name__)


async def take_back(
    deps: ReceiveDependencies, row: ReceivedRow, event: RoomEvent, principal: Principal
) -> None:
    """Handle a redaction: cancel the message if its turn has not begun."""

    def is_theirs(raw: str) -> bool:
        is_own = stored.load(raw).get("sender") == event.sender
        return is_own or principal.role >= PersonRole.OPERATOR

    def step(tx: Tx) -> None:
        before = stored.earlier(tx, row, event.target_id)
        if before.raw and is_theirs(before.raw):
            is_queued = state_of(tx, before.message_id) is MessageState.QUEUED
            if is_queued:  # else its turn has begun or ended, and is not stopped
                deps.mailbox.control.cancel_tx(tx, before.message_id, principal)
        stored.done_tx(tx, [row])

    await write_patiently(deps, step, "matrix.taken_back")


class MatrixMessages(PlatformMessages[RoomEvent]):
    """Implements ``PlatformMessages`` for one bot."""

    _deps: ReceiveDependencies
    downloads = _DOWNLOADS
    ledger_id = staticmethod(received.ledger_id)

    def unread(self, reader: Reader, row: ReceivedRow) -> RoomEvent | None:
        me = self._deps.me
        try:
            event = self.read(row, row.raw)
        except ValueError:
            return None
        if not event.is_message or event.sender == me.user_id:
            return None
        if not event.is_edit:
            return event
        raw = stored.raw_of(reader, row.owner, row.chat_id, event.target_id)
        return event if raw is None else as_first_said(event, raw, me)

    def said(self, events: Sequence[RoomEvent]) -> str:
        return said(events[0])

    def read(self, row: ReceivedRow, raw: str) -> RoomEvent:
        return read(stored.load(raw), row.chat_id, self._deps.me)

    def may_edit(self, raw: str, event: RoomEvent) -> bool:
        """Homeservers pass on any edit; only one's own words can be edited."""
        return stored.load(raw).get("sender") == event.sender

    def doubt(self, event: RoomEvent) -> str:
        return "matrix.doubtful" if event.is_doubtful else ""

    async def answer(self, row: ReceivedRow, event: RoomEvent, principal: Principal) -> str | None:
        if event.is_doubtful or (event.is_edit and not event.reply_to):
            return None  # an edit corrects what was said, perhaps before anything was asked
        quoted = event.quoted
        typed = TypedText(
            conversation=event.address.conversation,
            text=event.text,
            principal=principal,
            press_id=received.ledger_id(row),
            reply_to=event.reply_to or None,
            quoted=quoted.text if quoted is not None and quoted.is_ours else "",
            language=principal.language,
            is_private=event.is_private,
        )
        return await self._deps.menus.on_text(typed)

    async def pull(self, sent: Attachment, opened: Opened) -> None:
        client, max_bytes = self._deps.client, self._deps.max_file_bytes
        try:
            await client.download(sent.file_id, await opened(), max_bytes)
        except ValueError as error:
            raise PlatformError(str(error)) from None


class Incoming(ReceivedItems[RoomEvent]):
    """Handles the stored events of one bot, in order within each room."""

    _deps: ReceiveDependencies

    def __init__(
        self,
        deps: ReceiveDependencies,
        *,
        watch: Callable[[str, str], None],
        rooms: RoomMembers,
        marks: ReadReceipts,
    ) -> None:
        super().__init__(deps, MatrixMessages(deps, self._is_for_us), watch)
        self._rooms = rooms
        self._context = Context(deps, rooms)
        self._marks = marks
        self._entering = InvitationHandler(deps, self._notices)

    def _chat_of(self, item: ReceivedItem) -> str:
        return item.row.chat_id

    def _urgent(self, event: RoomEvent) -> str:
        """Reactions and stops are urgent; a stop that may have been handled before is not."""
        if event.kind is RoomEventKind.REACTION:
            return "press"
        return "urgent" if event.is_stop and not event.is_doubtful else ""

    # -- one item ----------------------------------------------------------------------------------

    async def _route(self, item: ReceivedItem, event: RoomEvent, lane: Lane) -> None:
        if event.kind is RoomEventKind.INVITE:
            await self._invited(item, event, lane)
        elif event.kind is RoomEventKind.MOVED:
            await self._moved(item, event)
        elif event.kind is RoomEventKind.GAP:
            await self._gap(item, event)
        elif event.kind is RoomEventKind.OTHER:
            await self._skip([item], SkipReason.NOT_ALLOWED, AccessReason.NOT_FOR_US.value)
        else:
            await self._from_person(item, event, lane)

    async def _from_person(self, item: ReceivedItem, event: RoomEvent, lane: Lane) -> None:
        found = await self._placed(event, lane)
        if found is None:
            await self._skip([item], SkipReason.NOT_IN_ROOM)
            return
        event, room = found
        event = replace(event, is_private=room.is_private(self._deps.me.user_id, event.sender))
        verdict = self._may(event, room)
        if verdict.principal is None:
            await self._not_admitted(item, event, verdict, room)
            return
        principal = with_name(verdict.principal, room.members.get(event.sender, ""))
        if await self._is_encrypted(event):
            await self._notify_encrypted(item, event, principal)
        elif event.kind is RoomEventKind.REACTION and (self._is_old(event) or event.is_doubtful):
            await self._skip([item], SkipReason.TOO_LATE)
        elif event.kind is RoomEventKind.REACTION:
            await self._deps.menus.on_reaction(
                event.room_id,
                event.target_id,
                event.emoji,
                principal,
                ledger_id(item.row),
                principal.language,
                is_private=event.is_private,
            )
            await self._done(item)
        elif event.kind is RoomEventKind.REDACTION:
            await take_back(self._deps, item.row, event, principal)
        elif not event.has_content:
            await self._skip([item], SkipReason.NOTHING_TO_ANSWER)
        elif self._is_late(item):
            await self._late(item, lane, self._late_in(room, event, principal.language, lane))
        else:
            await self._messages.handle(item, event, principal, lane)
            self._marks.read(event.address, event.event_id)

    async def _placed(self, event: RoomEvent, lane: Lane) -> tuple[RoomEvent, Room] | None:
        """Return the event, completed with what it refers to, and its room; None if the bot is not
        in the room. The lane's slot is free for other rooms while the homeserver is asked."""
        room = self._rooms.known(event.room_id)
        if room is not None and not self._context.may_take_long(event):
            return event, room
        async with lane.away():
            try:
                room = await self._rooms.get(event.room_id)
                return None if room is None else (await self._context.of(event, room), room)
            except TokenRefused:
                raise
            except PlatformError as error:
                await self._notices.tell_once(
                    ("asked", event.room_id),
                    f"The homeserver does not tell {self._deps.agent_name} what it has to know of "
                    f"the Matrix room {event.room_id} ({error.message}). What comes from there is "
                    "put in quarantine; once that is mended, retry it: `agentsup quarantine list`.",
                )
                raise

    # -- refused events ----------------------------------------------------------------------------

    async def _not_admitted(
        self, item: ReceivedItem, event: RoomEvent, verdict: AccessVerdict, room: Room
    ) -> None:
        """Skip the event and log once how an operator can allow it. A stranger gets no answer,
        except a code for a message where nobody else reads it, and that a press on a choice is
        refused in words."""
        is_strange = verdict.reason is AccessReason.STRANGER
        if is_strange and event.kind is RoomEventKind.REACTION and not self._is_old(event):
            await self._foreign(item, event)
        who = event.sender if is_strange else event.room_id
        how = remedy(event, verdict.reason, self._deps.agent_name)
        if is_strange and self._may_pair(item, event):
            shown = room.members.get(event.sender, "")
            await self._pair([item], self._stranger(event, shown), how)
            return
        await self._refuse([item], verdict.reason, who, how)

    def _may_pair(self, item: ReceivedItem, event: RoomEvent) -> bool:
        is_new = event.kind is RoomEventKind.MESSAGE and not event.is_doubtful
        is_answered = is_new and event.is_private and not self._is_late(item)
        return is_answered and self._deps.pairing.is_on()

    def _stranger(self, event: RoomEvent, shown: str) -> Stranger:
        return Stranger(
            received.CHANNEL,
            event.sender,
            shown_name(shown or event.sender),
            event.address.conversation,
            self._deps.spec().matrix.language or "",
        )

    async def _foreign(self, item: ReceivedItem, event: RoomEvent) -> None:
        """Answer a stranger's press, once per event and at most a bounded number of times in a life: no
        stranger can make the bot send messages without end."""
        if not self._notices.is_first((event.sender, event.target_id)):
            return
        press_id, language = ledger_id(item.row), self._deps.spec().matrix.language or ""
        await self._deps.menus.on_reaction(
            event.room_id, event.target_id, event.emoji, None, press_id, language
        )

    async def _invited(self, item: ReceivedItem, event: RoomEvent, lane: Lane) -> None:
        asks = await self._asks(event)
        async with lane.away():
            if asks is not None:
                outside = await self._let_ask(event, asks)
            else:
                outside = await self._entering.answer(event)
        self._rooms.forget(event.room_id)
        if outside:
            await self._skip([item], SkipReason.NOT_ALLOWED, outside)
        else:
            await self._done(item)

    async def _asks(self, event: RoomEvent) -> PairingRequest | None:
        """The request of a stranger who invites the bot; None if it is no stranger or asks too
        often. It counts before the bot enters, so that nobody can lead it through many rooms."""
        deps = self._deps
        if self._entering.is_welcome(event) or not deps.pairing.is_on():
            return None
        stranger, code = self._stranger(event, ""), strangers.new_code(deps.entropy)
        request: PairingRequest | None = None

        def step(tx: Tx) -> None:
            nonlocal request
            at = deps.clock.now_ms()
            request = strangers.ask_tx(tx, deps.agent_id, stranger, code, at=at)

        await write_patiently(deps, step, "matrix.asks")
        return request

    async def _let_ask(self, event: RoomEvent, request: PairingRequest) -> str:
        """Enter the room, if the stranger is alone there, and tell the code. Returns why the bot is
        not in the room, or ""."""
        outside = await self._entering.enter_alone(event, self._rooms)
        if not outside:
            step = partial(self._tell_code_tx, request=request)
            await write_patiently(self._deps, step, "matrix.code")
        await self._deps.pairing.asked(request)
        return outside

    async def _is_encrypted(self, event: RoomEvent) -> bool:
        if event.kind is RoomEventKind.ENCRYPTED:
            return True
        return await self._deps.database.read(
            received.is_encrypted, self._deps.owner, event.room_id, name="matrix.encrypted"
        )

    async def _notify_encrypted(
        self, item: ReceivedItem, event: RoomEvent, principal: Principal
    ) -> None:
        """Say once in this room why nothing is answered in it."""
        deps = self._deps

        def step(tx: Tx) -> None:
            note_encrypted_tx(tx, deps.notices, deps.owner, event.room_id, principal.language)
            stored.skip_tx(tx, [item.row], SkipReason.ENCRYPTED)

        await write_patiently(deps, step, "matrix.encrypted")

    async def _moved(self, item: ReceivedItem, event: RoomEvent) -> None:
        if event.room_id in self._deps.spec().matrix.allowed_rooms:
            name = self._deps.agent_name
            text = (
                f"The Matrix room {event.room_id} was replaced by {event.moved_to}. Put the new one "
                f"into matrix.allowed_rooms of {name} and invite {self._deps.me.user_id}, or {name} "
                "is silent there."
            )
            await self._notices.tell(text)
        await self._skip([item], SkipReason.MOVED)

    async def _gap(self, item: ReceivedItem, event: RoomEvent) -> None:
        """Skip a gap: older messages were not read. Say so if the bot was ever spoken to there."""
        deps = self._deps
        _log.warning("older messages were not read", agent=deps.agent_name, room=event.room_id)
        is_known = await self._context.talks_in(event.address)
        notices = {event.room_id: words()("matrix.gap")} if is_known else {}
        await end_rows(deps, [item.row], "gap", notices=notices, skip=SkipReason.GAP)

    def _may(self, event: RoomEvent, room: Room) -> AccessVerdict:
        return may(event, self._deps.spec(), self._deps.people, room, self._deps.me.user_id)

    def _is_for_us(self, event: RoomEvent) -> bool:
        room = self._rooms.known(event.room_id)
        return would_answer(
            event, self._deps.spec(), self._deps.people, room, self._deps.me.user_id
        )

    def _late_in(
        self, room: Room, first: RoomEvent, language: str, lane: Lane
    ) -> Callable[[ReceivedItem, RoomEvent], Awaitable[tuple[RoomEvent, str] | None]]:
        """Return how a late message of the room counts: ``first`` was admitted already, another is
        completed with what it refers to."""

        async def admitted(item: ReceivedItem, event: RoomEvent) -> tuple[RoomEvent, str] | None:
            if event.event_id == first.event_id:
                return first, language
            async with lane.away():
                event = await self._context.of(event, room)
            return (event, language) if self._may(event, room).allowed else None

        return admitted

    def _awaits(self, event: RoomEvent) -> str | None:
        """Return "" if a person who may write there waits for an answer, by what is known already;
        None if nobody does."""
        room = self._rooms.known(event.room_id)
        if room is None or not event.is_message:
            return None
        try:
            return "" if self._may(event, room).allowed else None
        except Exception:  # noqa: BLE001
            # supervision boundary: the check may fail on the same fault as the handling
            return None
