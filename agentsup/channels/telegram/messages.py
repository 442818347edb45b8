"""Telegram's own part in handling messages: what the agent reads, albums, forwarded texts, cards."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agentsup.catalogue import LocalizedTexts, words
from agentsup.channels.core.buttons.live_cards import live_fact
from agentsup.channels.core.buttons.typed_answers import TypedText
from agentsup.channels.core.errors import PlatformError, RequestRefused
from agentsup.channels.core.files.inbox_files import Opened
from agentsup.channels.core.receiving import messages
from agentsup.channels.core.receiving import rows as stored
from agentsup.channels.core.receiving.gate import AccessReason, AccessVerdict
from agentsup.channels.core.receiving.inbox import InboxReply
from agentsup.channels.core.receiving.messages import PlatformMessages
from agentsup.channels.core.receiving.raw import maybe_text
from agentsup.channels.core.receiving.rows import ReceivedRow
from agentsup.channels.core.receiving.texts import Attachment, inert, with_quote
from agentsup.channels.telegram import received
from agentsup.channels.telegram.access import People
from agentsup.channels.telegram.client import TelegramClient
from agentsup.channels.telegram.content import UNREADABLE, BotUser
from agentsup.channels.telegram.entities import units_of
from agentsup.channels.telegram.event import UpdateEvent, UpdateKind, read
from agentsup.channels.telegram.menus import Menus
from agentsup.model.errors import TooLarge
from agentsup.model.principal import Principal
from agentsup.store import Reader

_PIECES_MAX = 100
_PIECE_UNITS = 3_000
"""Clients cut a text at 4,096 UTF-16 units or at the end of a paragraph before."""
_NEXT_MS, _ALL_MS = 3_000, 10_000
"""Longest time from one message to the next, and from the first to the last, by the platform."""
_KIND_CHARS = 40
_DOWNLOADS = 8
"""Downloads at the same time per bot: half of the calls it may have under way, so that answers are
still sent."""


def said(events: Sequence[UpdateEvent], username: str) -> str:
    """Return the text of a message, or of an album's messages in order.

    The bot's own name at the beginning only addresses it and is removed. The message that is
    replied to is quoted: somebody else's, because the agent may not have seen it, and the agent's
    own, because it could not know which one is meant.
    """
    blocks = []
    for event in events:
        text = _without_address(event.text, username)
        if event.forwarded_from:
            text = f"[forwarded from {inert(event.forwarded_from, 64)}]\n{text}".rstrip()
        blocks += [with_quote(text, event.quoted), *event.notes]
    return "\n".join(block for block in blocks if block.strip())


def _without_address(text: str, username: str) -> str:
    if not username:
        return text
    return re.sub(rf"\A\s*@{re.escape(username)}\b[\s,:]*", "", text, flags=re.IGNORECASE)


ReceivedItem = messages.ReceivedItem[UpdateEvent]
Lane = messages.Lane[UpdateEvent]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveLimits(messages.ReceiveLimits):
    """The bounds of receiving from Telegram. Durations in seconds."""

    max_file_bytes: int = 20 * 1024 * 1024
    """The download limit of the Bot API; a local server allows more."""
    poll_s: float = 50.0
    album_s: float = 1.0
    """Seconds to wait for the rest of an album, of a long text or of forwarded messages."""
    comment_s: float = 0.25
    """Seconds to wait after a text for the forwarded messages on which it may be a comment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveDependencies(messages.ReceiveDependencies):
    """The dependencies of passing messages to one agent."""

    limits: ReceiveLimits
    me: BotUser
    client: TelegramClient
    people: People
    menus: Menus


async def rest_of_message(event: UpdateEvent, lane: Lane, limits: ReceiveLimits) -> UpdateEvent:
    """Take the other messages from the lane that are one with ``event``; clients send them in a row.

    These are the other pictures of an album, the pieces into which a client cuts a long text, and
    messages that are forwarded together, perhaps after a comment. Returns the event, which is
    addressed to the agent if one of them is.
    """
    last = event

    def belongs(other: ReceivedItem) -> bool:
        return other.event is not None and _is_one(event, last, other.event)

    while len(lane.taken) < _PIECES_MAX and not _is_command(last):
        wait_s = limits.album_s if last.album or _is_piece(last) else limits.comment_s
        taken = await lane.next_like(belongs, wait_s)
        if taken is None or taken.event is None:
            break
        last = taken.event
    is_meant = any(each.event is not None and each.event.addressed for each in lane.taken)
    return replace(event, addressed=event.addressed or is_meant)


def _is_one(first: UpdateEvent, last: UpdateEvent, following: UpdateEvent) -> bool:
    """Whether ``following`` is one message with those from ``first`` to ``last``."""
    if first.album and following.album == first.album:
        return True
    is_same = (first.user_id, first.chat_id, first.topic_id) == (
        *(following.user_id, following.chat_id, following.topic_id),
    )
    if following.kind is not UpdateKind.MESSAGE or not is_same or _is_command(following):
        return False
    if following.at is None or first.at is None or last.at is None:
        return False
    is_soon = following.at - last.at <= _NEXT_MS and following.at - first.at <= _ALL_MS
    return is_soon and (_is_piece(last) or bool(following.forwarded_from))


def _is_piece(event: UpdateEvent) -> bool:
    """Whether more of the same message may follow."""
    return bool(event.forwarded_from) or units_of(event.text) >= _PIECE_UNITS


def _is_command(event: UpdateEvent) -> bool:
    return event.text.lstrip()[:1] in ("/", "!") and not event.forwarded_from


def may_go_on(event: UpdateEvent, verdict: AccessVerdict) -> bool:
    """Whether messages that are one with ``event`` may follow it."""
    if event.kind is not UpdateKind.MESSAGE:
        return bool(event.album)
    if verdict.reason is AccessReason.NOT_ADDRESSED:  # what follows may be
        return bool(event.album) or _is_piece(event)
    return verdict.reason is AccessReason.ALLOWED


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
        return said(events, self._deps.me.username)

    def read(self, row: ReceivedRow, raw: str) -> UpdateEvent:
        return read(stored.load(raw), self._deps.me)

    def corrected(
        self, reader: Reader, row: ReceivedRow, event: UpdateEvent, message_id: str
    ) -> Sequence[UpdateEvent]:
        """A message may have more pieces than the edited one."""
        if event.message_id is None:
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
        facts = live_fact(reply.live, principal, principal.language)
        if reply.bot_offer is not None:
            offer = reply.bot_offer
            request = {"request_id": offer.offer_id, "suggested_name": offer.name}
            label = words(principal.language)("bot.key", agent=offer.agent)
            request["suggested_username"] = offer.username
            facts["create_bot"] = {"label": label, "request": request}
        return facts
