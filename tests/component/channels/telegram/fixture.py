"""One agent's Telegram bot on real parts: store, mailbox, inbox, relay, client, and a fake server.

People are played over raw HTTP (``rig.people``). The agent answers ``echo: <text>``, unless a gate or
another answer is set. ``rig.start()`` and ``rig.stop()`` are lives of the bot, ``rig.die()`` is a
life that ends without a word; the store and the fake outlive them all.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agentsup.catalogue import load as load_catalogue
from agentsup.channels.core import ChannelReport
from agentsup.channels.core.receiving import Inbox
from agentsup.channels.core.sending import DeliverySettings
from agentsup.channels.telegram import SharedHttp, TelegramChannel
from agentsup.channels.telegram.life import TelegramBot, TelegramDeps
from agentsup.channels.telegram.messages import ReceiveLimits
from agentsup.commands.dispatch import ChatCommands, Command
from agentsup.fakes.telegram import Bot, FakeTelegram, TelegramDriver
from agentsup.kit.clock import SystemClock
from agentsup.kit.entropy import SystemEntropy
from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox import Mailbox
from agentsup.mailbox.delivery import Relay
from agentsup.mailbox.mail import DirectoryEntry
from agentsup.mailbox.messages import Completion, MailboxLimits
from agentsup.mailbox.work import Pump, Work
from agentsup.model.agent import AgentSpec
from agentsup.model.control import CommandButton, CommandContext, CommandReply
from agentsup.model.errors import NotFound
from agentsup.model.ids import AgentId, InstanceId
from agentsup.model.message import LaneName, MessageOutcome, Part
from agentsup.model.pairing import Asking, NoPairing
from agentsup.model.principal import PersonRole, Principal, PrincipalKind
from agentsup.model.secret import Secret
from agentsup.observe import LiveHub
from agentsup.store import Database, EventLog
from tests.support.bound import BOUND_S
from tests.support.empty_store import lay_store

AGENT_ID = AgentId("agt_bob")
AGENT_NAME = "bob"
TOKEN = "777:rig-secret"
QUICK = ReceiveLimits(poll_s=20.0, album_s=0.3, comment_s=0.0, waiting_note_s=0.3, drain_s=1.0)


class LateClock(SystemClock):
    """A real clock whose wall time can be pushed on."""

    offset_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.offset_ms


class _Directory:
    def lookup(self, name: str) -> DirectoryEntry:
        if name != AGENT_NAME:
            raise NotFound(f"no agent {name}")
        return DirectoryEntry(agent_id=AGENT_ID, name=AGENT_NAME, status="running")

    def by_id(self, agent_id: str) -> DirectoryEntry | None:
        return self.lookup(AGENT_NAME) if agent_id == AGENT_ID else None

    def names(self) -> tuple[str, ...]:
        return (AGENT_NAME,)


@dataclass
class Agent:
    """What answers. While ``gate`` is not set, a turn that has begun waits."""

    mailbox: Mailbox
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    begun: list[str] = field(default_factory=list)
    seen: list[tuple[str, str, tuple[Part, ...]]] = field(default_factory=list)
    """Conversation, text and parts of each message, in the order of their turns."""
    answer: Callable[[str], str] = lambda text: f"echo: {text}"

    async def handle(self, work: Work) -> None:
        message = work.lease.message
        self.begun.append(message.text)
        await self.gate.wait()
        self.seen.append((message.deliver_to.conversation, message.text, message.parts))
        await self.mailbox.leases.complete(
            work.lease, Completion(MessageOutcome.OK, text=self.answer(message.text))
        )

    @property
    def texts(self) -> list[str]:
        return [text for _, text, _ in self.seen]


class TelegramFixture:
    """See the module. ``ann`` is allowed and an operator; ``chat`` is her private chat."""

    def __init__(
        self, folder: Path, database: Database, fake: FakeTelegram, clock: LateClock
    ) -> None:
        self.folder = folder
        self.fake = fake
        self.database = database
        self.clock = clock
        self.entropy = SystemEntropy(clock)
        self.mailbox = Mailbox(
            database, clock, self.entropy, boot_id="boot", limits=MailboxLimits(queue_limit=500)
        )
        self.agent = Agent(self.mailbox)
        self.agent.gate.set()
        self.commands = ChatCommands(
            (
                Command("ping", "[WORD]", "answers", self._ping),
                Command("stop", "", "ends", self._stop),
                Command("cancel", "ID", "takes a message back", self._cancel),
            ),
            lambda: AGENT_ID,
        )
        self.ran: list[str] = []
        self.shared: list[bool] = []
        """Of each ping, whether others read what it shows."""
        self.live = LiveHub()
        self.channel = TelegramChannel()
        self.http = SharedHttp()
        self.reports: list[ChannelReport] = []
        self.told: list[str] = []
        self.people: TelegramDriver
        self.bot: Bot
        self.ann = 0
        self.chat = ""
        self.spec = AgentSpec(name=AGENT_NAME, group_mention_only=True)
        self.limits = QUICK
        self.pairing: Asking = NoPairing()
        self._owner = TaskOwner("rig")
        self._draining = asyncio.Event()
        self._life: asyncio.Task[None] | None = None
        self._news = asyncio.Event()

    # -- the agent's side --------------------------------------------------------------------------

    async def _ping(self, context: CommandContext, rest: str) -> CommandReply:
        self.ran.append(f"ping {rest}")
        self.shared.append(context.is_shared)
        rows = ((CommandButton("again", "/ping again"),),)
        return CommandReply(f"pong {rest} for {context.principal.label}", buttons=rows)

    async def _stop(self, context: CommandContext, rest: str) -> CommandReply:
        self.ran.append("stop")
        return CommandReply("stopped")

    async def _cancel(self, context: CommandContext, rest: str) -> CommandReply:
        await self.mailbox.control.cancel(rest, context.principal)
        return CommandReply("taken back")

    def who(self, spec: AgentSpec, user_id: int) -> Principal | None:
        if user_id not in spec.allowed_user_ids:
            return None
        role = PersonRole.OPERATOR if user_id == self.ann else PersonRole.USER
        return Principal(PrincipalKind.PERSON, f"telegram:{user_id}", f"P{user_id}", role)

    def allow(self, *user_ids: int, groups: tuple[int, ...] = ()) -> None:
        """Let people (and groups) in, beside those who are."""
        self.spec = replace(
            self.spec,
            allowed_user_ids=(*self.spec.allowed_user_ids, *user_ids),
            allowed_group_ids=(*self.spec.allowed_group_ids, *groups),
        )

    # -- lives -------------------------------------------------------------------------------------

    def deps(self) -> TelegramDeps:
        events = EventLog(self.database)
        workspace = self.folder / "workspace"

        async def tell(text: str) -> None:
            self.told.append(text)
            self._news.set()

        def report(each: ChannelReport) -> None:
            self.reports.append(each)
            self._news.set()

        return TelegramDeps(
            agent_id=AGENT_ID,
            agent_name=AGENT_NAME,
            workspace=workspace,
            token=Secret(TOKEN),
            spec=lambda: self.spec,
            database=self.database,
            mailbox=self.mailbox,
            inbox=Inbox(
                mailbox=self.mailbox,
                events=events,
                directory=_Directory(),
                commands=self.commands,
                hex_digits=lambda count: "a" * count,
            ),
            commands=self.commands,
            events=events,
            live=self.live,
            clock=self.clock,
            entropy=self.entropy,
            channel=self.channel,
            http=self.http,
            people=self.who,
            report=report,
            tell=tell,
            pairing=self.pairing,
            settings=lambda: DeliverySettings(workspace=workspace),
            catalogue=load_catalogue(),
            limits=self.limits,
        )

    async def start(self) -> None:
        """The next life of the bot; returns once a poll was answered."""
        self._draining = asyncio.Event()
        self.reports.clear()
        bot = TelegramBot(self.deps())
        self._life = self._owner.spawn(bot.run(lambda: None, self._draining), name="bot:bob")
        self._life.add_done_callback(lambda _: self._news.set())
        await self.until(lambda: bool(self.reports and self.reports[-1].last_poll_at))

    async def stop(self) -> None:
        """The life ends in order."""
        self._draining.set()
        if self._life is not None:
            await self._life
            self._life = None

    async def stop_when_over(self) -> None:
        """Wait for a life that ends by itself; raises what ended it."""
        assert self._life is not None
        life, self._life = self._life, None
        await life

    async def die(self) -> None:
        """The life ends at once, whatever it was doing."""
        if self._life is not None:
            self._life.cancel()
            await asyncio.wait({self._life})
            self._life = None

    async def until(self, is_so: Callable[[], bool], timeout_s: float = BOUND_S) -> None:
        """Wait for a report or a word to the operator that makes it so."""
        async with asyncio.timeout(timeout_s):
            while not is_so():
                if self._life is not None and self._life.done():
                    self._life.result()
                    raise AssertionError("the bot's life has ended")
                self._news.clear()
                await self._news.wait()

    @staticmethod
    def quick(**changes: Any) -> ReceiveLimits:
        return replace(QUICK, **changes)

    async def message_update(self, text: str) -> dict[str, Any]:
        """The body of an update in which Ann says ``text``, to be injected."""
        return {
            "message": {
                "message_id": 9_000 + len(text),
                "date": self.clock.now_ms() // 1000,
                "chat": {"id": self.ann, "type": "private", "first_name": "Ann"},
                "from": {"id": self.ann, "is_bot": False, "first_name": "Ann"},
                "text": text,
            }
        }

    # -- looking -----------------------------------------------------------------------------------

    async def rows(self, sql: str, *params: Any) -> list[tuple[Any, ...]]:
        return await self.database.read(lambda reader: [tuple(r) for r in reader.all(sql, params)])

    async def states(self) -> dict[str, int]:
        """Kept updates by state."""
        return dict(await self.rows("SELECT state, COUNT(*) FROM received GROUP BY 1"))

    def spec_with(self, **changes: Any) -> AgentSpec:
        return replace(self.spec, **changes)

    async def updates_done(self, count: int, timeout_s: float = BOUND_S) -> None:
        """Wait until that many updates were handled."""
        async with asyncio.timeout(timeout_s):
            while (await self.states()).get("done", 0) < count:
                await asyncio.sleep(0.01)

    async def settled(self, timeout_s: float = BOUND_S) -> None:
        """Wait until no update is left to do and no message is open."""
        async with asyncio.timeout(timeout_s):
            while await self.rows(
                "SELECT 1 FROM received WHERE state = 'received' UNION ALL SELECT 1 FROM messages"
                " WHERE state IN ('queued', 'leased', 'parked')"
            ):
                await asyncio.sleep(0.01)

    async def delivered(self, timeout_s: float = BOUND_S) -> None:
        """Wait until nothing is left to deliver."""
        async with asyncio.timeout(timeout_s):
            while await self.rows("SELECT 1 FROM outbox WHERE state = 'pending'"):
                await asyncio.sleep(0.01)


@asynccontextmanager
async def rigged(folder: Path, *, limits: str = "enforce") -> AsyncIterator[TelegramFixture]:
    """A rig whose relay and agent run, with a bot that was not started yet."""
    clock = LateClock()
    database = await Database.open(lay_store(folder / "state.db"), clock=clock)
    try:
        async with FakeTelegram(folder / "fake", limits=limits) as fake:
            rig = TelegramFixture(folder, database, fake, clock)
            rig.bot = fake.bot(TOKEN, username="bob_bot")
            rig.spec = replace(rig.spec, telegram_base_url=fake.url)
            async with TelegramDriver(fake.url) as people:
                rig.people = people
                rig.ann = await people.user("Ann")
                rig.chat = await people.private(rig.ann, rig.bot.bot_id)
                rig.allow(rig.ann)
                async with _working(rig):
                    yield rig
                await rig.die()
            await rig.http.close()
    finally:
        await database.close()


@asynccontextmanager
async def _working(rig: TelegramFixture) -> AsyncIterator[None]:
    """The agent and the relay beside the bot."""
    owner, draining = TaskOwner("rig parts"), asyncio.Event()
    relay = Relay(rig.database, rig.clock, rig.entropy, {"telegram": rig.channel}, boot_id="boot")
    pump = Pump(
        mailbox=rig.mailbox,
        agent_id=AGENT_ID,
        instance_id=InstanceId("ins_bob"),
        slots={LaneName.INTERACTIVE: 8, LaneName.PEER: 1, LaneName.BACKGROUND: 1},
        handler=rig.agent,
    )
    owner.spawn(relay.run(lambda: None, draining), name="relay:rig")
    owner.spawn(pump.run(lambda: None, draining), name="pump:rig")
    try:
        yield
    finally:
        await rig.die()
        await owner.close(2.0)
