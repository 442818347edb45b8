"""Word to the operator about a bot in trouble, past the bot that has it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

from agentsup.channels.private import ONLY_WITH
from agentsup.channels.telegram.place import parse
from agentsup.daemon.roster import Roster
from agentsup.kit.clock import Clock
from agentsup.mailbox.notices import FALLBACK_CHANNEL, FALLBACK_CONVERSATION, notify_tx
from agentsup.model.agent import MAIN
from agentsup.model.principal import Principal
from agentsup.store.database import Database, Reader, Tx

TELEGRAM = "telegram"
MATRIX = "matrix"
WEB = "web"
_LOOKED_AT = 200
_ROOMS_ASKED = 8
_ASKING_S = 15.0
"""A bot that says something waits for it: for so long homeservers are asked who is in a room."""
_MESSAGES_LOOKED_AT = 2000


class Operators(Protocol):
    """Who may be told what goes wrong."""

    def operator_ids(self) -> frozenset[int]:
        """On Telegram."""

    def operator_names(self) -> frozenset[str]:
        """On Matrix."""


class Alarm:
    """Finds the conversation in which an operator is most likely to read now."""

    def __init__(
        self,
        *,
        database: Database,
        clock: Clock,
        roster: Roster,
        connected: Callable[[str], frozenset[str]],
        operators: Operators,
        alone_with: Callable[[str, str, str], Awaitable[str]],
    ) -> None:
        """``connected(channel)`` are the agents whose bots hear on that platform;
        ``alone_with(channel, agent_id, conversation)`` asks the platform who is there with the
        bot: one person's id, or empty if that is more or fewer, or nobody can say."""
        self._database = database
        self._clock = clock
        self._roster = roster
        self._connected = connected
        self._operators = operators
        self._alone_with = alone_with

    async def tell(self, text: str) -> None:
        """A notice where an operator talks to main, and while that bot is deaf to another agent:
        at the console, or in a chat with nobody else in it. Never where others read.

        Raises ``StoreUnavailable``.
        """
        agent_id, place, facts = await self._heard_at()
        at = self._clock.now_ms()

        def say(tx: Tx) -> None:
            notify_tx(
                tx,
                message_id="",
                agent_id=agent_id,
                session_id="",
                text=text,
                at=at,
                place=place,
                facts=facts,
            )

        await self._database.write(say, name="alarm.tell")

    async def _heard_at(self) -> tuple[str, tuple[str, str], dict[str, str]]:
        """The agent, the conversation, and what must still be so when it is said there."""
        main_id = self._roster.entry(MAIN).agent_id
        found = await self._database.read(partial(self._places, main_id), name="alarm.places")
        asked: set[tuple[str, str]] = set()
        until = self._clock.monotonic() + _ASKING_S
        for agent_id, place in found:
            if place[0] != MATRIX:
                return agent_id, place, {}
            room_id = place[1].partition("/")[0]
            if (agent_id, room_id) in asked or len(asked) >= _ROOMS_ASKED:
                continue
            if self._clock.monotonic() >= until:
                continue
            asked.add((agent_id, room_id))
            person = await self._alone_with(MATRIX, agent_id, room_id)
            if person in self._operators.operator_names():
                return agent_id, place, {ONLY_WITH: person}
        return main_id, (FALLBACK_CHANNEL, FALLBACK_CONVERSATION), {}

    def _places(self, main_id: str, reader: Reader) -> list[tuple[str, tuple[str, str]]]:
        """Where an operator would hear it, best first: main's conversations with one, last used
        first, then another agent's, then the desk.

        A desk is better than all that were used before it, unless a bot in between is deaf, as
        then nobody may be sitting there.
        """
        rows = reader.all(
            "SELECT agent_id, channel, conversation FROM conversations"
            " ORDER BY agent_id = ? DESC, last_at DESC LIMIT ?",
            (main_id, _LOOKED_AT),
        )
        spoken = _spoken_in(reader)
        found: list[tuple[str, tuple[str, str]]] = []
        desk: tuple[str, tuple[str, str]] | None = None
        is_deaf = False
        for row in rows:
            agent_id, place = row["agent_id"], (row["channel"], row["conversation"])
            if _is_desk(*place):
                if agent_id == main_id and desk is None:
                    desk = (agent_id, place)
                    if not is_deaf:
                        break
            elif self._is_operators(agent_id, *place, spoken):
                if agent_id in self._connected(place[0]):
                    found.append((agent_id, place))
                else:
                    is_deaf = True
        return [*found, desk] if desk is not None else found

    def _is_operators(
        self, agent_id: str, channel: str, conversation: str, spoken: set[tuple[str, str, str]]
    ) -> bool:
        if channel == TELEGRAM:
            # The chat id of a private chat is the person's own id.
            return parse(conversation).chat_id in self._operators.operator_ids()
        return (agent_id, channel, conversation) in spoken


def _is_desk(channel: str, conversation: str) -> bool:
    """Whether only the operator's token opens it: the console, or the operator's own page."""
    own = conversation.partition(".")[0] == FALLBACK_CONVERSATION
    return channel == FALLBACK_CHANNEL or (channel == WEB and own)


def _spoken_in(reader: Reader) -> set[tuple[str, str, str]]:
    """Where operators have said something lately."""
    rows = reader.all(
        "SELECT agent_id, deliver_to ->> '$.channel', deliver_to ->> '$.conversation', principal"
        " FROM messages WHERE kind = 'chat' ORDER BY seq DESC LIMIT ?",
        (_MESSAGES_LOOKED_AT,),
    )
    return {
        (row[0], row[1], row[2])
        for row in rows
        if row[1] and Principal.from_json(json.loads(row[3])).is_operator
    }
