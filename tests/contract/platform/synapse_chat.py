"""A room at a real homeserver, read by a person's client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agentsup.channels.core.sending import HttpPool
from tests.contract.platform.chats import MatrixChat
from tests.contract.platform.faulty_client import FaultyMatrixClient
from tests.support.mailbox_fixture import MailboxFixture
from tests.support.matrix_driver import MatrixPerson
from tests.support.matrix_view import RoomView
from tests.support.synapse import Synapse

PASSWORD = "a long and lovely password"


class SynapseChat(MatrixChat):
    """A room of one person with the bot. Each process of the bot signs in as the same device."""

    client: FaultyMatrixClient

    def __init__(self, mail: MailboxFixture, folder: Path, synapse: Synapse) -> None:
        super().__init__(mail, folder)
        self.synapse = synapse
        self.reacted: dict[tuple[str, str], str] = {}

    async def enter(self, person: MatrixPerson, bot_id: str) -> None:
        """Let the bot sign in and join a room of the person."""
        self.person, self.bot_id = person, bot_id
        http = HttpPool()
        client = FaultyMatrixClient(self.synapse.url, http=http)
        self.session = await client.login(bot_id, PASSWORD, device_id="CONTRACT")
        client.use(self.session)
        self.conversation = await person.room(invite=[bot_id])
        await client.join(self.conversation)
        await http.close()

    def _connect(self) -> None:
        self.http = HttpPool()
        self.client = FaultyMatrixClient(self.synapse.url, http=self.http)
        self.client.use(self.session)
        super()._connect()

    async def _disconnect(self) -> None:
        await self.sender.close()
        await self.client.close()
        await self.http.close()

    async def _view(self) -> RoomView:
        await self.person.sync(timeout_ms=0)
        return self.person.view(self.conversation)

    async def shown(self) -> list[tuple[str, dict[str, Any]]]:
        await self._view()
        found = self.person.messages(self.conversation, by=self.bot_id)
        return [(one.event_id, one.content) for one in found]

    async def is_typing(self) -> bool:
        return self.bot_id in (await self._view()).writing

    async def hear(self) -> None:
        self.said = await self.person.say(self.conversation, "hello")
        self.running.accepted("m1", self.conversation, self.said)

    async def reactions(self) -> list[str]:
        seen = (await self._view()).get(self.said)
        return [] if seen is None else [key for key, who in seen.reactions.items() if who]

    async def _react(self, event_id: str, key: str) -> str:
        before = self.reacted.get((event_id, key))
        if before is not None:  # who presses again takes the first reaction back
            await self.person.redact(self.conversation, before)
        reaction = await self.person.react(self.conversation, event_id, key)
        self.reacted[event_id, key] = reaction
        return reaction

    async def go_away(self) -> None:
        await self.person.kick(self.conversation, self.bot_id)
