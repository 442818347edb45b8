"""Notices of a bot to the people in its chats, with buttons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from agentsup.channels.core.sending import buttons
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.mailbox.delivery import outbox
from agentsup.model.control import CommandButton
from agentsup.store import Tx

ONLY_WITH: Final = "only_with"
"""Key of a part's body: the platform id of the person with whom the bot must be alone there when
the part is sent. Otherwise it is not sent, and the operator is told in another way."""


@dataclass(frozen=True, slots=True)
class ChatNotices:
    """Puts the notices of one agent's bot into the outbox."""

    agent_id: str
    channel: str
    clock: Clock
    entropy: Entropy

    def add_tx(
        self,
        tx: Tx,
        conversation: str,
        text: str,
        *,
        message_id: str = "",
        session_id: str = "",
        **facts: Any,
    ) -> None:
        """Put plain text for people into the outbox; ``facts`` are further fields of the part.

        ``message_id`` and ``session_id`` are those of the message that it is about, if any.
        """
        outbox.add_tx(
            tx,
            agent_id=self.agent_id,
            channel=self.channel,
            conversation=conversation,
            kind="notice",
            body={"text": text, "plain": True, **facts},
            at=self.clock.now_ms(),
            message_id=message_id,
            session_id=session_id,
        )

    def mint_tx(
        self,
        tx: Tx,
        conversation: str,
        rows: Sequence[Sequence[CommandButton]],
        origin: str = "",
    ) -> list[list[dict[str, str]]]:
        """Store buttons, and return them for an outbox body; see ``buttons.mint_tx``."""
        return buttons.mint_tx(
            tx,
            rows,
            agent_id=self.agent_id,
            conversation=conversation,
            origin=origin,
            at=self.clock.now_ms(),
            entropy=self.entropy,
            channel=self.channel,
        )
