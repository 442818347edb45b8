"""A relay with the Telegram channel, from the outbox to what people see in the fake."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

from agentsup.channels.core.sending.deliver import DeliverySettings
from agentsup.channels.telegram.client import SharedHttp, TelegramClient
from agentsup.channels.telegram.deliver import BotHandle, TelegramChannel
from agentsup.channels.telegram.flood import Rates
from agentsup.channels.telegram.sender import Sender
from agentsup.fakes.entropy import SeededEntropy
from agentsup.fakes.telegram import FakeTelegram, TelegramDriver
from agentsup.kit.clock import SystemClock
from agentsup.mailbox.delivery import outbox
from agentsup.mailbox.delivery.attempt import RelayLimits
from agentsup.mailbox.delivery.relay import Relay
from agentsup.model.secret import Secret
from agentsup.store import Database, Reader, StoreOptions, Tx
from tests.support.bound import BOUND_S
from tests.support.empty_store import lay_store

TOKEN = "100:secret"
AGENT = "ag_1"
FAST = Rates(
    bot=(1_000, 0.1),
    group=(1_000, 0.1),
    private=(1_000, 0.1),
    private_edits=(1_000, 0.1),
    light=(1_000, 0.1),
)
"""For what isn't about limits."""


class ForwardClock(SystemClock):
    """The clock of bot and fake: the machine's, which a test may put forward between two lives."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def now_ms(self) -> int:
        return super().now_ms() + round(self.ahead_s * 1000)

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead_s


class StreamFixture:
    """One bot, one relay; people are played by ``people``."""

    def __init__(
        self,
        folder: Path,
        url: str,
        people: TelegramDriver,
        bot_id: int,
        rates: Rates | None = None,
        clock: ForwardClock | None = None,
    ) -> None:
        self.folder = folder
        self.url = url
        self.people = people
        self.bot_id = bot_id
        self.clock = clock or ForwardClock()
        self.entropy = SeededEntropy(self.clock, 7)
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        self.settings = DeliverySettings(self.workspace)
        self.rates = rates
        self.boots = 0
        self._begin()
        self.database: Database

    def _begin(self) -> None:
        """What a process has in memory."""
        self.http = SharedHttp(rates=self.rates)
        self.channel = TelegramChannel()
        self.client = TelegramClient(Secret(TOKEN), self.url, http=self.http)
        self.sender = Sender(self.client, self.clock)

    async def reborn(self) -> None:
        """The next process: what the former one had in memory is gone, the store is there."""
        await self._end()
        self._begin()
        self.attach()

    async def _end(self) -> None:
        await self.sender.close()
        await self.client.close()
        await self.http.close()

    async def open(self) -> Self:
        options = StoreOptions(reserve_bytes=0)
        self.database = await Database.open(
            lay_store(self.folder / "state.db"), clock=self.clock, options=options
        )
        self.attach()
        return self

    def attach(self, **more: Any) -> None:
        handle = BotHandle(self.client, self.sender, lambda: self.settings, **more)
        self.channel.attach(AGENT, handle)

    async def in_place(self, outbox_id: int, platform_id: int | None) -> None:
        await self.database.write(
            lambda tx: outbox.deliver_into_message_tx(tx, outbox_id, platform_id)
        )

    async def close(self) -> None:
        await self._end()
        await self.database.close()

    @asynccontextmanager
    async def relaying(self, **limits: Any) -> AsyncIterator[Relay]:
        """One life of the relay, drained at its end."""
        relay, task, draining = await self.start_relay(**limits)
        try:
            yield relay
        finally:
            draining.set()
            await task

    async def start_relay(self, **limits: Any) -> tuple[Relay, asyncio.Task[None], asyncio.Event]:
        self.boots += 1
        relay = Relay(
            self.database,
            self.clock,
            self.entropy,
            {self.channel.name: self.channel},
            boot_id=f"boot{self.boots}",
            limits=RelayLimits(**limits),
        )
        ready, draining = asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(relay.run(ready.set, draining))
        await ready.wait()
        return relay, task, draining

    async def add(
        self, conversation: str | int, text: str = "", kind: str = "answer", **body: Any
    ) -> int:
        """Put a part into the outbox."""

        def add(tx: Tx) -> int:
            return outbox.add_tx(
                tx,
                agent_id=AGENT,
                channel="telegram",
                conversation=str(conversation),
                kind=kind,
                body={"text": text, **body},
                at=self.clock.now_ms(),
                message_id="m1",
                session_id="s1",
            )

        return await self.database.write(add)

    async def row(self, outbox_id: int) -> dict[str, Any]:
        def look(reader: Reader) -> dict[str, Any]:
            row = reader.one("SELECT * FROM outbox WHERE outbox_id = ?", (outbox_id,))
            assert row is not None
            return dict(row)

        return await self.database.read(look)

    async def until(
        self, outbox_id: int, is_so: Callable[[dict[str, Any]], bool], timeout_s: float = BOUND_S
    ) -> dict[str, Any]:
        """The row once it is so; each commit that touches the outbox is looked at."""
        changed = asyncio.Event()
        unlisten = [
            self.database.listen(topic, changed.set)
            for topic in ("events", outbox.topic_of("telegram"))
        ]
        try:
            async with asyncio.timeout(timeout_s):
                while not is_so(row := await self.row(outbox_id)):
                    changed.clear()
                    try:
                        async with asyncio.timeout(0.05):
                            await changed.wait()
                    except TimeoutError:
                        continue
                return row
        finally:
            for stop in unlisten:
                stop()

    async def settled(self, outbox_id: int, timeout_s: float = BOUND_S) -> dict[str, Any]:
        """The row once it is no longer pending."""
        return await self.until(outbox_id, lambda row: row["state"] != "pending", timeout_s)

    async def person(self, name: str = "Ann") -> tuple[int, str]:
        """A person who has talked to the bot: chat id and key."""
        user = await self.people.user(name)
        chat = await self.people.private(user, self.bot_id)
        await self.people.say(chat, "/start")
        return user, chat


@asynccontextmanager
async def benched(
    folder: Path, *, limits: str = "enforce", rates: Rates | None = None
) -> AsyncIterator[StreamFixture]:
    """A fake, people and a bench; at the end the fake must have seen nothing malformed."""
    clock = ForwardClock()
    async with (
        FakeTelegram(folder / "fake", limits=limits, clock=clock) as fake,
        TelegramDriver(fake.url) as people,
    ):
        bot_id = await people.add_bot(TOKEN, username="main_bot")
        bench = await StreamFixture(folder, fake.url, people, bot_id, rates, clock).open()
        try:
            yield bench
            assert await people.violations() == []
        finally:
            await bench.close()
