"""Word to the operator about a bot in trouble, past the bot that has it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from agentsup.channels.telegram.place import parse
from agentsup.daemon.roster import Roster
from agentsup.kit.clock import Clock
from agentsup.mailbox.notices import FALLBACK_CHANNEL, FALLBACK_CONVERSATION, notify_tx
from agentsup.model.agent import MAIN
from agentsup.store.database import Database, Reader, Tx

TELEGRAM = "telegram"
_LOOKED_AT = 200


class Alarm:
    """Finds the conversation in which an operator is most likely to read now."""

    def __init__(
        self,
        *,
        database: Database,
        clock: Clock,
        roster: Roster,
        connected: Callable[[], frozenset[str]],
        operator_ids: Callable[[], frozenset[int]],
    ) -> None:
        """``connected()`` are the agents whose bots hear; ``operator_ids()`` are people's ids."""
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
        operators, connected = self._operator_ids(), self._connected()
        rows = reader.all(
            "SELECT agent_id, channel, conversation FROM conversations"
            " WHERE channel IN (?, ?) ORDER BY agent_id = ? DESC, last_at DESC LIMIT ?",
            (TELEGRAM, FALLBACK_CHANNEL, main_id, _LOOKED_AT),
        )
        console: tuple[str, tuple[str, str]] | None = None
        is_deaf = False
        for row in rows:
            agent_id, place = row["agent_id"], (row["channel"], row["conversation"])
            if place[0] == FALLBACK_CHANNEL:
                # Only the operator's token opens the console.
                if agent_id == main_id and console is None:
                    console = (agent_id, place)
                    if not is_deaf:
                        break
            # The chat id of a private chat is the person's own id.
            elif parse(place[1]).chat_id in operators:
                if agent_id in connected:
                    return agent_id, place
                is_deaf = True
        return console
