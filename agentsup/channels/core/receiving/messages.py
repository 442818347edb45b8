"""Ports of the receiving core: the platform, what it needs, and the messages that people send there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from agentsup.catalogue import LocalizedTexts
from agentsup.channels.core.files.inbox_files import Opened
from agentsup.channels.core.receiving import rows as stored
from agentsup.channels.core.receiving.inbox import Inbox, InboxReply
from agentsup.channels.core.receiving.lanes import ChatLane
from agentsup.channels.core.receiving.raw import Malformed
from agentsup.channels.core.receiving.rows import ReceivedRow, RowOwner, SkipReason
from agentsup.channels.core.receiving.texts import Attachment
from agentsup.channels.core.report import ChannelReport
from agentsup.channels.core.sending.buttons import ChatNotices
from agentsup.channels.core.sending.deliver import DeliverySettings, PieceChannel
from agentsup.kit.clock import Clock
from agentsup.kit.descriptors import is_shortage
from agentsup.kit.entropy import Entropy
from agentsup.kit.pool import BoundedPool
from agentsup.mailbox import Mailbox
from agentsup.model.agent import AgentSpec
from agentsup.model.control import Commands
from agentsup.model.errors import Overloaded, StoreUnavailable
from agentsup.model.managed_bots import BotKeeper, NoBotKeeper
from agentsup.model.pairing import Asking, NoPairing
from agentsup.model.principal import Principal
from agentsup.observe import LiveHub
from agentsup.store import Database, Reader, Tx, is_over

_STORE_PAUSE_S = 1.0


class Address(Protocol):
    """An address on a platform."""

    @property
    def conversation(self) -> str: ...


class MessageEvent(Protocol):
    """A row as read: a message, an edit or another event. ``at`` is wall ms of the platform."""

    @property
    def text(self) -> str: ...
    @property
    def attachments(self) -> Sequence[Attachment]: ...
    @property
    def quoted_attachments(self) -> Sequence[Attachment]: ...
    @property
    def notes(self) -> Sequence[str]: ...
    @property
    def platform_id(self) -> str:
        """The platform's id of it."""

    @property
    def has_content(self) -> bool: ...
    @property
    def at(self) -> int | None: ...
    @property
    def is_edit(self) -> bool: ...
    @property
    def is_message(self) -> bool: ...
    @property
    def is_private(self) -> bool: ...
    @property
    def address(self) -> Address: ...


EventT = TypeVar("EventT", bound=MessageEvent)
AnyEventT = TypeVar("AnyEventT")


@dataclass(frozen=True, slots=True)
class ReceivedItem(Generic[AnyEventT]):
    """A row as read. ``event`` is None if it is malformed; ``fault`` says why."""

    row: ReceivedRow
    event: AnyEventT | None
    fault: str = ""


Lane = ChatLane[ReceivedItem[EventT]]
"""The received items of one chat, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveLimits:
    """The bounds of receiving. Durations in seconds."""

    max_age_s: float = 24 * 3600.0
    """Messages older than this are listed in a notice, and not answered."""
    max_file_bytes: int
    """Largest file that is fetched."""
    poll_s: float
    """Seconds that the platform may wait for something new before it answers."""
    deaf_after_s: float = 180.0
    """Without an answered poll for this long, the operator is notified (P9)."""
    chats_at_once: int = 16
    backlog: int = 2000
    """Received items held in memory; further ones wait in the store."""
    waiting_note_s: float = 3.0
    """A message that is behind others for longer than this gets a waiting note."""
    drain_s: float = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BotServices:
    """Services of the daemon that all parts of one agent's bot may use."""

    agent_id: str
    agent_name: str
    workspace: Path
    files: BoundedPool = field(default_factory=lambda: BoundedPool("files"))
    """The threads that read and write the workspace."""
    database: Database
    mailbox: Mailbox
    inbox: Inbox
    commands: Commands
    clock: Clock
    entropy: Entropy
    spec: Callable[[], AgentSpec]
    tell: Callable[[str], Awaitable[None]]
    """Notifies the operator by a way that does not need this bot."""
    pairing: Asking = field(default_factory=NoPairing)
    """The handling of strangers who write in private."""
    bots: BotKeeper = field(default_factory=NoBotKeeper)
    """The handling of bots that people create through main's bot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BotDependencies(BotServices):
    """The dependencies of a bot on any platform; made by the daemon for each life."""

    channel: PieceChannel[Any, Any, Any]
    """Delivers the outbox of all bots on the platform."""
    limits: ReceiveLimits
    live: LiveHub
    report: Callable[[ChannelReport], None]
    """Called at every change of state and after each answered poll."""
    settings: Callable[[], DeliverySettings]
    """Returns the current settings of deliveries; called for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveDependencies(BotServices):
    """The dependencies of receiving messages for one agent."""

    owner: RowOwner
    limits: ReceiveLimits
    set_aside: Callable[[int], None]
    """Gets the number of rows in quarantine whenever it changes."""
    accepted: Callable[[str, str, str], None]
    """Called for each new message: its id, the conversation, the platform's id of it."""

    @property
    def channel(self) -> str:
        """The channel of the bot."""
        return self.owner.channel

    @property
    def max_file_bytes(self) -> int:
        """The size of the largest file that is fetched."""
        return self.limits.max_file_bytes

    @property
    def notices(self) -> ChatNotices:
        """Puts notices into the outbox."""
        return ChatNotices(self.agent_id, self.channel, self.clock, self.entropy)


class PlatformMessages(ABC, Generic[EventT]):
    """The platform's own part in handling messages of people."""

    downloads: ClassVar[int]
    """The number of messages whose files are fetched at the same time."""
    over: ClassVar[str] = "file.over_ours"
    """The key of the text for a file that is too large."""

    def __init__(self, deps: ReceiveDependencies, would_answer: Callable[[EventT], bool]) -> None:
        """``would_answer`` says whether a text that was not handled yet is for the agent."""
        self._deps = deps
        self.would_answer = would_answer

    @abstractmethod
    def ledger_id(self, row: ReceivedRow) -> str:
        """Return the row's name in the ledger. It is stored, so it never changes."""

    @abstractmethod
    def read(self, row: ReceivedRow, raw: str) -> EventT:
        """Return ``raw``, a version of the row's message, as read. Raises ``Malformed``."""

    @abstractmethod
    def unread(self, reader: Reader, row: ReceivedRow) -> EventT | None:
        """Return a stored message or edit that is not handled yet; None for anything else."""

    def said(self, events: Sequence[EventT]) -> str:
        """Return the text that the agent reads of a message, which may have come in pieces."""
        return events[0].text

    @abstractmethod
    async def answer(self, row: ReceivedRow, event: EventT, principal: Principal) -> str | None:
        """Take the text as the answer to an open question; None if it is none."""

    @abstractmethod
    async def pull(self, sent: Attachment, opened: Opened) -> None:
        """Find the content of a file, then open the local file and write it.

        May be called again. Raises a ``PlatformError``, ``OSError``, or ``TooLarge`` for more than
        ``max_file_bytes``.
        """

    def text_of(self, row: ReceivedRow, raw: str) -> str | None:
        """Return the text of an earlier version of a row's message; None if it cannot be read."""
        try:
            return self.read(row, raw).text
        except Malformed:
            return None

    def may_edit(self, raw: str, event: EventT) -> bool:
        """Whether the edit is by the sender of the earlier version ``raw``.

        Always so where the platform lets people edit only their own messages.
        """
        return True

    def corrected(
        self, reader: Reader, row: ReceivedRow, event: EventT, message_id: str
    ) -> Sequence[EventT]:
        """Return what the message ``message_id`` consists of after the edit."""
        return [event]

    def doubt(self, event: EventT) -> str:
        """Return the key of the text that says why a command is not run; empty if it may be."""
        return ""

    def problems(self, events: Sequence[EventT], say: LocalizedTexts) -> list[str]:
        """Return the texts for the person about content of the message that cannot be read."""
        return []

    def reply_facts(self, reply: InboxReply, principal: Principal) -> Mapping[str, Any]:
        """Return further fields of the part in which a command's reply is sent."""
        return {}


def shown(event: MessageEvent) -> str:
    """Return a few words by which its sender recognises a message."""
    files = "".join(each.name for each in event.attachments)
    return event.text or files or "".join(event.notes[:1])


async def write_patiently(ctx: ReceiveDependencies, fn: Callable[[Tx], object], name: str) -> None:
    """Write ``fn``, and try again while the store is not available or overloaded.

    Raises ``StoreUnavailable`` once the store is closed.
    """
    while True:
        try:
            await ctx.database.write(fn, name=name)
        except (StoreUnavailable, Overloaded) as error:
            if is_over(error):
                raise
            await ctx.clock.sleep(_STORE_PAUSE_S)
        else:
            return


async def end_rows(
    ctx: ReceiveDependencies,
    rows: Sequence[ReceivedRow],
    name: str,
    *,
    notices: Mapping[str, str] | None = None,
    skip: SkipReason | None = None,
    why: str = "",
) -> None:
    """Mark rows as handled, or as skipped for a reason, in one write called ``name``.

    ``notices`` are texts for people by conversation; empty ones are left out. ``why`` is stored
    with skipped rows.
    """

    def step(tx: Tx) -> None:
        for conversation, text in (notices or {}).items():
            if text:
                ctx.notices.add_tx(tx, conversation, text)
        if skip is None:
            stored.done_tx(tx, rows)
        else:
            stored.skip_tx(tx, rows, skip, why)

    await write_patiently(ctx, step, f"{ctx.channel}.{name}")


def is_passing(error: Exception) -> bool:
    """Whether the error is temporary and not caused by the item, which is then tried again.

    Either the store is not available or overloaded, or the machine lacks descriptors or memory.
    """
    return isinstance(error, StoreUnavailable | Overloaded) or is_shortage(error)
