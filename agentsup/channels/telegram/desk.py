"""What the parts that receive for one bot share: the desk they work at, and words to people."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

from agentsup.channels.desk import notice_tx, write_patiently
from agentsup.channels.inbox import Inbox
from agentsup.channels.telegram import files
from agentsup.channels.telegram.event import Me
from agentsup.channels.telegram.updates import CHANNEL
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.kit.pool import BoundedPool
from agentsup.mailbox.mailbox import Mailbox
from agentsup.model.control import Commands
from agentsup.model.principal import Principal
from agentsup.store.database import Database

__all__ = ["SayDeps", "TypedAnswers", "notice_tx", "write_patiently"]


class TypedAnswers(Protocol):
    """Where a text may turn out to be the answer of an open question."""

    async def on_text(
        self,
        conversation: str,
        text: str,
        reply_to: int | None,
        principal: Principal,
        press_id: str,
        language: str = "",
        *,
        quoted: str = "",
        is_private: bool = False,
    ) -> str | None: ...


@dataclass(frozen=True, slots=True)
class SayDeps:
    """What is needed to say something to one agent."""

    channel: ClassVar[str] = CHANNEL
    agent_id: str
    agent_name: str
    bot_id: str
    me: Me
    database: Database
    mailbox: Mailbox
    inbox: Inbox
    commands: Commands
    clock: Clock
    entropy: Entropy
    client: files.FileClient
    workspace: Path
    files: BoundedPool = field(default_factory=lambda: BoundedPool("files"), kw_only=True)
    """Where work on the workspace is done."""
    answers: TypedAnswers
    accepted: Callable[[str, str, int], None]
    """Told of each new message: its id, the conversation, Telegram's id of it."""
    album_s: float
    max_file_bytes: int
