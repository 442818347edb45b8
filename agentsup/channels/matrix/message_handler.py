"""Matrix's own part in handling messages: threads, doubtful events, redactions."""

from __future__ import annotations

from collections.abc import Sequence

from agentsup.channels.core.buttons.typed_answers import TypedText
from agentsup.channels.core.errors import PlatformError
from agentsup.channels.core.files.fetching import Attachment, Opened
from agentsup.channels.core.receiving import rows as stored
from agentsup.channels.core.receiving.context import write_patiently
from agentsup.channels.core.receiving.messages import PlatformMessages
from agentsup.channels.core.receiving.rows import ReceivedRow
from agentsup.channels.matrix import received
from agentsup.channels.matrix.context import as_first_said
from agentsup.channels.matrix.event import RoomEvent, read
from agentsup.channels.matrix.receive_context import ReceiveDependencies, said
from agentsup.mailbox.messages import state_of
from agentsup.model.message import MessageState
from agentsup.model.principal import PersonRole, Principal
from agentsup.store import Reader, Tx

_DOWNLOADS = 4
"""Parallel downloads of one bot."""


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
                deps.mailbox.cancel_tx(tx, before.message_id, principal)
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

    def accepted(self, message_id: str, event: RoomEvent) -> None:
        self._deps.accepted(message_id, event.address.conversation, event.event_id)
