"""Notices to an operator about a failing bot, sent through a channel that still works."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from agentsup.channels.core.sending import ONLY_WITH, ChatNotices
from agentsup.channels.telegram import parse
from agentsup.daemon.runtime.people import People
from agentsup.daemon.runtime.roster import Roster
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.kit.own_command import with_home
from agentsup.mailbox.delivery import (
    FALLBACK_CHANNEL,
    FALLBACK_CONVERSATION,
    latest_conversations,
    notify_tx,
)
from agentsup.mailbox.queue import latest_chats
from agentsup.model.agent import MAIN
from agentsup.model.control import CommandButtons
from agentsup.model.platforms import MATRIX, PLATFORMS, TELEGRAM
from agentsup.store import Database, Reader, Tx

WEB = "web"
_PLATFORMS = frozenset(each.name for each in PLATFORMS)
_LOOKED_AT = 200
_ROOMS_ASKED = 8
_ASKING_S = 15.0
"""The time in seconds for which homeservers are asked who is in a room. A bot whose failure is
reported waits for it."""
_MESSAGES_LOOKED_AT = 2000


@dataclass(frozen=True, slots=True, eq=False)
class Alarm:
    """Finds the conversation in which an operator is most likely to read a notice now."""

    database: Database
    clock: Clock
    entropy: Entropy
    roster: Roster
    connected: Callable[[str], frozenset[str]]
    """Returns the agents whose bots receive messages on the platform of that name."""
    people: People
    alone_with: Callable[[str, str, str], Awaitable[str]]
    """Asks a platform (by its name, an agent's id and a conversation) who is in the conversation
    besides the bot. Returns the id of one person, or an empty string if there are several people or
    none, or if the platform does not answer."""

    async def tell(self, text: str, buttons: CommandButtons = ()) -> None:
        """Send ``text`` to an operator, in a conversation that nobody else reads.

        ``buttons`` are commands of main's chat; they are left out where there are none.

        That is a conversation with main. While main's bot is not connected, it is the console, or a
        private chat of another agent with an operator. Raises ``StoreUnavailable``.
        """
        await self._say(text, buttons, *await self._target())

    async def note(self, text: str) -> None:
        """Write ``text`` into main's chat at the console, which nobody's phone rings for. Raises
        ``StoreUnavailable``."""
        console = (FALLBACK_CHANNEL, FALLBACK_CONVERSATION)
        await self._say(text, (), self.roster.entry(MAIN).agent_id, console, {})

    async def _say(
        self,
        text: str,
        buttons: CommandButtons,
        agent_id: str,
        conversation: tuple[str, str],
        facts: dict[str, str],
    ) -> None:
        at = self.clock.now_ms()
        has_buttons = buttons and agent_id == self.roster.entry(MAIN).agent_id

        def say(tx: Tx) -> None:
            shown: dict[str, Any] = dict(facts)
            if has_buttons and conversation[0] in _PLATFORMS:
                notices = ChatNotices(agent_id, conversation[0], self.clock, self.entropy)
                shown["buttons"] = notices.mint_tx(tx, conversation[1], buttons)
            notify_tx(
                tx,
                message_id="",
                agent_id=agent_id,
                text=with_home(text),
                at=at,
                address=conversation,
                facts=shown,
            )

        await self.database.write(say, name="alarm.tell")

    async def _target(self) -> tuple[str, tuple[str, str], dict[str, str]]:
        """The agent, the conversation, and the conditions that must still hold at delivery."""
        main_id = self.roster.entry(MAIN).agent_id
        found = await self.database.read(partial(self._conversations, main_id), name="alarm.places")
        asked: set[tuple[str, str]] = set()
        until = self.clock.monotonic() + _ASKING_S
        for agent_id, conversation in found:
            if conversation[0] != MATRIX.name:
                return agent_id, conversation, {}
            room_id = conversation[1].partition("/")[0]
            if (agent_id, room_id) in asked or len(asked) >= _ROOMS_ASKED:
                continue
            if self.clock.monotonic() >= until:
                continue
            asked.add((agent_id, room_id))
            person = await self.alone_with(MATRIX.name, agent_id, room_id)
            if person in self.people.operators(MATRIX):
                return agent_id, conversation, {ONLY_WITH: person}
        return main_id, (FALLBACK_CHANNEL, FALLBACK_CONVERSATION), {}

    def _conversations(self, main_id: str, reader: Reader) -> list[tuple[str, tuple[str, str]]]:
        """Conversations in which an operator would read a notice, the best one first.

        First main's conversations with an operator, the last used one first, then those of other
        agents, then the operator-only one (console or web page) of main. The operator-only one ends
        the search, unless a bot of a conversation that was used later is not connected: nobody may
        be at the console then.
        """
        spoken = _spoken_in(reader)
        found: list[tuple[str, tuple[str, str]]] = []
        fallback: tuple[str, tuple[str, str]] | None = None
        is_deaf = False
        for agent_id, conversation in latest_conversations(reader, main_id, _LOOKED_AT):
            if _is_operator_only(*conversation):
                if agent_id == main_id and fallback is None:
                    fallback = (agent_id, conversation)
                    if not is_deaf:
                        break
            elif self._is_operators(agent_id, *conversation, spoken):
                if agent_id in self.connected(conversation[0]):
                    found.append((agent_id, conversation))
                else:
                    is_deaf = True
        return [*found, fallback] if fallback is not None else found

    def _is_operators(
        self, agent_id: str, channel: str, conversation: str, spoken: set[tuple[str, str, str]]
    ) -> bool:
        if channel == TELEGRAM.name:
            # The chat id of a private chat is the person's own id.
            return parse(conversation).chat_id in self.people.operators(TELEGRAM)
        return (agent_id, channel, conversation) in spoken


def _is_operator_only(channel: str, conversation: str) -> bool:
    """Whether only the operator's token opens the conversation: the console, or the operator's own
    web page."""
    own = conversation.partition(".")[0] == FALLBACK_CONVERSATION
    return channel == FALLBACK_CHANNEL or (channel == WEB and own)


def _spoken_in(reader: Reader) -> set[tuple[str, str, str]]:
    """Conversations in which operators have written something lately."""
    return {
        (agent_id, to.channel, to.conversation)
        for agent_id, to, principal in latest_chats(reader, _MESSAGES_LOOKED_AT)
        if to.channel and principal.is_operator
    }
