"""Parts of an outbox and the relay that sends them, around one platform's channel."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

from agentsup.fakes.entropy import SeededEntropy
from agentsup.kit.clock import Clock
from agentsup.kit.entropy import Entropy
from agentsup.mailbox.delivery import Relay, outbox
from agentsup.mailbox.delivery.attempt import RelayLimits
from agentsup.model.channel import Channel
from agentsup.store import Database, Reader, Tx
from tests.support.empty_store import lay_store
from tests.support.inline_runner import InlineRunner
from tests.support.loop_clock import LoopClock


@asynccontextmanager
async def virtual_store(folder: Path) -> AsyncIterator[tuple[Database, LoopClock]]:
    """An empty store in virtual time, closed at the end."""
    clock = LoopClock()
    path = folder / "state.db"
    runner = InlineRunner(path, clock=clock, entropy=SeededEntropy(clock, 3), max_delay_s=0)
    database = await Database.open(lay_store(path), clock=clock, runner=runner)
    yield database, clock
    await database.close()


class OutboxFixture:
    """Of one agent; a platform's bench adds its channel and its chat."""

    agent_id: ClassVar[str]
    within_s: ClassVar[float]
    """How long a part may take at most."""
    database: Database
    channel: Channel

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.entropy: Entropy = SeededEntropy(clock, 7)
        self.boots = 0

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
                agent_id=self.agent_id,
                channel=self.channel.name,
                conversation=str(conversation),
                kind=kind,
                body={"text": text, **body},
                at=self.clock.now_ms(),
                message_id="m1",
            )

        return await self.database.write(add)

    async def row(self, outbox_id: int) -> dict[str, Any]:
        def look(reader: Reader) -> dict[str, Any]:
            row = reader.one("SELECT * FROM outbox WHERE outbox_id = ?", (outbox_id,))
            assert row is not None
            return dict(row)

        return await self.database.read(look)

    async def until(
        self, outbox_id: int, is_so: Callable[[dict[str, Any]], bool], within_s: float = 0.0
    ) -> dict[str, Any]:
        """The row once it is so; each commit that touches the outbox is looked at."""
        changed = asyncio.Event()
        unlisten = [
            self.database.listen(topic, changed.set)
            for topic in ("events", outbox.topic_of(self.channel.name))
        ]
        try:
            async with asyncio.timeout(within_s or self.within_s):
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

    async def settled(self, outbox_id: int, within_s: float = 0.0) -> dict[str, Any]:
        """The row once it is no longer pending."""
        return await self.until(outbox_id, lambda row: row["state"] != "pending", within_s)
