"""The streams of one Telegram bot: edits and drafts, typing, and seen reactions."""

from __future__ import annotations

from agentsup.channels.core.live.placeholders import Placeholder
from agentsup.channels.core.live.streams import StreamSet
from agentsup.channels.core.receiving.messages import BotDependencies
from agentsup.channels.telegram.address import parse
from agentsup.channels.telegram.live_answer import DraftSupport, LiveAnswer
from agentsup.channels.telegram.placeholder_updates import MessageUpdates
from agentsup.channels.telegram.sender import Sender
from agentsup.channels.telegram.status import LowPrioritySender, Reactions, Typing


class Streams(StreamSet):
    """The streams of one life of a bot."""

    channel = "telegram"

    def __init__(self, deps: BotDependencies, sender: Sender) -> None:
        super().__init__(deps)
        self._sender = LowPrioritySender(sender)
        self._drafts = DraftSupport()
        self._typing = Typing(self._sender, deps.clock, self._owner)
        self._reactions = Reactions(self._sender, deps, self._owner)

    def accepted(self, message_id: str, conversation: str, platform_message_id: int) -> None:
        """Set the seen reaction on a person's message, if the setting says so. Never blocks."""
        if self._wanted().reactions:
            self._reactions.accepted(message_id, (parse(conversation), platform_message_id))

    async def _restore_signs(self) -> None:
        if self._wanted().reactions:
            await self._reactions.restore()

    def _new(
        self, message_id: str, conversation: str, left: Placeholder | None = None
    ) -> LiveAnswer:
        address = parse(conversation)
        updates = MessageUpdates(self._context, message_id, address, self._sender, left)
        return LiveAnswer(updates, self._drafts)
