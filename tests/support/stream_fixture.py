"""A turn as the store and the live hub know it, and a bot's life around its live answers."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from agentsup.kit.tasks import TaskOwner
from agentsup.model.agent import AgentSpec, Streaming
from agentsup.model.principal import OPERATOR
from agentsup.observe import LiveHub
from agentsup.store import Database, Tx
from tests.support.loop_clock import LoopClock

AGENT = "a_1"


class StreamedTurn:
    """The message ``m1`` of a chat, and its turn as the store and the live hub know it."""

    channel_name: ClassVar[str]
    agent_id = AGENT
    conversation: str
    """Where the message comes from, unless another is named."""

    def __init__(self, database: Database, clock: LoopClock, streaming: Streaming) -> None:
        self.database = database
        self.clock = clock
        self.streaming = streaming
        self.live = LiveHub()

    @property
    def spec(self) -> Callable[[], AgentSpec]:
        return lambda: AgentSpec("bob", streaming=self.streaming)

    async def sql(self, text: str, *params: Any) -> list[tuple[Any, ...]]:
        def run(tx: Tx) -> list[tuple[Any, ...]]:
            rows = [tuple(row) for row in tx.all(text, params)]
            for topic in ("events", f"agent:{self.agent_id}", "done:m1"):
                tx.touch(topic)
            return rows

        return await self.database.write(run)

    async def accept(self, conversation: str = "", *, deliver_agent: str = "") -> None:
        """Store the message, whose turn runs."""
        await self.sql(
            "INSERT INTO sessions (session_id, agent_id, key, created_at, updated_at)"
            " VALUES ('s', ?, 'k', 1, 1)",
            self.agent_id,
        )
        to = {
            "kind": "chat",
            "agent_id": deliver_agent or self.agent_id,
            "channel": self.channel_name,
            "conversation": conversation or self.conversation,
        }
        await self.sql(
            "INSERT INTO messages (message_id, agent_id, session_id, kind, lane, priority, state,"
            " parts, principal, deliver_to, root_id, accepted_at)"
            " VALUES ('m1', ?, 's', 'chat', 'interactive', 1, 'leased', '[]', ?, ?, 'm1', 1)",
            self.agent_id,
            json.dumps(OPERATOR.to_json()),
            json.dumps(to),
        )

    async def become(self, state: str, outcome: str | None = None) -> None:
        await self.sql(
            "UPDATE messages SET state = ?, outcome = ? WHERE message_id = 'm1'", state, outcome
        )


class StreamsFixture(StreamedTurn, ABC):
    """A bot's life around its live answers; a platform's bench adds where they are shown.

    It stands for the dependencies of the streams.
    """

    streams: Any
    """The streams of this life."""

    def __init__(self, database: Database, clock: LoopClock, streaming: Streaming) -> None:
        super().__init__(database, clock, streaming)
        self.owner = TaskOwner("test")

    @abstractmethod
    def _streams(self) -> Any:
        """Make those of another life."""

    def start(self) -> None:
        self.draining = asyncio.Event()
        self.streams = self._streams()
        self.life = self.owner.spawn(self.streams.run(self.draining), name="streams:test")

    async def drain(self) -> None:
        self.draining.set()
        await self.life

    async def close(self) -> None:
        await self.drain()
        await self.owner.close(1.0)

    async def crash(self) -> None:
        """The process dies in the midst of whatever it does."""
        for task in {self.life, *self.streams._owner.tasks}:
            task.cancel()
        await asyncio.wait({self.life})
        self.live = LiveHub()
        self.start()

    async def turn(self, conversation: str = "") -> None:
        """A turn of the accepted message begins."""
        await self.clock.sleep(0)
        self.live.begin(
            self.agent_id, f"{self.channel_name}:{conversation or self.conversation}", "m1"
        )

    async def say(self, text: str, *, then_s: float = 0.0) -> None:
        self.live.delta("m1", text)
        await self.clock.sleep(then_s)

    async def answer(self, text: str, state: str = "pending", *ids: str) -> None:
        await self.sql(
            "INSERT INTO outbox (message_id, agent_id, channel, conversation, part_no, kind, body,"
            " state, created_at, platform_ids) VALUES ('m1', 'a_1', ?, ?, 0, 'answer', ?, ?, 1, ?)",
            self.channel_name,
            self.conversation,
            json.dumps({"text": text}),
            state,
            json.dumps(ids),
        )
        await self.become("done", "ok")

    async def settle(self, state: str, *ids: str) -> None:
        await self.sql("UPDATE outbox SET state = ?, platform_ids = ?", state, json.dumps(ids))
