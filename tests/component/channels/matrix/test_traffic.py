"""Answers streamed and delivered, files, replies of commands, texts put in the place of others and
questions that are pressed, over rooms that fail at random, by a bot that dies at random: in the end
each is shown once and whole, and nothing else is left."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from agentsup.channels.core.errors import NotSent, OutcomeUnknown, RateLimited
from agentsup.channels.core.sending import DeliverySettings
from agentsup.channels.matrix.deliver import BotHandle, MatrixChannel
from agentsup.channels.matrix.live_answer import Streams
from agentsup.channels.matrix.menus import Menus
from agentsup.channels.matrix.render import render
from agentsup.channels.matrix.sender import Sender
from agentsup.commands import ChatCommands
from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox.delivery import Relay, outbox
from agentsup.mailbox.messages import Completion
from agentsup.model.agent import AgentSpec, Streaming
from agentsup.model.engine import Suspended
from agentsup.model.message import DeliverTo, Lease, MessageOutcome, Part
from agentsup.model.principal import PersonRole, Principal, PrincipalKind
from agentsup.observe import LiveHub
from agentsup.store import Database, Tx
from tests.support.loop_clock import LoopClock
from tests.support.mailbox_fixture import MailboxFixture
from tests.support.matrix_rooms import Rooms, Trouble
from tests.support.press_deps import press_deps

pytestmark = pytest.mark.virtual

AGENT = "ann"
CALLS = ("send", "edit", "reaction", "redact", "typing", "event", "upload")
ROOMS = [f"!room{n}:localhost" for n in range(3)]
SEEDS = range(12)
MESSAGES = 8
KINDS = ("answer", "answer", "answer", "file", "reply", "in place", "question")
ANN = Principal(PrincipalKind.PERSON, "ann", "Ann", PersonRole.OPERATOR)


async def _of(result: Awaitable[str]) -> str:
    return await result


class Traffic:
    """One agent's way out, its lives, and people who ask."""

    def __init__(self, mail: MailboxFixture, folder: Path, seed: int) -> None:
        self.mail = mail
        self.folder = folder
        self.chance = random.Random(seed)
        self.rooms = Rooms(mail.clock)
        self.agent_id = AGENT
        self.lives = 0
        self.is_calm = False
        self.shown: dict[str, list[str]] = {room: [] for room in ROOMS}
        """What must stand there in the end."""
        self.files: dict[str, bytes] = {}
        self.leases: dict[str, Lease] = {}
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
        self.sender = Sender(self.rooms, self.clock)  # type: ignore[arg-type]  # a twin of what is used
        self.streams = Streams(self, self.sender)  # type: ignore[arg-type]  # a twin of what is used
        channel = MatrixChannel(self.clock)
        settings = DeliverySettings(self.folder)
        commands = ChatCommands((), lambda: AGENT)
        self.menus = Menus(press_deps(self.mail, AGENT, commands, self.spec), self.sender)
        channel.attach(
            AGENT,
            BotHandle(
                self.rooms,  # type: ignore[arg-type]  # a twin of what is used
                self.sender,
                lambda: settings,
                self.streams.takeover,
                self.menus.offered,
            ),
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
        self.owner.spawn(self.menus.run(self.draining), name="menus:traffic")

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
                raise OutcomeUnknown("no answer in time") from None

        return go

    # -- trouble -----------------------------------------------------------------------------------

    def _trouble(self) -> Trouble:
        async def slow() -> None:
            await self.clock.sleep(self.chance.choice([0.5, 2.0, 8.0, 15.0]))

        kinds: list[Trouble] = [
            OutcomeUnknown("HTTP 502"),
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
            match self.chance.choice(KINDS):
                case "reply":
                    await self._reply(room, f"reply {number} of {room}")
                    self.shown[room].append(f"reply {number} of {room}")
                case "in place":
                    before_id = await self._until_shown(
                        room, await self._reply(room, f"before {number} of {room}")
                    )
                    told = f"after {number} of {room}"
                    await self._reply(room, told, replaces=before_id)
                    self.shown[room].append(told)
                case kind:
                    await self._ask(room, number, kind)

    async def _ask(self, room: str, number: int, kind: str) -> None:
        """A message of a person, and the turn that answers it."""
        to = DeliverTo("chat", agent_id=AGENT, channel="matrix", conversation=room)
        accepted = await self.mail.put(
            f"question {number}", AGENT, deliver_to=to, session_key=f"chat:matrix:{room}"
        )
        message_id = accepted.message_id
        lease = await self._leased(message_id)
        self.streams.accepted(message_id, room, f"$asked-{message_id}")
        words = [f"w{number}.{n}" for n in range(self.chance.choice([1, 5, 30, 9_000]))]
        await self._stream(room, message_id, words)
        if kind == "question":
            await self._question(room, number, lease)
            lease = await self._leased(message_id)
            await self._stream(room, message_id, words)
        answer = " ".join(words)
        parts: tuple[Part, ...] = ()
        if kind == "file":
            name = f"{number}-{room[1:6]}.bin"
            self.files[name] = data = f"file {name}".encode() * 50
            await asyncio.to_thread((self.folder / name).write_bytes, data)
            parts = (Part("file", path=name, name=name),)
            self.shown[room].append(name)
        await self.mail.mailbox.leases.complete(
            lease, Completion(MessageOutcome.OK, answer, parts=parts)
        )
        self.shown[room] += [piece.body for piece in render(answer)]

    async def _leased(self, message_id: str) -> Lease:
        while message_id not in self.leases:
            for each in await self.mail.claim(AGENT):
                self.leases[each.message.message_id] = each
        return self.leases.pop(message_id)

    async def _stream(self, room: str, message_id: str, words: list[str]) -> None:
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

    async def _question(self, room: str, number: int, lease: Lease) -> None:
        """The turn asks, and Ann presses as soon as she sees it; what a death cuts off is taken up
        again by the next life, as kept events are."""
        text = f"Which {number} of {room}?"
        ask = Suspended(b"", text, ("red", "blue"))
        question = await self.mail.db.write(
            lambda tx: self.mail.mailbox.questions.park_tx(tx, lease, ask)
        )
        rows = await self.mail.sql(
            "SELECT outbox_id FROM outbox WHERE body ->> '$.question_id' = ?", question.question_id
        )
        event_id = await self._until_shown(room, int(rows[0][0]))
        press_id = f"event:{question.question_id}"
        while True:
            pressing = self.owner.spawn(
                self.menus.on_reaction(room, event_id, "2️⃣", ANN, press_id), name="press"
            )
            await asyncio.wait({pressing})
            if not pressing.cancelled() and pressing.result():
                break
            await self.clock.sleep(1.0)
        self.shown[room].append(f"{text}\n\n✔ Ann: blue")

    async def _reply(self, room: str, text: str, **more: Any) -> int:
        """What a command says, or a press led to."""

        def add(tx: Tx) -> int:
            return outbox.add_tx(
                tx,
                agent_id=AGENT,
                channel="matrix",
                conversation=room,
                kind="notice",
                body={"text": text, "plain": True, **more},
                at=self.clock.now_ms(),
            )

        return await self.mail.db.write(add)

    async def _until_shown(self, room: str, outbox_id: int) -> str:
        """The event in which a part ends, once it was delivered."""
        while True:
            found = await self.mail.db.read(lambda r: outbox.platform_ids(r, outbox_id))
            if found:
                return found[-1]
            await self.clock.sleep(0.2)

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
    mail = await MailboxFixture.open(tmp_path)
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
            assert Counter(traffic.rooms.texts(room)) == Counter(traffic.shown[room]), room
        sent = [each for each in traffic.rooms.messages() if "url" in each.content]
        found = {each.content["body"]: traffic.rooms.files[each.content["url"]] for each in sent}
        assert found == traffic.files
        assert await mail.sql("SELECT * FROM outbox WHERE state <> 'delivered'") == []
        assert await traffic.rows("placeholders") == 0
        assert await traffic.rows("matrix_eyes") == 0
        eyes = [
            each
            for each in traffic.rooms.events.values()
            if each.kind == "m.reaction" and each.relation["key"] == "👀"
        ]
        assert all(event.is_redacted for event in eyes)
        assert not any(traffic.rooms.writing.values())
    finally:
        await people.close(1.0)
        await traffic.die()
        await traffic.wire.close(1.0)
        await mail.close()
