"""P2 and P3 over Matrix: sent again and shown once, in its own place, and delayed by nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agentsup.channels.core.errors import OutcomeUnknown, RateLimited
from agentsup.channels.core.sending.settings import DeliverySettings
from agentsup.channels.matrix import deliver, sender
from agentsup.channels.matrix.deliver import BotHandle, MatrixChannel
from agentsup.channels.matrix.sender import Sender
from agentsup.kit.tasks import TaskOwner
from agentsup.mailbox.delivery import outbox
from agentsup.mailbox.delivery.relay import Relay
from tests.component.proofs.proof import Claim, Proof, Removal
from tests.support.mailbox_fixture import MailboxFixture
from tests.support.matrix_rooms import Rooms

P2, P3 = Claim("P2"), Claim("P3")
ROOM = "!room:localhost"
DAY_S = 26 * 3_600.0


class Bot:
    """What a process has of a Matrix bot: way out, channel, relay."""

    def __init__(self, mail: MailboxFixture, rooms: Rooms, folder: Path) -> None:
        self.mail, self.rooms, self.folder = mail, rooms, folder
        self.boots = 0
        self._owner = TaskOwner("bot", on_error=lambda task, error: None)

    async def begin(self) -> None:
        self.boots += 1
        self.sender = Sender(self.rooms, self.mail.clock)  # type: ignore[arg-type]  # a twin of what is used
        channel = MatrixChannel(self.mail.clock)
        settings = DeliverySettings(self.folder)
        channel.attach("ann", BotHandle(self.rooms, self.sender, lambda: settings))  # type: ignore[arg-type]  # a twin of what is used
        relay = Relay(
            self.mail.db,
            self.mail.clock,
            self.mail.entropy,
            {"matrix": channel},
            boot_id=f"boot{self.boots}",
        )
        self._owner = TaskOwner("bot", on_error=lambda task, error: None)
        ready = asyncio.Event()
        self._owner.spawn(relay.run(ready.set, asyncio.Event()), name="relay:proof")
        await ready.wait()

    async def kill(self) -> None:
        await self._owner.close(1.0)

    async def add(self, text: str, kind: str = "answer", **body: Any) -> int:
        return await self.mail.db.write(
            lambda tx: outbox.add_tx(
                tx,
                agent_id="ann",
                channel="matrix",
                conversation=ROOM,
                kind=kind,
                body={"text": text, **body},
                at=self.mail.clock.now_ms(),
                message_id="m1",
            )
        )


@asynccontextmanager
async def a_bot(folder: Path) -> AsyncIterator[Bot]:
    mail = await MailboxFixture.open(folder)
    bot = Bot(mail, Rooms(mail.clock), folder)
    await bot.begin()
    try:
        yield bot
    finally:
        await bot.kill()
        await mail.close()


async def a_piece_is_sent_again_and_shown_once(home: Path) -> None:
    """Lost answers, a kill before the mark; and a kill so long ago that nobody remembers."""
    home.mkdir(exist_ok=True)
    async with a_bot(home) as bot:
        bot.rooms.after["send"] = [OutcomeUnknown("cut"), OutcomeUnknown("cut")]
        await bot.add("one")
        await bot.mail.clock.sleep(60.0)
        bot.rooms.after["send"] = [asyncio.Event().wait]
        await bot.add("two")
        await bot.mail.clock.sleep(1.0)
        await bot.kill()
        await bot.begin()
        await bot.mail.clock.sleep(60.0)
        bot.rooms.after["send"] = [asyncio.Event().wait]
        await bot.add("three")
        await bot.mail.clock.sleep(1.0)
        await bot.kill()
        await bot.mail.clock.sleep(DAY_S)
        bot.rooms.by_txn.clear()
        await bot.begin()
        await bot.mail.clock.sleep(600.0)
        for text in ("one", "two", "three"):
            times = bot.rooms.texts().count(text)
            P2.holds(times == 1, f"“{text}” is shown {times} times")


async def a_stream_delays_no_answer(home: Path) -> None:
    """A homeserver that counts all events of an account refuses the edits of a stream."""
    home.mkdir(exist_ok=True)
    async with a_bot(home) as bot:
        budget = _Budget(bot, per_s=0.2, burst=5.0)
        edits = TaskOwner("edits", on_error=lambda task, error: None)
        edits.spawn(budget.edit(), name="edits")
        await bot.mail.clock.sleep(40.0)
        began = bot.mail.clock.monotonic()
        await bot.add("the answer")
        while "the answer" not in bot.rooms.texts():
            await bot.mail.clock.sleep(0.1)
            if bot.mail.clock.monotonic() - began > 60.0:
                break
        took_s = bot.mail.clock.monotonic() - began
        await edits.close(1.0)
        P3.holds(took_s < 1.0, f"the answer came {took_s:.1f} s late")


class _Budget:
    """The homeserver's bucket: what each event takes, time gives back."""

    def __init__(self, bot: Bot, *, per_s: float, burst: float) -> None:
        self._bot, self._per_s, self._burst = bot, per_s, burst
        self._left, self._at = burst, 0.0
        send = bot.rooms.send

        async def limited(room_id: str, event_type: str, *given: Any, **more: Any) -> str:
            now = bot.mail.clock.monotonic()
            self._left = min(self._burst, self._left + (now - self._at) * self._per_s)
            self._at = now
            if self._left < 1.0:
                raise RateLimited((1.0 - self._left) / self._per_s)
            self._left -= 1.0
            return await send(room_id, event_type, *given, **more)

        bot.rooms.send = limited  # type: ignore[method-assign]  # the twin gets a limit

    async def edit(self) -> None:
        """A stream that tries an edit each second, as long as it may."""
        for number in range(10_000):
            try:
                await self._bot.sender.send(
                    ROOM, "m.room.message", {"body": "…"}, txn_id=f"e{number}", droppable=True
                )
            except Exception as error:  # noqa: BLE001  # a courtesy; whatever it was, the next one
                del error
            await self._bot.mail.clock.sleep(1.0)


def _a_key_for_each_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = iter(range(10_000))
    monkeypatch.setattr(deliver, "txn_of", lambda part: f"ag-{next(numbers)}")


def _impatient_courtesies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "LOW_PRIORITY_PAUSE", 1.0)


PROOFS = (
    Proof(
        "a piece is sent again and shown once",
        "P2",
        a_piece_is_sent_again_and_shown_once,
        Removal("a key for each attempt", _a_key_for_each_attempt),
    ),
    Proof(
        "a stream delays no answer",
        "P3",
        a_stream_delays_no_answer,
        Removal("courtesies that come back at once", _impatient_courtesies),
    ),
)
