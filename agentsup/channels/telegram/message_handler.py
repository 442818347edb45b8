"""What Telegram does differently with the messages of people: albums, forwarded texts, live cards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentsup.catalogue import LocalizedTexts
from agentsup.channels.core.errors import PlatformError, RequestRefused
from agentsup.channels.core.files.fetching import Attachment, Opened
from agentsup.channels.core.pressing.typed_answers import TypedText
from agentsup.channels.core.receiving import rows as stored
from agentsup.channels.core.receiving.inbox import InboxReply
from agentsup.channels.core.receiving.messages import PlatformMessages
from agentsup.channels.core.receiving.raw import maybe_text
from agentsup.channels.core.receiving.rows import ReceivedRow
from agentsup.channels.core.receiving.texts import inert
from agentsup.channels.telegram import received, texts
from agentsup.channels.telegram.content import UNREADABLE
from agentsup.channels.telegram.event import UpdateEvent, read
from agentsup.channels.telegram.live_cards import live_fact
from agentsup.channels.telegram.receive_context import Lane, ReceiveDependencies, ReceivedItem
from agentsup.model.errors import TooLarge
from agentsup.model.principal import Principal
from agentsup.store import Reader

_ALBUM_MAX = 20
_KIND_CHARS = 40
_DOWNLOADS = 8
"""Downloads at the same time per bot: half of the calls it may have under way, so that answers are
still sent."""


async def rest_of_album(event: UpdateEvent, lane: Lane, album_s: float) -> UpdateEvent:
    """Take the other messages of the album from the lane; Telegram sends them in a row.

    Waits ``album_s`` seconds for each. Returns the event, which is addressed to the agent if one of
    the album is.
    """

    def belongs(other: ReceivedItem) -> bool:
        return other.event is not None and other.event.album == event.album

    while len(lane.taken) < _ALBUM_MAX:
        if await lane.next_like(belongs, album_s) is None:
            break
    is_meant = any(each.event is not None and each.event.addressed for each in lane.taken)
    return replace(event, addressed=event.addressed or is_meant)


def unreadable_text(kind: str, say: LocalizedTexts) -> str:
    """Return what the person is told about content of a kind that cannot be read."""
    known = UNREADABLE.get(kind)
    if known is not None:
        return say(f"unreadable.{known}")
    return say("unreadable.unknown", kind=inert(kind.replace("_", " "), _KIND_CHARS))


class TelegramMessages(PlatformMessages[UpdateEvent]):
    """Implements ``PlatformMessages`` for one bot."""

    _deps: ReceiveDependencies
    downloads = _DOWNLOADS
    over = "file.not_received"
    ledger_id = staticmethod(received.ledger_id)

    def unread(self, reader: Reader, row: ReceivedRow) -> UpdateEvent | None:
        try:
            event = self.read(row, row.raw)
        except ValueError:
            return None
        return event if event.is_message else None

    def said(self, events: Sequence[UpdateEvent]) -> str:
        return texts.said(events, self._deps.me.username)

    def read(self, row: ReceivedRow, raw: str) -> UpdateEvent:
        return read(stored.load(raw), self._deps.me)

    def corrected(
        self, reader: Reader, row: ReceivedRow, event: UpdateEvent, message_id: str
    ) -> Sequence[UpdateEvent]:
        """An album has more than the edited one."""
        if not event.album or event.message_id is None:
            return [event]
        found = received.pieces(reader, row, event.message_id, message_id)
        events = {each: self.read(row, raw) for each, raw in found.items()}
        events[event.message_id] = event
        return [events[each] for each in sorted(events)]

    def problems(self, events: Sequence[UpdateEvent], say: LocalizedTexts) -> list[str]:
        kinds = dict.fromkeys(each.unreadable for each in events if each.unreadable)
        return [unreadable_text(kind, say) for kind in kinds]

    async def answer(
        self, row: ReceivedRow, event: UpdateEvent, principal: Principal
    ) -> str | None:
        quoted = event.quoted
        if event.forwarded_from or event.album:
            return None  # it was said by somebody else, or has files
        if event.is_edit and quoted is None:
            return None  # an edit may correct a text that is older than the question
        typed = TypedText(
            conversation=event.address.conversation,
            text=event.text,
            principal=principal,
            press_id=received.ledger_id(row),
            reply_to=(quoted.message_id or None) if quoted else None,
            quoted=quoted.text if quoted else "",
            language=principal.language,
            is_private=event.is_private,
        )
        return await self._deps.menus.on_text(typed)

    async def pull(self, sent: Attachment, opened: Opened) -> None:
        client, max_bytes = self._deps.client, self._deps.max_file_bytes
        try:
            info = await client.call("getFile", file_id=sent.file_id)
            path = maybe_text(info, "file_path")
            if not path:
                raise PlatformError("the answer to getFile names no file")
            await client.download(path, await opened(), max_bytes)
        except RequestRefused as error:
            if "too big" in error.message:
                raise TooLarge(error.message) from None
            raise

    def reply_facts(self, reply: InboxReply, principal: Principal) -> Mapping[str, Any]:
        return live_fact(reply.live, principal, principal.language)

    def accepted(self, message_id: str, event: UpdateEvent) -> None:
        self._deps.accepted(message_id, event.address.conversation, event.message_id or 0)
