"""Answers streamed and delivered over rooms that fail at random, by a bot that dies at random: in the
end each answer is shown once and whole, and nothing else is left."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from agentsup.channels.matrix.deliver import BotHandle, MatrixChannel, MatrixSettings
from agentsup.channels.matrix.errors import FateUnknown, NotSent, RateLimited
from agentsup.channels.matrix.render import render
from agentsup.channels.matrix.sender import Sender
from agentsup.channels.matrix.stream import Streams
from agentsup.kit.clock import LoopClock
from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox.relay import Relay
from agentsup.model.agent import AgentSpec, Streaming
from agentsup.model.message import DeliverTo
from agentsup.observe.live import LiveHub
from agentsup.store.database import Database
from agentsup.testing.mail import MailRig
from agentsup.testing.matrix_rooms import Rooms, Trouble

pytestmark = pytest.mark.virtual

AGENT = "ann"
CALLS = ("send", "edit", "reaction", "redact", "typing", "event")
ROOMS = [f"!room{n}:localhost" for n in range(3)]
SEEDS = range(12)
MESSAGES = 8


async def _of(result: Awaitable[str]) -> str:
    return await result


class Traffic:
    """One agent's way out, its lives, and people who ask."""

    def __init__(self, mail: MailRig, folder: Path, seed: int) -> None:
        self.mail = mail
        self.folder = folder
        self.chance = random.Random(seed)
        self.rooms = Rooms(mail.clock)
        self.agent_id = AGENT
        self.lives = 0
        self.is_calm = False
        self.answers: dict[str, list[str]] = {room: [] for room in ROOMS}
        self.wire = TaskOwner("wire", on_error=lambda task, error: None)
        self.rooms.send = self._over_the_wire(self.rooms.send)  # type: ignore[method-assign, assignment]  # slow
        self.rooms.redact = self._over_the_wire(self.rooms.redact)  # type: ignore[method-assign, assignment]

    @property
    def database(self) -> Database:
        return self.mail.db

    @property
    def clock(self) -> LoopClock:
        return self.mail.clock

    def spec(self) -> AgentSpec:
        return AgentSpec(AGENT, streaming=Streaming(edit_interval_s=1.0, min_chars=5, idle_ms=200))

    def begin(self) -> None:
        """A process begins."""
        self.lives += 1
        self.live = LiveHub()
        self.sender = Sender(self.rooms, self.clock)
        self.streams = Streams(self, self.sender)
        channel = MatrixChannel(self.clock)
        settings = MatrixSettings(self.folder)
        channel.attach(
            AGENT, BotHandle(self.rooms, self.sender, lambda: settings, self.streams.takeover)
        )
        relay = Relay(
            self.mail.db,
            self.clock,
            self.mail.entropy,
            {"matrix": channel},
            boot_id=f"boot{self.lives}",
        )
        self.owner = TaskOwner("life", on_error=lambda task, error: None)
        self.draining = asyncio.Event()
        self.owner.spawn(relay.run(lambda: None, self.draining), name="relay:traffic")
        self.owner.spawn(self.streams.run(self.draining), name="streams:traffic")

    async def die(self) -> None:
        """The process ends without a word; what it had on the line may still be done."""
        for task in {*self.owner.tasks, *self.streams._owner.tasks}:
            task.cancel()
        await self.owner.close(1.0)
        await self.streams._owner.close(1.0)

    def _over_the_wire(self, call: Callable[..., Awaitable[str]]) -> Callable[..., Awaitable[str]]:
        """What is on its way is done, whether or not somebody still waits for it."""

        async def go(*given: Any, timeout_s: float = 20.0, **more: Any) -> str:
            under_way = self.wire.spawn(_of(call(*given, **more)), name="call")
            try:
                async with asyncio.timeout(timeout_s):
                    return await asyncio.shield(under_way)
            except TimeoutError:
                raise FateUnknown("no answer in time") from None

        return go

    # -- trouble -----------------------------------------------------------------------------------

    def _trouble(self) -> Trouble:
        async def slow() -> None:
            await self.clock.sleep(self.chance.choice([0.5, 2.0, 8.0, 15.0]))

        kinds: list[Trouble] = [
            FateUnknown("HTTP 502"),
            NotSent("no way there"),
            RateLimited(self.chance.choice([0.5, 2.0, 8.0])),
            slow,
            slow,
        ]
        return self.chance.choice(kinds)

    async def upset(self) -> None:
        """Put trouble in the way, now and then."""
        while not self.is_calm:
            await self.clock.sleep(self.chance.uniform(0.1, 3.0))
            call = self.chance.choice(CALLS)
            side = self.chance.choice([self.rooms.before, self.rooms.after])
            trouble = self._trouble()
            if side is self.rooms.after and isinstance(trouble, NotSent | RateLimited):
                continue  # after its effect the server says no such thing
            side.setdefault(call, []).append(trouble)

    async def kill_now_and_then(self) -> None:
        while not self.is_calm:
            await self.clock.sleep(self.chance.uniform(4.0, 25.0))
            await self.die()
            self.begin()

    # -- people ------------------------------------------------------------------------------------

    async def talk(self, room: str) -> None:
        for number in range(MESSAGES):
            await self.clock.sleep(self.chance.uniform(0.0, 4.0))
            to = DeliverTo("chat", agent_id=AGENT, channel="matrix", conversation=room)
            accepted = await self.mail.put(
                f"question {number}", AGENT, deliver_to=to, session_key=f"chat:matrix:{room}"
            )
            message_id = accepted.message_id
            leases = {lease.message.message_id: lease for lease in await self.mail.claim(AGENT)}
            lease = leases[message_id]
            self.streams.accepted(message_id, room, f"$asked-{message_id}")
            words = [f"w{number}.{n}" for n in range(self.chance.choice([1, 5, 30, 9_000]))]
            hub, said = self.live, 0
            hub.begin(AGENT, f"matrix:{room}", message_id)
            while said < len(words):
                if self.live is not hub:  # another life: the turn is run again
                    hub, said = self.live, 0
                    hub.begin(AGENT, f"matrix:{room}", message_id)
                step = max(1, len(words) // 6)
                hub.delta(message_id, " ".join(words[said : said + step]) + " ")
                said += step
                await self.clock.sleep(self.chance.uniform(0.0, 2.0))
            hub.end(message_id)
            answer = " ".join(words)
            await self.mail.finish(lease, answer)
            self.answers[room].append(answer)

    # -- the end -----------------------------------------------------------------------------------

    async def calm(self) -> None:
        """No more trouble; all that is left to do is done."""
        self.is_calm = True
        self.rooms.before.clear()
        self.rooms.after.clear()
        await self.clock.sleep(900.0)

    async def rows(self, table: str) -> int:
        ((count,),) = await self.mail.sql(f"SELECT count(*) FROM {table}")
        return int(count)


@pytest.mark.parametrize("seed", SEEDS)
async def test_each_answer_is_shown_once_and_whole_and_nothing_else(
    tmp_path: Path, seed: int
) -> None:
    mail = await MailRig.open(tmp_path)
    traffic = Traffic(mail, tmp_path, seed)
    traffic.begin()
    people = TaskOwner("people")
    try:
        upset = people.spawn(traffic.upset(), name="upset")
        kills = people.spawn(traffic.kill_now_and_then(), name="kills")
        talks = [people.spawn(traffic.talk(room), name=f"talk:{room}") for room in ROOMS]
        await asyncio.gather(*talks)
        upset.cancel()
        kills.cancel()
        await asyncio.wait({upset, kills})
        await traffic.die()
        traffic.begin()
        await traffic.calm()
        for room in ROOMS:
            wanted = [piece.body for text in traffic.answers[room] for piece in render(text)]
            assert Counter(traffic.rooms.texts(room)) == Counter(wanted), room
        assert await mail.sql("SELECT * FROM outbox WHERE state <> 'delivered'") == []
        assert await traffic.rows("matrix_streams") == 0
        assert await traffic.rows("matrix_eyes") == 0
        left = [e for e in traffic.rooms.events.values() if e.kind == "m.reaction"]
        assert all(event.is_redacted for event in left)
        assert not any(traffic.rooms.writing.values())
    finally:
        await people.close(1.0)
        await traffic.die()
        await traffic.wire.close(1.0)
        await mail.close()
