"""Keeps messages out of encrypted rooms, where people believe that nobody else can read.

The bot can only send clear text. A room may become encrypted after the bot joined it, so before
each message the guard checks what the syncs have recorded and, once in each life and after each
change of members, the room's own state.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from agentsup.catalogue import words
from agentsup.channels.core.errors import NotSent, OutcomeUnknown
from agentsup.channels.core.receiving.messages import BotServices
from agentsup.channels.core.receiving.rows import RowOwner
from agentsup.channels.core.sending.buttons import ChatNotices
from agentsup.channels.matrix import received
from agentsup.channels.matrix.client import MatrixClient
from agentsup.channels.matrix.errors import Encrypted
from agentsup.channels.matrix.received import CHANNEL
from agentsup.kit.log import get_logger
from agentsup.model.errors import AgentsupError, Overloaded, StoreUnavailable
from agentsup.store import Tx

_log = get_logger(__name__)

IN_CLEAR: Final = "in_clear"
"""In a part's body: it only says that the room is encrypted, so it may be sent there."""
_STATE = "m.room.encryption"
_REMEMBERED = 2000


class EncryptionGuard:
    """Checks for one bot in one life whether a room may get messages."""

    def __init__(self, deps: BotServices, client: MatrixClient, owner: RowOwner) -> None:
        self._deps = deps
        self._client = client
        self._owner = owner
        self._notices = ChatNotices(deps.agent_id, CHANNEL, deps.clock, deps.entropy)
        self._asked: dict[str, None] = {}
        """Rooms that were not encrypted by their own state. A sync reports a later change."""
        self._turns: dict[str, int] = {}
        self._notified: set[str] = set()

    def forget(self, room_id: str) -> None:
        """Ask the homeserver again about this room: its members changed, perhaps the bot itself."""
        self._asked.pop(room_id, None)
        self._turns[room_id] = self._turns.get(room_id, 0) + 1

    async def check(self, room_id: str) -> None:
        """Return if a message may go to that room.

        Raises ``Encrypted`` if not, after one note to the operator and one in the room. Raises
        ``NotSent`` or another ``PlatformError`` while that is not known; nothing was sent then.
        """
        if not await self._is_encrypted(room_id):
            return
        await self._say(room_id)
        raise Encrypted(room_id)

    async def _is_encrypted(self, room_id: str) -> bool:
        try:
            if await self._deps.database.read(
                received.is_encrypted, self._owner, room_id, name="matrix.clear"
            ):
                return True
        except (StoreUnavailable, Overloaded) as error:
            raise NotSent(f"whether the room is encrypted is not known: {error.message}") from None
        if room_id in self._asked:
            return False
        turn = self._turns.get(room_id, 0)
        try:
            found = await self._client.state(room_id, _STATE)
        except OutcomeUnknown as error:
            raise NotSent(f"whether the room is encrypted is not known: {error.message}") from None
        if found is None and self._turns.get(room_id, 0) == turn:
            while len(self._asked) >= _REMEMBERED:
                del self._asked[next(iter(self._asked))]
            self._asked[room_id] = None
        return found is not None

    async def _say(self, room_id: str) -> None:
        if room_id in self._notified:
            return
        self._notified.add(room_id)
        deps = self._deps
        try:
            await deps.database.write(
                note_encrypted_tx, self._notices, self._owner, room_id, name="matrix.encrypted"
            )
            await deps.tell(
                f"The Matrix room {room_id} has been encrypted, which {deps.agent_name} can't "
                "read or write; what was meant for it is not sent. Talk to "
                f"{self._owner.account} in a room without encryption."
            )
        except asyncio.CancelledError:
            self._notified.discard(room_id)  # the caller waits no longer; the next check says it
            raise
        except (StoreUnavailable, Overloaded) as error:
            self._notified.discard(room_id)
            _log.warning(f"nobody could be told that {room_id} is encrypted: {error}")
        except AgentsupError as error:
            _log.warning(f"nobody could be told that {room_id} is encrypted: {error}")


def note_encrypted_tx(
    tx: Tx, notices: ChatNotices, owner: RowOwner, room_id: str, language: str = ""
) -> None:
    """Record that the room is encrypted and say so there, once only, also over restarts."""
    if received.mark_encryption_notified_tx(tx, owner, room_id, notices.clock.now_ms()):
        text = words(language)("matrix.encrypted", me=owner.account)
        facts: dict[str, Any] = {IN_CLEAR: True}
        notices.add_tx(tx, room_id, text, **facts)
