"""SIGKILL with Telegram traffic (P1, P2): each text is answered once, or marked unknown with its note.

People go on writing while the daemon is dead. The Bot API server is a process of its own and judges
nothing; the judge reads the chats as people see them, and the outbox where an answer is missing.
A tenth of the lives is traced from its first second to the kill: what each confirmed was synced.
``AGENTSUP_KILLS`` says how many kills (16, at most 300), ``AGENTSUP_KILL_SEED`` replays a schedule.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import signal
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agentsup.fakes.telegram import TelegramDriver
from agentsup.kit.faults import TELEGRAM_POINTS
from tests.process.sync_trace import HAS_STRACE, Tracer
from tests.process.sync_trace import judge as judge_trace
from tests.support.bound import BOUND_S
from tests.support.daemon_process import DaemonProcess, write_home
from tests.support.preloaded_process import WITH_TELEGRAM
from tests.support.telegram_process import UNHURRIED, FakeTelegramProcess

pytestmark = pytest.mark.process

KILLS = min(300, int(os.environ.get("AGENTSUP_KILLS", "16")))
SEED = int(os.environ.get("AGENTSUP_KILL_SEED") or random.SystemRandom().randrange(1 << 32))
CHATS = 5
TEXTS = max(100, 200 * (KILLS // 30))
"""For each of the chats; more kills need more to be under way."""
TOKEN = "7001:AAFmain" + "x" * 20
RULES: list[dict[str, Any]] = [{"match": r"say (\S+)", "steps": [{"say": "said $1"}]}]
CONFIG = "[limits]\nattempts = 100\ncrashes = 100\n"
POINTS = (*sorted(TELEGRAM_POINTS), "outbox.before_deliver", "outbox.after_deliver")
POINT_S = 3.0
TRACED = max(3, KILLS // 10)
"""How many lives are traced, where there is ``strace`` (``test_telegram_sync`` is skipped
elsewhere)."""


class Town:
    """Five people who write to one bot, whatever happens to it."""

    def __init__(self, people: TelegramDriver, chance: random.Random) -> None:
        self.people = people
        self.chance = chance
        self.chats: list[str] = []
        self.users: list[int] = []
        self.written: list[int] = [0] * CHATS

    async def settle(self) -> None:
        bot = await self.people.add_bot(TOKEN, username="main_bot")
        for number in range(CHATS):
            self.users.append(await self.people.user(f"Person{number}"))
            self.chats.append(await self.people.private(self.users[-1], bot))

    async def write(self, upto: int) -> None:
        """Each person writes until ``upto`` texts are there, all at their own pace."""

        async def one(number: int) -> None:
            while self.written[number] < min(upto, TEXTS):
                text = f"say {number}-{self.written[number]}"
                self.written[number] += 1
                await self.people.say(self.chats[number], text)
                await asyncio.sleep(self.chance.uniform(0, 0.02))

        async with asyncio.TaskGroup() as writers:
            for number in range(CHATS):
                writers.create_task(one(number))

    async def seen(self) -> list[list[str]]:
        return [await self.people.texts(chat) for chat in self.chats]


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[tuple[Town, DaemonProcess]]:
    chance = random.Random(SEED)
    async with (
        FakeTelegramProcess(tmp_path / "fake", limits="count") as fake,
        TelegramDriver(fake.url) as people,
    ):
        made = Town(people, chance)
        await made.settle()
        entry = {
            "name": "main",
            "telegram_token": TOKEN,
            "telegram_base_url": fake.url,
            "allowed_user_ids": made.users,
            "slots": CHATS,
            "queue_limit": CHATS * TEXTS,  # on a slow machine most of it may wait at once
        }
        home = write_home(tmp_path / "home", [entry], RULES, CONFIG)
        daemon = DaemonProcess(home, command=("-c", UNHURRIED), loaded=WITH_TELEGRAM)
        try:
            yield made, daemon
        finally:
            await daemon.close()


def sample() -> set[int]:
    """Which lives are traced: one that is to die at a point of Telegram's, others at any time."""
    chance = random.Random(f"{SEED} traced")
    others = range(len(TELEGRAM_POINTS), KILLS)
    few = chance.sample(others, min(TRACED - 1, len(others)))
    return {chance.randrange(len(TELEGRAM_POINTS)), *few}


class Traces:
    """What the system calls of some lives said."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lives = 0
        self.confirmed = 0
        self.why_not = "" if HAS_STRACE else "there is no strace"

    @contextlib.asynccontextmanager
    async def of(self, daemon: DaemonProcess) -> AsyncIterator[Tracer | None]:
        """Trace a life that ends with the block, and judge it."""
        if self.why_not:
            yield None
            return
        output = self.folder / f"trace{self.lives}"
        async with Tracer(daemon.pid, output) as tracer:
            self.why_not = tracer.why_not
            yield None if self.why_not else tracer
            if self.why_not:
                return
            await tracer.ended()
            found = await tracer.steps()
        assert ("killed", 0) in found, found[-20:]
        self.confirmed += judge_trace(found)
        self.lives += 1
        output.unlink()


async def has_confirmed(tracer: Tracer) -> None:
    """Wait until a life has confirmed something that it heard."""
    async with asyncio.timeout(BOUND_S):
        while not judge_trace(await tracer.steps()):
            await asyncio.sleep(0.05)


async def life(
    daemon: DaemonProcess, town: Town, point: str, upto: int, traces: Traces | None
) -> str:
    """Start, write, have it killed; what did it."""
    may_write = asyncio.Event()
    if town.chance.random() < 0.5:
        may_write.set()
    environ = {"AGENTSUP_FAULT": f"{point}:{town.chance.randint(1, 6)}"} if point else {}

    async def write() -> None:
        await may_write.wait()
        await town.write(upto)

    # A tracer takes longer to come than a loaded program takes to confirm its first page.
    daemon.loaded = () if traces else WITH_TELEGRAM
    async with asyncio.TaskGroup() as group:
        group.create_task(write())
        daemon.launch(**environ)
        async with traces.of(daemon) if traces else contextlib.nullcontext() as tracer:
            with contextlib.suppress(RuntimeError):  # killed before it was ready
                await daemon.ready()
            may_write.set()
            return await death(daemon, point, tracer, town.chance.uniform(0.0, 0.4))


async def death(daemon: DaemonProcess, point: str, tracer: Tracer | None, pause_s: float) -> str:
    """Wait for the point to kill it, or kill it after a pause; what did it."""
    if point:
        with contextlib.suppress(TimeoutError):
            assert await daemon.ended(POINT_S) == -signal.SIGKILL, daemon.tail()
            return point
    else:
        if tracer is not None:
            await has_confirmed(tracer)
        await asyncio.sleep(pause_s)
    assert daemon.is_running, daemon.tail()
    daemon.kill()
    await daemon.ended()
    return "random"


def judge(home: Path, seen: list[list[str]]) -> Counter[str]:
    """Once, in order, or unknown with its note; what there was of each."""
    found: Counter[str] = Counter()
    with contextlib.closing(sqlite3.connect(home / "state.db")) as file:
        file.row_factory = sqlite3.Row
        parts = [dict(row) for row in file.execute("SELECT * FROM outbox")]
        assert not file.execute("SELECT 1 FROM received WHERE state <> 'done'").fetchall()
    unknown = {
        match[1]: part
        for part in parts
        if part["state"] == "unknown" and (match := re.search(r'"said (\d+-\d+)"', part["body"]))
    }
    notes = {
        int(match[1]): part
        for part in parts
        if part["kind"] == "notice" and (match := re.search(r'"again": ?(\d+)', part["body"]))
    }
    for number, texts in enumerate(seen):
        times = Counter(texts)
        for index in range(TEXTS):
            key = f"{number}-{index}"
            count = times[f"said {key}"]
            assert count <= 1, f"answered {count} times: {key}"
            part = unknown.get(key)
            if part is None:
                assert count == 1, f"lost: {key}"
                found["once"] += 1
                continue
            note = notes[part["outbox_id"]]
            assert note["state"] in ("delivered", "unknown"), (key, note)
            found["unknown, arrived" if count else "unknown, not arrived"] += 1
        answers = [
            int(text.rpartition("-")[2]) for text in texts if re.fullmatch(r"said \S+", text)
        ]
        assert answers == sorted(answers), f"out of order in chat {number}"
    return found


@pytest.mark.timeout(max(180, KILLS * 6))
async def test_no_kill_loses_or_doubles_an_answer(
    town: tuple[Town, DaemonProcess], tmp_path: Path
) -> None:
    people, daemon = town
    traced, traces = sample(), Traces(tmp_path)
    print(f"replay: AGENTSUP_KILL_SEED={SEED} AGENTSUP_KILLS={KILLS}")
    waiting = list(POINTS)
    fired: Counter[str] = Counter()
    for number in range(KILLS):
        point = waiting[0] if waiting else ""
        upto = TEXTS * (number + 1) // KILLS
        did = await life(daemon, people, point, upto, traces if number in traced else None)
        fired[did] += 1
        if point:
            waiting.pop(0)
            if did != point:
                waiting.append(point)
    await daemon.start()
    await people.write(TEXTS)
    async with asyncio.timeout(60 + TEXTS / 10):
        while (
            daemon.sql(
                "SELECT 1 FROM received WHERE state = 'received' UNION ALL"
                " SELECT 1 FROM messages WHERE state IN ('queued', 'leased') UNION ALL"
                " SELECT 1 FROM outbox WHERE state = 'pending' LIMIT 1"
            )
            or len(daemon.sql("SELECT 1 FROM received")) < CHATS * TEXTS
        ):
            await asyncio.sleep(0.1)
    seen = await people.seen()
    assert await daemon.stop() == 0
    found = judge(daemon.home, seen)
    print(fired, found)
    print(f"traced {traces.lives} lives, {traces.confirmed} confirmed", traces.why_not)
    if not traces.why_not:
        assert traces.lives == len(traced)
        assert traces.confirmed >= len(traced) - 1
    assert not waiting or len(POINTS) * 2 > KILLS, f"these points never killed: {waiting}"
    assert found["once"] > CHATS * TEXTS * 0.8, found
    # A judge that is content with everything proves nothing.
    with pytest.raises(AssertionError, match="lost"):
        judge(daemon.home, [texts[len(texts) // 2 :] for texts in seen])
    with pytest.raises(AssertionError, match="2 times"):
        judge(daemon.home, [texts + texts[:40] for texts in seen])
