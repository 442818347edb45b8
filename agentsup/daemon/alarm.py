"""Word to the operator about a bot in trouble, past the bot that has it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from agentsup.channels.telegram.place import parse
from agentsup.daemon.roster import Roster
from agentsup.kit.clock import Clock
from agentsup.mailbox.notices import latest_conversation, notify_tx
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
        """A notice in main's conversation, or, while main's own bot is deaf, in a private chat of
        an operator with another agent's bot. Raises ``StoreUnavailable``."""
        await self._database.write(partial(self._tell_tx, text=text), name="alarm.tell")

    def _tell_tx(self, tx: Tx, *, text: str) -> None:
        main_id = self._roster.entry(MAIN).agent_id
        connected = self._connected()
        agent_id: str = main_id
        place = latest_conversation(tx, main_id)
        if place[0] == TELEGRAM and main_id not in connected:
            agent_id, place = self._other(tx, connected) or (main_id, place)
        notify_tx(
            tx,
            message_id="",
            agent_id=agent_id,
            session_id="",
            text=text,
            at=self._clock.now_ms(),
            place=place,
        )

    def _other(
        self, reader: Reader, connected: frozenset[str]
    ) -> tuple[str, tuple[str, str]] | None:
        operators = self._operator_ids()
        rows = reader.all(
            "SELECT agent_id, channel, conversation FROM conversations WHERE channel = ?"
            " ORDER BY last_at DESC LIMIT ?",
            (TELEGRAM, _LOOKED_AT),
        )
        for row in rows:
            # The chat id of a private chat is the person's own id.
            chat_id = parse(row["conversation"]).chat_id
            if row["agent_id"] in connected and chat_id in operators:
                return row["agent_id"], (row["channel"], row["conversation"])
        return None
