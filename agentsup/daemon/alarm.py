"""Word to the operator about a bot in trouble, past the bot that has it."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

from agentsup.channels.telegram.place import parse
from agentsup.daemon.roster import Roster
from agentsup.kit.clock import Clock
from agentsup.mailbox.notices import FALLBACK_CHANNEL, FALLBACK_CONVERSATION, notify_tx
from agentsup.model.agent import MAIN
from agentsup.model.principal import Principal
from agentsup.store.database import Database, Reader, Tx

TELEGRAM = "telegram"
WEB = "web"
_LOOKED_AT = 200
_MESSAGES_LOOKED_AT = 2000


class Alarm:
    """Finds the conversation in which an operator is most likely to read now."""

    def __init__(
        self,
        *,
        database: Database,
        clock: Clock,
        roster: Roster,
        connected: Callable[[str], frozenset[str]],
        operator_ids: Callable[[], frozenset[int]],
    ) -> None:
        """``connected(channel)`` are the agents whose bots hear on that platform;
        ``operator_ids()`` are the operators' Telegram ids."""
        self._database = database
        self._clock = clock
        self._roster = roster
        self._connected = connected
        self._operator_ids = operator_ids

    async def tell(self, text: str) -> None:
        """A notice where an operator talks to main, and while that bot is deaf to another agent:
        at the console, or in a private chat. Never where only others read.

        Raises ``StoreUnavailable``.
        """
        await self._database.write(partial(self._tell_tx, text=text), name="alarm.tell")

    def _tell_tx(self, tx: Tx, *, text: str) -> None:
        main_id = self._roster.entry(MAIN).agent_id
        agent_id, place = self._heard_at(tx, main_id) or (
            main_id,
            (FALLBACK_CHANNEL, FALLBACK_CONVERSATION),
        )
        notify_tx(
            tx,
            message_id="",
            agent_id=agent_id,
            session_id="",
            text=text,
            at=self._clock.now_ms(),
            place=place,
        )

    def _heard_at(self, reader: Reader, main_id: str) -> tuple[str, tuple[str, str]] | None:
        """The conversation with an operator, main's first, that was used last and still hears."""
        rows = reader.all(
            "SELECT agent_id, channel, conversation FROM conversations"
            " ORDER BY agent_id = ? DESC, last_at DESC LIMIT ?",
            (main_id, _LOOKED_AT),
        )
        spoken = _spoken_in(reader)
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
                    return agent_id, place
                is_deaf = True
        return desk

    def _is_operators(
        self, agent_id: str, channel: str, conversation: str, spoken: set[tuple[str, str, str]]
    ) -> bool:
        if channel == TELEGRAM:
            # The chat id of a private chat is the person's own id.
            return parse(conversation).chat_id in self._operator_ids()
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
