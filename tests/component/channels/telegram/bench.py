"""A relay with the Telegram channel, from the outbox to what people see in the fake."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

from agentsup.channels.core.sending import DeliverySettings
from agentsup.channels.telegram import SharedHttp, TelegramClient
from agentsup.channels.telegram.deliver import BotHandle, TelegramChannel
from agentsup.channels.telegram.flood import Rates
from agentsup.channels.telegram.sender import Sender
from agentsup.fakes.telegram import FakeTelegram, TelegramDriver
from agentsup.kit.clock import SystemClock
from agentsup.mailbox.delivery import outbox
from agentsup.model.secret import Secret
from agentsup.store import Database, StoreOptions
from tests.support.bound import BOUND_S
from tests.support.empty_store import lay_store
from tests.support.outbox_fixture import OutboxFixture

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


class StreamFixture(OutboxFixture):
    """One bot, one relay; people are played by ``people``."""

    agent_id = AGENT
    within_s = BOUND_S

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
        self.clock: ForwardClock
        super().__init__(clock or ForwardClock())
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        self.settings = DeliverySettings(self.workspace)
        self.rates = rates
        self._begin()

    def _begin(self) -> None:
        """What a process has in memory."""
        self.http = SharedHttp(rates=self.rates)
        self.channel: TelegramChannel = TelegramChannel()
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
