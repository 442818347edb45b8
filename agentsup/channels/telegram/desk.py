"""What the parts that receive for one bot share: the desk they work at, and words to people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from agentsup.channels.buttons import mint_tx
from agentsup.channels.inbox import Inbox
from agentsup.channels.telegram import files, updates
from agentsup.channels.telegram.event import Me
from agentsup.channels.telegram.updates import CHANNEL
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.mailbox import outbox
from agentsup.mailbox.mailbox import Mailbox
from agentsup.model.control import Button, Commands
from agentsup.model.errors import Overloaded, StoreUnavailable
from agentsup.model.principal import Principal
from agentsup.store.database import Database, Tx

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
    ) -> str | None: ...


@dataclass(frozen=True, slots=True)
class SayDeps:
    """What is needed to say something to one agent."""

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
    answers: TypedAnswers
    accepted: Callable[[str, str, int], None]
    """Told of each new message: its id, the conversation, Telegram's id of it."""
    album_s: float
    max_file_bytes: int


def notice_tx(
    tx: Tx,
    deps: SayDeps,
    conversation: str,
    text: str,
    *,
    buttons: Sequence[Sequence[Button]] = (),
    origin: str = "",
    **facts: Any,
) -> None:
    """Put plain text for people into the outbox, with buttons if there are any."""
    at = deps.clock.now_ms()
    body: dict[str, Any] = {"text": text, "plain": True, **facts}
    if buttons:
        body["buttons"] = mint_tx(
            tx,
            buttons,
            agent_id=deps.agent_id,
            conversation=conversation,
            origin=origin,
            at=at,
            entropy=deps.entropy,
            channel=CHANNEL,
        )
    outbox.add_tx(
        tx,
        agent_id=deps.agent_id,
        channel=CHANNEL,
        conversation=conversation,
        kind="notice",
        body=body,
        at=at,
    )


async def write_patiently(deps: SayDeps, fn: Callable[[Tx], object], name: str) -> None:
    """Write, and wait while the store can't; raises ``StoreUnavailable`` once it is closed."""
    while True:
        try:
            await deps.database.write(fn, name=name)
        except (StoreUnavailable, Overloaded) as error:
            if updates.is_over(error):
                raise
            await deps.clock.sleep(1.0)
        else:
            return
