"""SIGKILL with Telegram traffic (P1, P2): each text is answered once, or marked unknown with its note.

People go on writing while the daemon is dead. The Bot API server is a process of its own and judges
nothing; the judge reads the chats as people see them, and the outbox where an answer is missing.
`AGENTSUP_KILLS` says how many kills (30, at most 300), `AGENTSUP_KILL_SEED` replays a schedule.
"""

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

from agentsup.kit.faults import TELEGRAM_POINTS
from agentsup.testing.daemon_process import DaemonProcess, write_home
from agentsup.testing.telegram import TelegramDriver
from agentsup.testing.telegram_process import FakeTelegramProcess

pytestmark = pytest.mark.process

KILLS = min(300, int(os.environ.get("AGENTSUP_KILLS", "30")))
SEED = int(os.environ.get("AGENTSUP_KILL_SEED") or random.SystemRandom().randrange(1 << 32))
CHATS = 5
TEXTS = 200 * max(1, KILLS // 30)
"""For each of the chats; more kills need more to be under way."""
TOKEN = "7001:AAFmain" + "x" * 20
RULES: list[dict[str, Any]] = [{"match": r"say (\S+)", "steps": [{"say": "said $1"}]}]
CONFIG = "[limits]\nattempts = 100\ncrashes = 100\n"
POINTS = (*sorted(TELEGRAM_POINTS), "outbox.before_deliver", "outbox.after_deliver")
POINT_S = 3.0
UNHURRIED = (
    "import sys\n"
    "from agentsup.channels.telegram import flood\n"
    "many = (100_000, 1.0)\n"
    "flood.Rates.__init__.__defaults__ = (many, many, many, many, many, 0.4)\n"
    "from agentsup.cli.main import main\n"
    "sys.exit(main())\n"
)
"""The daemon without the platform's limits, which would stretch this to minutes of waiting."""


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
        }
        home = write_home(tmp_path / "home", [entry], RULES, CONFIG)
        daemon = DaemonProcess(home, command=("-c", UNHURRIED))
        try:
            yield made, daemon
        finally:
            await daemon.close()


async def life(daemon: DaemonProcess, town: Town, point: str, upto: int, *, early: bool) -> str:
    """Start, write, have it killed; what did it."""
    writing = asyncio.ensure_future(town.write(upto)) if early else None
    environ = {"AGENTSUP_FAULT": f"{point}:{town.chance.randint(1, 6)}"} if point else {}
    daemon.launch(**environ)
    fired = "random"
    try:
        with contextlib.suppress(RuntimeError):  # killed before it was ready
            await daemon.ready()
        writing = writing or asyncio.ensure_future(town.write(upto))
        if point:
            with contextlib.suppress(TimeoutError):
                assert await daemon.ended(POINT_S) == -signal.SIGKILL, daemon.tail()
                fired = point
        else:
            await asyncio.sleep(town.chance.uniform(0.0, 0.4))
        if fired == "random":
            assert daemon.is_running, daemon.tail()
            daemon.kill()
            await daemon.ended()
    finally:
        if writing is not None:
            await writing
    return fired


def judge(home: Path, seen: list[list[str]]) -> Counter[str]:
    """Once, in order, or unknown with its note; what there was of each."""
    found: Counter[str] = Counter()
    with contextlib.closing(sqlite3.connect(home / "state.db")) as file:
        file.row_factory = sqlite3.Row
        parts = [dict(row) for row in file.execute("SELECT * FROM outbox")]
        assert not file.execute("SELECT 1 FROM updates WHERE state <> 'done'").fetchall()
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
async def test_no_kill_loses_or_doubles_an_answer(town: tuple[Town, DaemonProcess]) -> None:
    people, daemon = town
    print(f"replay: AGENTSUP_KILL_SEED={SEED} AGENTSUP_KILLS={KILLS}")
    waiting = list(POINTS)
    fired: Counter[str] = Counter()
    for number in range(KILLS):
        point = waiting[0] if waiting else ""
        upto = TEXTS * (number + 1) // KILLS
        did = await life(daemon, people, point, upto, early=people.chance.random() < 0.5)
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
                "SELECT 1 FROM updates WHERE state = 'received' UNION ALL"
                " SELECT 1 FROM messages WHERE state IN ('queued', 'leased') UNION ALL"
                " SELECT 1 FROM outbox WHERE state = 'pending' LIMIT 1"
            )
            or len(daemon.sql("SELECT 1 FROM updates")) < CHATS * TEXTS
        ):
            await asyncio.sleep(0.1)
    seen = await people.seen()
    assert await daemon.stop() == 0
    found = judge(daemon.home, seen)
    print(fired, found)
    assert not waiting or len(POINTS) * 2 > KILLS, f"these points never killed: {waiting}"
    assert found["once"] > CHATS * TEXTS * 0.8, found
    # A judge that is content with everything proves nothing.
    with pytest.raises(AssertionError, match="lost"):
        judge(daemon.home, [texts[len(texts) // 2 :] for texts in seen])
    with pytest.raises(AssertionError, match="2 times"):
        judge(daemon.home, [texts + texts[:40] for texts in seen])
