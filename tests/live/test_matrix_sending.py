"""What goes out to a real homeserver: once over kills and lost answers, accepted whatever it holds,
shown in one event while it is written."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agentsup.channels.core.sending import DeliverySettings, HttpPool
from agentsup.channels.matrix.client import MatrixClient, MatrixSession
from agentsup.channels.matrix.deliver import BotHandle, MatrixChannel
from agentsup.channels.matrix.live_answer import Streams
from agentsup.channels.matrix.outgoing import content_of, edit_of
from agentsup.channels.matrix.render import render
from agentsup.channels.matrix.sender import Sender
from agentsup.kit.clock import SystemClock
from agentsup.kit.entropy import SystemEntropy
from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox.delivery import Relay, outbox
from agentsup.model.agent import AgentSpec, Streaming
from agentsup.model.principal import OPERATOR
from agentsup.observe import LiveHub
from agentsup.store import Database, Reader, StoreOptions, Tx
from tests.live.conftest import PASSWORD, Person, Register
from tests.support.bound import BOUND_S
from tests.support.faulty_proxy import FaultyProxy
from tests.support.matrix_driver import MatrixPerson
from tests.support.matrix_view import Seen
from tests.support.synapse import Synapse

AGENT = "agt_live"
SEND = r"/send/m\.room\.message"
LONG = "\n\n".join(f"Paragraph {n}: " + "lorem <ipsum> & " * 260 for n in range(24))
TRICKY = (
    "\"quotes\" 'and' <tags> & 😀👨‍👩‍👧‍👦 שלום \\ \t " * 1_200
    + "\n\n```py\n"
    + "x = '<1>' # 😀\n" * 2_000
    + "```\n\n|a|b|\n|-|-|\n"
    + "|<x>|**y** & 😀|\n" * 900
)


class Bot:
    """One account with its relay; a kill is the end of all that a process has in memory."""

    def __init__(self, url: str, database: Database, workspace: Path, person: MatrixPerson) -> None:
        self.url = url
        self.database = database
        self.workspace = workspace
        self.person = person
        self.clock = SystemClock()
        self.entropy = SystemEntropy(self.clock)
        self.live = LiveHub()
        self.agent_id = AGENT
        self.streaming = Streaming(edit_interval_s=1.0, min_chars=5, idle_ms=100)
        self.session: MatrixSession
        self.room = ""
        self.boots = 0

    def spec(self) -> AgentSpec:
        return AgentSpec("live", streaming=self.streaming)

    async def begin(self) -> None:
        """A process begins."""
        self.boots += 1
        self.http = HttpPool()
        self.client = MatrixClient(self.url, http=self.http)
        self.client.use(self.session)
        self.sender = Sender(self.client, self.clock)
        self.streams = Streams(self, self.sender)  # type: ignore[arg-type]  # a twin of what is used
        self.channel = MatrixChannel(self.clock)
        settings = DeliverySettings(self.workspace)
        self.channel.attach(
            AGENT,
            BotHandle(self.client, self.sender, lambda: settings, self.streams.takeover),
        )
        relay = Relay(
            self.database, self.clock, self.entropy, {"matrix": self.channel},
            boot_id=f"boot{self.boots}",
        )  # fmt: skip
        self.owner = TaskOwner("bot", on_error=lambda task, error: None)
        self.draining = asyncio.Event()
        ready = asyncio.Event()
        self.owner.spawn(relay.run(ready.set, self.draining), name="relay:live")
        self.owner.spawn(self.streams.run(self.draining), name="streams:live")
        await ready.wait()

    async def kill(self) -> None:
        """The process ends without a word."""
        await self.owner.close(2.0)
        await self.streams._owner.close(2.0)
        await self.http.close()

    async def add(self, text: str, kind: str = "answer", message_id: str = "", **body: Any) -> int:
        def add(tx: Tx) -> int:
            if message_id:
                tx.execute(
                    "UPDATE messages SET state = 'done', outcome = 'ok' WHERE message_id = ?",
                    (message_id,),
                )
                tx.touch(f"done:{message_id}")
            return outbox.add_tx(
                tx,
                agent_id=AGENT,
                channel="matrix",
                conversation=self.room,
                kind=kind,
                body={"text": text, **body},
                at=self.clock.now_ms(),
                message_id=message_id,
            )

        return await self.database.write(add)

    async def row(self, outbox_id: int) -> dict[str, Any]:
        def look(reader: Reader) -> dict[str, Any]:
            row = reader.one("SELECT * FROM outbox WHERE outbox_id = ?", (outbox_id,))
            assert row is not None
            return dict(row)

        return await self.database.read(look)

    async def settled(self, outbox_id: int, timeout_s: float = 30.0) -> dict[str, Any]:
        changed = asyncio.Event()
        unlisten = self.database.listen("events", changed.set)
        try:
            async with asyncio.timeout(timeout_s):
                while (row := await self.row(outbox_id))["state"] == "pending":
                    await changed.wait()
                    changed.clear()
                return row
        finally:
            unlisten()

    async def accept(self, message_id: str) -> None:
        """A message of the person, as the mailbox has it while its turn runs."""
        to = {
            "kind": "chat", "agent_id": AGENT, "channel": "matrix", "conversation": self.room,
        }  # fmt: skip

        def step(tx: Tx) -> None:
            tx.execute(
                "INSERT OR IGNORE INTO sessions (session_id, agent_id, key, created_at, updated_at)"
                " VALUES ('s', ?, 'k', 1, 1)",
                (AGENT,),
            )
            tx.execute(
                "INSERT INTO messages (message_id, agent_id, session_id, kind, lane, priority,"
                " state, parts, principal, deliver_to, root_id, accepted_at)"
                " VALUES (?, ?, 's', 'chat', 'interactive', 1, 'leased', '[]', ?, ?, ?, 1)",
                (
                    message_id,
                    AGENT,
                    json.dumps(OPERATOR.to_json()),
                    json.dumps(to),
                    message_id,
                ),
            )

        await self.database.write(step)

    def texts(self) -> list[str]:
        return self.person.texts(self.room, by=self.session.user_id)

    async def wait_text(self, text: str) -> Seen:
        return await self.person.wait_text(self.room, text, 20.0, by=self.session.user_id)


@asynccontextmanager
async def bot_at(
    url: str, folder: Path, account: Register, person: MatrixPerson
) -> AsyncIterator[Bot]:
    """A bot in a room with the person."""
    options = StoreOptions(reserve_bytes=0)
    database = await Database.open(folder / "state.db", clock=SystemClock(), options=options)
    workspace = folder / "workspace"
    workspace.mkdir()
    bot = Bot(url, database, workspace, person)
    http = HttpPool()
    client = MatrixClient(url, http=http)
    bot.session = await client.login(await account("bot"), PASSWORD, device_id="SENDING")
    client.use(bot.session)
    bot.room = await person.room(invite=[bot.session.user_id])
    await client.join(bot.room)
    await http.close()
    await bot.begin()
    try:
        yield bot
    finally:
        bot.draining.set()
        await bot.kill()
        await database.close()


@pytest.fixture
async def bot(
    proxy: FaultyProxy, tmp_path: Path, account: Register, person: Person
) -> AsyncIterator[Bot]:
    async with bot_at(proxy.url, tmp_path, account, await person("ann")) as made:
        yield made


async def test_each_piece_shows_once_over_kills_between_send_and_mark(
    bot: Bot, proxy: FaultyProxy
) -> None:
    """The server has the event, its answer never comes, the process ends; and once more."""
    part = await bot.add(LONG)
    pieces = len(render(LONG))
    assert pieces >= 4
    for _ in range(pieces):
        fault = proxy.fault("late", path=SEND, method="PUT", count=1, seconds=60.0)
        async with asyncio.timeout(BOUND_S):
            while not proxy.hits("late") and (await bot.row(part))["state"] == "pending":
                await asyncio.sleep(0.02)
        await bot.kill()
        proxy.clear(fault)
        await bot.begin()
        async with asyncio.timeout(BOUND_S):
            before = (await bot.row(part))["progress"]
            while (row := await bot.row(part))["progress"] == before and row["state"] == "pending":
                await asyncio.sleep(0.02)
    row = await bot.settled(part)
    assert row["state"] == "delivered"
    last = await bot.wait_text(render(LONG)[-1].body)
    texts = bot.texts()
    assert len(texts) == pieces
    assert "".join("".join(texts).split()) == "".join(LONG.split())
    assert json.loads(row["platform_ids"])[-1] == last.event_id


async def test_the_server_takes_whatever_an_answer_holds(bot: Bot) -> None:
    row = await bot.settled(await bot.add(TRICKY))
    assert (row["state"], row["attempts"]) == ("delivered", 1)
    pieces = render(TRICKY)
    await bot.wait_text(pieces[-1].body)
    seen = [m for m in bot.person.messages(bot.room) if m.sender == bot.session.user_id]
    assert [message.html for message in seen] == [piece.html for piece in pieces]
    edits = [edit_of(content_of(piece), seen[0].event_id) for piece in pieces]
    for number, edit in enumerate(edits):
        await bot.client.send(bot.room, "m.room.message", edit, txn_id=f"edit-{number}")


async def test_a_kill_in_a_stream_leaves_one_answer_and_nothing_half(
    bot: Bot, proxy: FaultyProxy
) -> None:
    """Killed when the server has the first event and the bot does not know it."""
    said = await bot.person.say(bot.room, "go")
    await bot.accept("m1")
    bot.streams.accepted("m1", bot.room, said)
    proxy.fault("late", path=SEND, method="PUT", count=1, seconds=60.0)
    bot.live.begin(AGENT, f"matrix:{bot.room}", "m1")
    bot.live.delta("m1", "The first words of many")
    half = await bot.person.wait_message(
        bot.room, lambda seen: seen.text.startswith("The first"), by=bot.session.user_id
    )
    await bot.kill()
    proxy.clear()
    bot.live = LiveHub()
    await bot.begin()
    row = await bot.settled(await bot.add("The whole answer.", message_id="m1"))
    assert row["state"] == "delivered"
    await bot.wait_text("The whole answer.")
    await bot.person.wait_seen(bot.room, half.event_id, lambda seen: seen.is_redacted)
    assert bot.texts() == ["The whole answer."]
    await bot.person.wait_seen(bot.room, said, lambda seen: "👀" not in seen.reactions)


async def test_with_the_limits_of_a_fresh_homeserver_a_stream_delays_no_answer(
    tmp_path: Path,
) -> None:
    """Ten events, then one in five seconds, for all that an account sends."""
    limits = {"rc_message": {"per_second": 0.2, "burst_count": 10}}
    loop = asyncio.get_running_loop()
    async with Synapse(tmp_path / "synapse", more=limits) as synapse:
        ann = await synapse.register("ann", PASSWORD)

        async def account(name: str) -> str:
            return await synapse.register(name, PASSWORD)

        async with (
            MatrixPerson(synapse.url, ann, PASSWORD) as person,
            bot_at(synapse.url, tmp_path, account, person) as bot,
        ):
            await bot.accept("m1")
            bot.live.begin(AGENT, f"matrix:{bot.room}", "m1")
            for number in range(60):
                bot.live.delta("m1", f"word{number} ")
                await asyncio.sleep(0.3)
            bot.live.end("m1")
            ended = loop.time()
            await bot.settled(await bot.add("The whole answer.", message_id="m1"))
            assert loop.time() - ended < 2.0
            await bot.wait_text("The whole answer.")
            assert bot.texts() == ["The whole answer."]
