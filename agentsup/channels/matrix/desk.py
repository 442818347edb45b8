"""What the parts that receive for one Matrix bot share: the desk they work at, and words to people."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

from agentsup.channels import lanes
from agentsup.channels.compose import in_reply, in_reply_to_own
from agentsup.channels.desk import notice_tx, write_patiently
from agentsup.channels.inbox import Inbox
from agentsup.channels.matrix.event import Event, Me
from agentsup.channels.matrix.files import FileClient
from agentsup.channels.matrix.kept import CHANNEL, Owner, Row
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.kit.pool import BoundedPool
from agentsup.mailbox.mailbox import Mailbox
from agentsup.model.control import Commands
from agentsup.model.principal import Principal
from agentsup.store.database import Database

__all__ = [
    "Buttons",
    "Item",
    "Lane",
    "SayDeps",
    "TypedAnswers",
    "Watching",
    "notice_tx",
    "said",
    "shown",
    "write_patiently",
]


@dataclass(frozen=True, slots=True)
class Item:
    """A kept event as read; without one it made no sense, and ``fault`` says why."""

    row: Row
    event: Event | None
    fault: str = ""


Lane = lanes.Lane[Item]


class TypedAnswers(Protocol):
    """Where a text may turn out to be the answer of an open question."""

    async def on_text(
        self,
        conversation: str,
        text: str,
        reply_to: str | None,
        principal: Principal,
        press_id: str,
        language: str = "",
        *,
        quoted: str = "",
        is_private: bool = False,
    ) -> str | None: ...


class Buttons(TypedAnswers, Protocol):
    """Reactions and typed answers."""

    async def on_reaction(
        self,
        room_id: str,
        event_id: str,
        emoji: str,
        principal: Principal | None,
        press_id: str,
        language: str = "",
        *,
        is_private: bool = False,
    ) -> bool: ...


class Watching(Protocol):
    """Who tells that a message waits behind others."""

    def watch(self, message_id: str, conversation: str) -> None: ...


@dataclass(frozen=True, slots=True)
class SayDeps:
    """What is needed to say something to one agent."""

    channel: ClassVar[str] = CHANNEL
    agent_id: str
    agent_name: str
    owner: Owner
    me: Me
    database: Database
    mailbox: Mailbox
    inbox: Inbox
    commands: Commands
    clock: Clock
    entropy: Entropy
    client: FileClient
    workspace: Path
    files: BoundedPool = field(default_factory=lambda: BoundedPool("files"), kw_only=True)
    """Where work on the workspace is done."""
    answers: TypedAnswers
    accepted: Callable[[str, str, str], None]
    """Told of each new message: its id, the conversation, the event that it came with."""
    max_file_bytes: int


def said(event: Event) -> str:
    """The text that the agent reads. What is replied to is quoted: somebody else's words, as the
    agent may not have seen them, and its own, as it can't know which are meant."""
    text, quoted = event.text, event.quoted
    if quoted is not None and quoted.text.strip():
        text = (
            in_reply_to_own(text, quoted.text)
            if quoted.is_ours
            else in_reply(text, quoted.who, quoted.text)
        )
    return "\n".join(block for block in (text, *event.notes) if block.strip())


def shown(event: Event) -> str:
    """A few words by which its sender knows a message again."""
    named_files = "".join(each.name for each in event.attachments)
    return event.text or named_files or "".join(event.notes[:1])
