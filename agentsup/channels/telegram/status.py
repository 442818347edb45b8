"""Signs in Telegram: "typing" in the chat, the seen reaction, and the sender of optional calls."""

from __future__ import annotations

from functools import partial
from typing import Any

from agentsup.channels.core.errors import LowPriorityDropped
from agentsup.channels.core.live import signs
from agentsup.channels.core.live.signs import REACTIONS_MAX, SEEN, SeenMessage
from agentsup.channels.core.receiving.rows import of_open_messages
from agentsup.channels.telegram.address import ChatAddress, parse
from agentsup.channels.telegram.flood import CallKind
from agentsup.channels.telegram.received import CHANNEL
from agentsup.channels.telegram.sender import Sender, SendPriority

TYPING_S = 4.5
"""The platform shows "typing" for 5 seconds."""
LOW_PRIORITY_MAX = 8
"""Most optional calls under way: half of the calls that one bot may have under way."""
_TIMEOUT_S = 5.0


class LowPrioritySender:
    """The sender for optional calls, with a bound on how many are under way.

    So optional calls that the platform does not answer leave enough of the bot's calls for answers.
    """

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._under_way = 0

    async def send(
        self, chat_id: int, method: str, *, droppable: bool = False, **fields: Any
    ) -> Any:
        """As ``Sender.send``; a droppable call also raises when too many are under way."""
        if droppable and self._under_way >= LOW_PRIORITY_MAX:
            raise LowPriorityDropped("too much is under way")
        self._under_way += 1
        try:
            return await self._sender.send(chat_id, method, droppable=droppable, **fields)
        finally:
            self._under_way -= 1

    def withdraw(self, key: str) -> bool:
        """As ``Sender.withdraw``."""
        return self._sender.withdraw(key)

    def pause_s(self, chat_id: int, kind: CallKind = CallKind.LIGHT) -> float:
        """As ``Sender.pause_s``."""
        return self._sender.pause_s(chat_id, kind)


class Typing(signs.Typing[LowPrioritySender]):
    """The sign of a conversation: a chat, or a topic in it."""

    renew_s = TYPING_S

    def _pause_s(self, chat: str) -> float:
        return self._sender.pause_s(parse(chat).chat_id)

    async def _set(self, chat: str, *, is_on: bool) -> None:
        address = parse(chat)
        fields = {"message_thread_id": address.topic_id} if address.topic_id else {}
        await self._sender.send(
            address.chat_id,
            "sendChatAction",
            priority=SendPriority.TYPING,
            droppable=True,
            replaces=f"typing:{chat}",
            timeout_s=_TIMEOUT_S,
            action="typing",
            **fields,
        )


class Reactions(signs.Reactions[tuple[ChatAddress, int], LowPrioritySender]):
    """Seen reactions, set on the message with this id in this chat."""

    clear_attempts = 4

    async def restore(self) -> None:
        left = await self._database.read(
            partial(
                of_open_messages, channel=CHANNEL, agent_id=self._agent_id, limit=REACTIONS_MAX
            ),
            name="reactions.left",
        )
        for each in left:
            if each.message_id not in self._seen:
                target = (ChatAddress(int(each.chat_id)), int(each.platform_id))
                self._watch(each.message_id, SeenMessage(target, is_shown=True))

    async def _set(self, seen: SeenMessage[tuple[ChatAddress, int]]) -> None:
        await self._react(seen, [{"type": "emoji", "emoji": SEEN}], droppable=True)

    async def _unset(self, seen: SeenMessage[tuple[ChatAddress, int]]) -> None:
        await self._react(seen, [], droppable=False)

    async def _react(
        self,
        seen: SeenMessage[tuple[ChatAddress, int]],
        reaction: list[dict[str, str]],
        *,
        droppable: bool,
    ) -> None:
        address, platform_id = seen.target
        await self._sender.send(
            address.chat_id,
            "setMessageReaction",
            priority=SendPriority.TYPING,
            droppable=droppable,
            timeout_s=_TIMEOUT_S,
            message_id=platform_id,
            reaction=reaction,
        )
