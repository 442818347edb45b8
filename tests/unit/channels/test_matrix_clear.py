"""Nothing is sent in clear into a room that its people believe to be encrypted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio

from agentsup.channels.core.errors import ChatGone, NotSent, OutcomeUnknown, RequestRefused
from agentsup.channels.core.sending import DeliverySettings
from agentsup.channels.matrix.deliver import BotHandle, MatrixChannel
from agentsup.channels.matrix.encryption_guard import EncryptionGuard
from agentsup.channels.matrix.errors import Encrypted
from agentsup.channels.matrix.received import RoomNews, row_owner, store_tx
from agentsup.channels.matrix.sender import Sender
from agentsup.fakes.entropy import SeededEntropy
from agentsup.store import Database
from tests.support.loop_clock import LoopClock
from tests.support.matrix_rooms import Rooms
from tests.support.outbox_fixture import OutboxFixture, virtual_store

pytestmark = pytest.mark.virtual

AGENT, ROOM, OTHER = "agt_1", "!r:localhost", "!s:localhost"
OWNER = row_owner(AGENT, "@bot:localhost")
MEGOLM = {"algorithm": "m.megolm.v1.aes-sha2"}


class Fixture(OutboxFixture):
    """One bot with its relay, over rooms in memory."""

    agent_id = AGENT
    within_s = 600.0

    def __init__(self, folder: Path, database: Database, clock: LoopClock) -> None:
        super().__init__(clock)
        self.database = database
        self.rooms = Rooms(clock)
        self.told: list[str] = []
        self.channel: MatrixChannel = MatrixChannel(clock)
        self.settings = DeliverySettings(folder)
        self.begin()

    def begin(self) -> None:
        """What a life has in memory."""
        deps: Any = SimpleNamespace(
            agent_id=AGENT,
            agent_name="bob",
            database=self.database,
            clock=self.clock,
            entropy=SeededEntropy(self.clock, 8),
            tell=self._tell,
        )
        self.clear = EncryptionGuard(deps, self.rooms, OWNER)  # type: ignore[arg-type]  # a twin of what is used
        self.sender = Sender(self.rooms, self.clock, self.clear.check)  # type: ignore[arg-type]  # a twin of what is used
        self.channel.attach(AGENT, BotHandle(self.rooms, self.sender, lambda: self.settings))  # type: ignore[arg-type]  # a twin of what is used

    async def _tell(self, text: str) -> None:
        self.told.append(text)

    async def answer(self, text: str, room: str = ROOM) -> tuple[str, str]:
        """Say it through the outbox; its state and detail at the end."""

        row = await self.settled(await self.add(room, text))
        return row["state"], row["detail"]

    async def synced(self, *, encrypted: bool, left: bool = False) -> None:
        """What a sync puts on record about the room."""
        news = [] if left else [RoomNews(ROOM, (), "$1", is_encrypted=encrypted)]
        gone = [ROOM] if left else []
        await self.database.write(lambda tx: store_tx(tx, OWNER, news, since="s", left=gone, at=1))

    def lookups(self) -> int:
        return len(self.rooms.times("state"))


@pytest_asyncio.fixture
async def context(tmp_path: Path) -> AsyncIterator[Fixture]:
    async with virtual_store(tmp_path) as (database, clock):
        made = Fixture(tmp_path, database, clock)
        async with made.relaying():
            yield made


async def test_a_room_that_was_encrypted_after_we_joined_gets_no_answer(context: Fixture) -> None:
    assert (await context.answer("in the open"))[0] == "delivered"
    await context.synced(encrypted=True)
    state, detail = await context.answer("a secret")
    assert state == "dropped"
    assert "is encrypted" in detail
    assert (await context.answer("another secret"))[0] == "dropped"
    await context.clock.sleep(5.0)
    assert "in the open" in context.rooms.texts()
    (notice,) = [text for text in context.rooms.texts() if text != "in the open"]
    assert "encrypted" in notice, "its people read once why"
    assert "secret" not in str([each.content for each in context.rooms.messages()])
    (told,) = context.told
    assert ROOM in told
    assert (await context.answer("elsewhere", OTHER))[0] == "delivered"


async def test_what_no_sync_has_told_yet_is_looked_up(context: Fixture) -> None:
    """The daemon was away, or came back to the room, and answers are waiting."""
    context.rooms.room_states[ROOM, "m.room.encryption"] = MEGOLM
    assert (await context.answer("a secret"))[0] == "dropped"
    assert len(context.told) == 1
    context.begin()
    assert (await context.answer("a secret"))[0] == "dropped", "also in the next life"
    await context.clock.sleep(5.0)
    assert len(context.rooms.messages(ROOM)) == 1, "what is said in the room is said once for good"


async def test_it_is_looked_up_once_and_again_after_somebody_came_or_went(context: Fixture) -> None:
    for _ in range(3):
        await context.answer("hello")
    assert context.lookups() == 1
    await context.synced(encrypted=True)
    await context.synced(encrypted=False, left=True)  # what was on record of it is gone
    context.clear.forget(ROOM)
    context.rooms.room_states[ROOM, "m.room.encryption"] = MEGOLM
    assert (await context.answer("a secret"))[0] == "dropped"


async def test_a_change_while_it_is_looked_up_is_not_missed(context: Fixture) -> None:
    async def comes() -> None:
        context.clear.forget(ROOM)

    context.rooms.after["state"] = [comes]
    await context.answer("hello")
    await context.answer("hello")
    assert context.lookups() == 2


async def test_while_nobody_can_say_nothing_is_sent_and_nothing_lost(context: Fixture) -> None:
    context.rooms.before["state"] = [OutcomeUnknown("502")] * 5
    assert (await context.answer("hello"))[0] == "delivered"
    assert context.lookups() == 6
    assert context.rooms.texts() == ["hello"]
    context.begin()
    context.rooms.before["state"] = [OutcomeUnknown("502")]
    with pytest.raises(NotSent):
        await context.sender.send(ROOM, "m.room.message", {"body": "x"}, txn_id="t")
    context.rooms.before["state"] = [ChatGone(403, "not in room", "M_FORBIDDEN")]
    assert (await context.answer("hello"))[0] == "dropped"


@pytest.mark.parametrize("kind", ["new", "edit"])
async def test_streams_and_their_edits_stay_out_and_courtesies_go(
    context: Fixture, kind: str
) -> None:
    await context.synced(encrypted=True)
    relation: dict[str, Any] = {"rel_type": "m.replace", "event_id": "$e1"}
    content: dict[str, Any] = {"body": "x", "m.new_content": {"body": "x"}}
    if kind == "edit":
        content["m.relates_to"] = relation
    with pytest.raises(Encrypted) as caught:
        await context.sender.send(ROOM, "m.room.message", content, txn_id="t", droppable=True)
    assert isinstance(caught.value, RequestRefused), "for good: nobody tries it again"
    await context.sender.typing(ROOM, True, 1000)
    assert len(context.rooms.times("typing")) == 1


async def test_a_word_that_was_cut_off_is_said_with_the_next_message(
    context: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await context.synced(encrypted=True)
    with monkeypatch.context() as patch:
        patch.setattr(context.clear._deps, "tell", lambda text: asyncio.Event().wait())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await context.clear.check(ROOM)
    for _ in range(2):
        with pytest.raises(Encrypted):
            await context.clear.check(ROOM)
    assert len(context.told) == 1
