"""One bot on each platform, from what people say there to the messages that its agent has.

``start`` and ``stop`` are lives of the bot on one store. Ann and Ben are its people and Eve is a
stranger; each has a private chat with the bot.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar

from agentsup.catalogue import load as load_catalogue
from agentsup.channels.core import ChannelReport, ChannelState
from agentsup.channels.core.errors import OutcomeUnknown
from agentsup.channels.core.life import Bot
from agentsup.channels.core.receiving import Inbox
from agentsup.channels.core.receiving.messages import BotDependencies, ReceiveLimits
from agentsup.channels.core.sending import DeliverySettings, HttpPool
from agentsup.channels.matrix import MatrixChannel
from agentsup.channels.matrix import life as matrix
from agentsup.channels.matrix.client import MatrixClient, MatrixSession
from agentsup.channels.matrix.login import BotAccount
from agentsup.channels.telegram import SharedHttp, TelegramChannel
from agentsup.channels.telegram import life as telegram
from agentsup.channels.telegram.messages import ReceiveLimits as TelegramLimits
from agentsup.fakes.telegram import TelegramDriver
from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox.mail import DirectoryEntry
from agentsup.model.agent import AgentSpec
from agentsup.model.ids import AgentId
from agentsup.model.principal import PersonRole, Principal, PrincipalKind
from agentsup.model.secret import Secret
from agentsup.observe import LiveHub
from agentsup.store import EventLog, Tx
from tests.component.channels.telegram.bench import TOKEN
from tests.contract.platform import toy, toy_server
from tests.contract.platform.chats import FakeChatCommands
from tests.contract.platform.toy_server import Message, ToyServer
from tests.support.bound import BOUND_S
from tests.support.mailbox_fixture import MailboxFixture

AGENT = AgentId("agt_bob")
PEOPLE = {
    name: Principal(PrincipalKind.PERSON, name, name.capitalize(), PersonRole.OPERATOR)
    for name in ("ann", "ben")
}


class _Directory:
    def lookup(self, name: str) -> DirectoryEntry:
        return DirectoryEntry(agent_id=AGENT, name="bob", status="running")

    def by_id(self, agent_id: str) -> DirectoryEntry | None:
        return self.lookup("bob")

    def names(self) -> tuple[str, ...]:
        return ("bob",)


class Receiver(ABC):
    """A bot whose agent takes no turns by itself, and nothing is delivered."""

    channel: ClassVar[str]
    positions: ClassVar[tuple[str, ...]] = ()
    """The tables that hold how far the platform was read."""
    limits: ReceiveLimits

    def __init__(self, mail: MailboxFixture, folder: Path) -> None:
        self.mail = mail
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        self.commands = FakeChatCommands()
        self.reports: list[ChannelReport] = []
        self.told: list[str] = []
        """What the operator was told by another way than this bot."""
        self._owner = TaskOwner("receiver")
        self._life: asyncio.Task[None] | None = None

    # -- of the platform ---------------------------------------------------------------------------

    @abstractmethod
    def _bot(self, shared: BotDependencies) -> Bot[Any, Any]:
        """Make the bot of a life, with what bots on all platforms depend on."""

    @abstractmethod
    async def say(self, text: str, by: str = "ann") -> str:
        """A person writes to the bot; returns the platform's id of the message."""

    @abstractmethod
    async def edit(self, message_id: str, text: str) -> None:
        """Ann edits her message."""

    @abstractmethod
    async def poison(self) -> None:
        """The bot gets an update in Ann's chat that can't be read."""

    @abstractmethod
    async def fail(self) -> None:
        """Let every poll fail from now on."""

    @abstractmethod
    async def recover(self) -> None:
        """Let polls be answered again."""

    # -- lives -------------------------------------------------------------------------------------

    def _shared(self) -> BotDependencies:
        mail = self.mail

        async def tell(text: str) -> None:
            self.told.append(text)

        return BotDependencies(
            agent_id=AGENT,
            agent_name="bob",
            workspace=self.workspace,
            database=mail.db,
            mailbox=mail.mailbox,
            inbox=Inbox(
                mailbox=mail.mailbox,
                events=EventLog(mail.db),
                directory=_Directory(),
                commands=self.commands,
                hex_digits=lambda count: "a" * count,
            ),
            commands=self.commands,
            clock=mail.clock,
            entropy=mail.entropy,
            spec=lambda: AgentSpec("bob"),
            tell=tell,
            channel=toy.ToyChannel(),
            limits=self.limits,
            live=LiveHub(),
            report=self.reports.append,
            settings=lambda: DeliverySettings(self.workspace),
        )

    def begin(self) -> None:
        """Begin the next life of the bot."""
        self.reports.clear()
        self.draining = asyncio.Event()
        life = self._bot(self._shared()).run(lambda: None, self.draining)
        self._life = self._owner.spawn(life, name="bot:bob")

    async def start(self) -> None:
        """Begin the next life of the bot; returns once a poll was answered."""
        self.begin()
        await self.until(lambda: bool(self.reports and self.reports[-1].last_poll_at))

    async def ended(self) -> None:
        """Wait for a life that ends by itself; raises what ended it."""
        assert self._life is not None
        life, self._life = self._life, None
        async with asyncio.timeout(BOUND_S):
            await life

    async def stop(self) -> None:
        """The life ends in order."""
        self.draining.set()
        if self._life is not None:
            await self.ended()

    async def close(self) -> None:
        await self.stop()
        await self._owner.close(2.0)

    # -- looking -----------------------------------------------------------------------------------

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until it is so, while the life goes on."""
        async with asyncio.timeout(BOUND_S):
            while not is_so():
                assert self._life is not None
                if self._life.done():
                    self._life.result()
                    raise AssertionError("the life has ended")
                await asyncio.sleep(0.01)

    async def heard(self) -> list[str]:
        """The texts of the agent's messages, in order."""
        rows = await self.mail.sql("SELECT parts ->> '$[0].text' FROM messages ORDER BY seq")
        return [str(row[0]) for row in rows]

    async def until_heard(self, *texts: str) -> None:
        """Wait until the agent has exactly these messages, in this order."""
        async with asyncio.timeout(BOUND_S):
            while await self.heard() != list(texts):
                await asyncio.sleep(0.01)

    async def states(self) -> dict[str, int]:
        """How many stored updates are in each state."""
        return Counter(str(row[0]) for row in await self.mail.sql("SELECT state FROM received"))

    async def until_states(self, **counts: int) -> None:
        """Wait until the stored updates are in these states."""
        async with asyncio.timeout(BOUND_S):
            while await self.states() != counts:
                await asyncio.sleep(0.01)

    def is_reported(self, state: ChannelState) -> bool:
        return self.reports[-1].state is state

    async def position(self) -> dict[str, list[tuple[Any, ...]]]:
        """The rows that hold how far the platform was read."""
        return {table: await self.mail.sql(f"SELECT * FROM {table}") for table in self.positions}

    async def read_from(self, position: Mapping[str, list[tuple[Any, ...]]]) -> None:
        """Let the next life read from an earlier position on."""

        def step(tx: Tx) -> None:
            for table, rows in position.items():
                tx.execute(f"DELETE FROM {table}")
                for row in rows:
                    tx.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)

        await self.mail.db.write(step)


def own(shared: BotDependencies, **changes: Any) -> dict[str, Any]:
    """Return the arguments for a platform's dependencies."""
    return {each.name: getattr(shared, each.name) for each in fields(BotDependencies)} | changes


class TelegramReceiver(Receiver):
    """Private chats on the strict server."""

    channel = "telegram"
    positions = ("poll_offsets",)
    limits = TelegramLimits(poll_s=20.0, album_s=0.0, comment_s=0.0)

    async def enter(self, people: TelegramDriver, url: str) -> None:
        self.people, self.url, self.http = people, url, SharedHttp()
        self.bot_id = await people.add_bot(TOKEN, username="bob_bot")
        self.users = {name: await people.user(name) for name in ("ann", "ben", "eve")}
        self.chats = {
            name: await people.private(user, self.bot_id) for name, user in self.users.items()
        }

    def _who(self, spec: AgentSpec, user_id: int) -> Principal | None:
        names = {user: name for name, user in self.users.items()}
        return PEOPLE.get(names[user_id])

    def _bot(self, shared: BotDependencies) -> Bot[Any, Any]:
        return telegram.TelegramBot(
            telegram.TelegramDeps(
                **own(
                    shared,
                    channel=TelegramChannel(),
                    spec=lambda: AgentSpec("bob", telegram_base_url=self.url),
                    token=Secret(TOKEN),
                    events=EventLog(self.mail.db),
                    http=self.http,
                    people=self._who,
                    catalogue=load_catalogue(),
                )
            )
        )

    async def say(self, text: str, by: str = "ann") -> str:
        return str(await self.people.say(self.chats[by], text))

    async def edit(self, message_id: str, text: str) -> None:
        await self.people.edit(self.chats["ann"], int(message_id), text)

    async def poison(self) -> None:
        chat = {"id": self.users["ann"], "type": "private"}
        await self.people.inject(self.bot_id, {"message": {"message_id": "one", "chat": chat}})

    async def fail(self) -> None:
        await self.people.fault("server_error", method="getUpdates")

    async def recover(self) -> None:
        await self.people.clear_faults()

    async def close(self) -> None:
        await super().close()
        await self.http.close()
        assert await self.people.violations() == []


class Homeserver(MatrixClient):
    """A homeserver as one account sees it: a room for each person, and one stream of events."""

    user_id = "@bot:here"

    def __init__(self) -> None:
        self.stream: list[tuple[str, dict[str, Any]]] = []
        self.news = asyncio.Event()
        self.down = False

    def add(self, name: str, kind: str, now_ms: int, content: dict[str, Any]) -> str:
        event_id = f"$e{len(self.stream)}"
        common = {"event_id": event_id, "type": kind, "sender": f"@{name}:here"}
        self.stream.append((name, common | {"origin_server_ts": now_ms, "content": content}))
        self.news.set()
        return event_id

    def use(self, session: MatrixSession) -> None:
        """There is one session."""

    async def close(self) -> None:
        """Nothing is open."""

    async def whoami(self, access_token: str) -> MatrixSession:
        return MatrixSession(self.user_id, "DEVICE", access_token)

    async def display_name(self, user_id: str) -> str:
        return "Bob"

    async def members(self, room_id: str) -> dict[str, Any]:
        return {self.user_id: {}, f"@{room_id[1:]}": {}}

    async def read_marker(self, room_id: str, event_id: str, thread_id: str | None = None) -> None:
        """Nobody looks at it."""

    async def sync(
        self, since: str | None, *, filter_: Mapping[str, Any], wait_s: float, timeout_s: float
    ) -> dict[str, Any]:
        start = int(since or "0")
        if start == len(self.stream) and not self.down:
            self.news.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await self.news.wait()
            except TimeoutError:
                pass
        if self.down:
            raise OutcomeUnknown("502")
        rooms: dict[str, Any] = {}
        for name, event in self.stream[start:]:
            room = rooms.setdefault(f"!{name}:here", {"timeline": {"events": []}})
            room["timeline"]["events"].append(event)
        return {"next_batch": str(len(self.stream)), "rooms": {"join": rooms}}


class MatrixReceiver(Receiver):
    """Rooms in memory, in which a person is alone with the bot."""

    channel = "matrix"
    positions = ("matrix_sync", "matrix_rooms")
    limits = matrix.ReceiveLimits()

    def __init__(self, mail: MailboxFixture, folder: Path) -> None:
        super().__init__(mail, folder)
        self.server = Homeserver()
        self.session_file = folder / "session.json"

    def _bot(self, shared: BotDependencies) -> Bot[Any, Any]:
        account = BotAccount(
            "http://here", self.server.user_id, access_token=Secret("matrix-token")
        )
        return matrix.MatrixBot(
            matrix.MatrixDeps(
                **own(
                    shared,
                    channel=MatrixChannel(self.mail.clock),
                    account=account,
                    session_file=self.session_file,
                    http=HttpPool(),
                    people=lambda spec, user_id: PEOPLE.get(user_id[1:].partition(":")[0]),
                )
            )
        )

    def _add(self, name: str, content: dict[str, Any]) -> str:
        return self.server.add(name, "m.room.message", self.mail.clock.now_ms(), content)

    async def say(self, text: str, by: str = "ann") -> str:
        return self._add(by, {"msgtype": "m.text", "body": text})

    async def edit(self, message_id: str, text: str) -> None:
        new = {"msgtype": "m.text", "body": text}
        relation = {"rel_type": "m.replace", "event_id": message_id}
        self._add("ann", {**new, "m.new_content": new, "m.relates_to": relation})

    async def poison(self) -> None:
        self._add("ann", {"msgtype": "m.image", "body": "no address"})

    async def fail(self) -> None:
        self.server.down = True
        self.server.news.set()

    async def recover(self) -> None:
        self.server.down = False


class ToyReceiver(Receiver):
    """Chats of the toy platform."""

    channel = toy.CHANNEL
    limits = ReceiveLimits(max_file_bytes=1_000, poll_s=20.0)

    def __init__(self, mail: MailboxFixture, folder: Path) -> None:
        super().__init__(mail, folder)
        self.server = ToyServer(mail.clock.now_ms)

    def _bot(self, shared: BotDependencies) -> Bot[Any, Any]:
        facts = {"server": self.server, "token": toy_server.TOKEN, "people": PEOPLE.get}
        return toy.ToyBot(toy.ToyDeps(**own(shared, **facts)))

    async def say(self, text: str, by: str = "ann") -> str:
        message_id = self.server.put(Message(by, by, text))
        self.server.happens("message", by, by, message_id, text=text)
        return message_id

    async def edit(self, message_id: str, text: str) -> None:
        self.server.happens("edit", "ann", "ann", message_id, text=text)

    async def poison(self) -> None:
        self.server.happens("message", "ann", "ann", "m0", text=5)

    async def fail(self) -> None:
        self.server.down = OutcomeUnknown("502")
        self.server.news.set()

    async def recover(self) -> None:
        self.server.down = None
