"""A storm of kills over mixed traffic in one home (P1, P2): programs that repeat their keys, chains of
three agents, two people in Telegram, the console, tasks and a schedule each second. Nobody answers a
question, and all that was accepted ends once, within its time; no process of an ended life is left.

``AGENTSUP_KILLS`` says how many kills (6, at most 300), ``AGENTSUP_KILL_SEED`` replays a schedule.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentsup.fakes.telegram import TelegramDriver
from tests.support.bound import BOUND_S
from tests.support.daemon_process import DaemonProcess, marked_by, write_home
from tests.support.kill_traffic import Record
from tests.support.preloaded_process import WITH_TELEGRAM
from tests.support.storm_traffic import (
    COMMAND,
    RULES,
    Program,
    Silent,
    Talker,
    Writer,
    check_storm,
    check_storm_after_kill,
)
from tests.support.task_chat_traffic import TaskChatCluster
from tests.support.task_traffic import AGENTS, CONFIG, SLOTS, TaskRecord
from tests.support.telegram_process import FakeTelegramProcess

pytestmark = pytest.mark.process

KILLS = min(300, int(os.environ.get("AGENTSUP_KILLS", "6")))
SEED = int(os.environ.get("AGENTSUP_KILL_SEED") or random.SystemRandom().randrange(1 << 32))
NEEDED_IN_FLIGHT = 5
NEEDED_PER_LIFE = 2
"""Items begun in the storm by each kill, for each life: a slow machine takes longer, it does not
do less."""
MOST_OPEN = 200
"""Open messages at a start, above which people in Telegram write nothing in that life."""
OPEN = "SELECT 1 FROM messages WHERE state IN ('queued', 'leased', 'parked')"
PROGRAMS, TALKERS = (1, 3, 7, 9), (0, 4)
"""Their numbers: they decide by which way a user talks, and to whom. Nobody begins a chain at bob:
chains that begin at all three can wait for one another in a ring, and the daemon rightly refuses
such a wait."""
UNFINISHED = (
    "SELECT 1 FROM messages WHERE state IN ('queued', 'leased', 'parked')"
    " UNION ALL SELECT 1 FROM outbox WHERE state = 'pending'"
    " UNION ALL SELECT 1 FROM received WHERE state = 'received' LIMIT 1"
)
ORDERLY_S = 0.5
"""How long a text in Telegram may take where a slow machine has fallen behind: each waits for the
one before."""
LEFT = (
    "SELECT m.*, q.kind AS asked, q.state AS said, q.deadline_at FROM messages m"
    " LEFT JOIN questions q USING (message_id) WHERE m.state IN ('queued', 'leased', 'parked') LIMIT 5"
)


class Storm:
    """One home, all who use it, and the kills."""

    def __init__(self, daemon: DaemonProcess, town: TaskChatCluster) -> None:
        self.daemon, self.town = daemon, town
        self.chance = random.Random(SEED)
        self.record, self.works = Record(), TaskRecord()
        self.users = [
            kind(n, random.Random(SEED + n), self.record)
            for kind, numbers in ((Program, PROGRAMS), (Talker, TALKERS))
            for n in numbers
        ]
        self.givers = [
            Silent(n, random.Random(SEED + n), self.works, "schedule" if n == 2 else "")
            for n in range(3)
        ]
        self.pace = asyncio.Event()
        self.writers = [
            Writer(n, random.Random(SEED + n), town.people, place, self.pace)
            for n, place in enumerate(town.places)
        ]
        self.lives: list[int] = []
        self.began_at = 0

    @property
    def in_flight(self) -> int:
        return self.record.in_flight + self.works.in_flight

    async def run(self) -> None:
        writing = [asyncio.create_task(writer.live()) for writer in self.writers]
        try:
            for _ in range(KILLS):
                await self._life()
                check_storm_after_kill(self.daemon.home, self.record, self.works)
        finally:
            for task in writing:
                task.cancel()
            await asyncio.wait(writing)
        for task in writing:
            assert task.cancelled(), task
        await self._calm()

    async def _start(self) -> None:
        self.began_at = time.time_ns() // 1_000_000
        await self.daemon.start()
        assert marked_by(self.lives, now=self.daemon.pid) == [], "processes of an ended life"
        self.lives.append(self.daemon.pid)

    def _begin(self, wants_more: Callable[[], bool]) -> list[asyncio.Task[None]]:
        everybody = (*self.users, *self.givers)
        return [asyncio.create_task(each.live(self.daemon, wants_more)) for each in everybody]

    async def _life(self) -> None:
        await self._start()
        # Lives are short: people who never paused would write more than all of them can do.
        is_behind = len(self.daemon.sql(OPEN)) > MOST_OPEN
        (self.pace.clear if is_behind else self.pace.set)()
        if len(self.lives) == 1:
            for giver in self.givers:
                await giver.arrive(self.daemon)
        work = self._begin(lambda: True)
        await asyncio.sleep(self.chance.uniform(0.1, 1.2))
        async with asyncio.timeout(BOUND_S):
            while self.in_flight < NEEDED_IN_FLIGHT or len(
                self.record.items
            ) < NEEDED_PER_LIFE * len(self.lives):
                await asyncio.sleep(0.01)
        self.daemon.kill()
        await self.daemon.ended()
        await self._over(work)

    async def _over(self, work: list[asyncio.Task[None]]) -> None:
        done, pending = await asyncio.wait(work, timeout=60)
        for task in pending:
            task.cancel()
        assert not pending, pending
        for task in done:
            task.result()

    async def _calm(self) -> None:
        """No more kills, no more work, and still nobody answers."""
        await self._start()
        await self._over(self._begin(lambda: False))
        written = sum(len(writer.texts) for writer in self.writers)
        try:
            async with asyncio.timeout(60 + written * ORDERLY_S):
                while self.daemon.sql(UNFINISHED) or self._taken() < written:
                    await asyncio.sleep(0.05)
        except TimeoutError:
            left = [dict(row) for row in self.daemon.sql(LEFT)]
            pytest.fail(f"{self._taken()} of {written} updates taken; left: {left}")
        assert await self.daemon.stop() == 0
        assert marked_by(self.lives) == [], "processes of the last life"

    def _taken(self) -> int:
        return len(self.daemon.sql("SELECT 1 FROM received"))

    def judge(self, home: Path, seen: list[dict[str, Any]]) -> Any:
        return check_storm(home, self.record, self.works, self.writers, seen, self.began_at)


OF_A_WRITER = (
    "(SELECT max(message_id) FROM messages WHERE kind = 'chat'"
    " AND deliver_to ->> '$.channel' = 'telegram')"
)
DAMAGES = {
    "confirmed and lost": "DELETE FROM messages WHERE message_id = :sent",
    "not at an end": "UPDATE messages SET state = 'leased', outcome = NULL"
    " WHERE in_reply_to <> '' AND message_id NOT IN (SELECT message_id FROM questions)",
    "'accepted'": "UPDATE counts SET count = count + 1 WHERE state = 'accepted'",
    "told twice": "INSERT INTO events (at, type, message_id) VALUES (1, 'message.done', :sent)",
    "written once, 0 messages": f"DELETE FROM messages WHERE message_id = {OF_A_WRITER}",
    "a task is not where its run is": "UPDATE tasks SET state = 'failed' WHERE task_id = :task",
    "neither there nor in doubt": "UPDATE outbox SET state = 'dropped' WHERE outbox_id ="
    " (SELECT max(outbox_id) FROM outbox WHERE channel = 'telegram' AND kind = 'answer'"
    " AND state = 'delivered')",
    "'asked': 'expired'": "INSERT INTO questions (question_id, agent_id, session_id, message_id, kind,"
    " text, options, state, asked_at) SELECT 'q_x', agent_id, session_id, message_id, 'uncertain',"
    " '', '[]', 'expired', 1 FROM messages WHERE message_id = :sent",
    "had its effect 2 times": "",
}
"""What is done to a copy of the home, and what the judge must say to it."""


def the_judge_bites(storm: Storm, place: Path, seen: list[dict[str, Any]]) -> None:
    """A judge that is content with everything proves nothing."""
    home = storm.daemon.home
    sent = next(i.message_id for i in storm.record.items if i.terminal == "ok" and i.by == "async")
    task = next(work.task_id for work in storm.works.works if work.terminal == "done")
    lines = [path.read_text() for path in home.glob("agents/*/workspace/effects.txt")]
    for number, (saying, damage) in enumerate(DAMAGES.items()):
        copy = place / f"damaged{number}"
        (copy / "agents/x/workspace").mkdir(parents=True)
        shutil.copy(home / "state.db", copy)
        shutil.copytree(home / "tasks", copy / "tasks")
        effects = copy / "agents/x/workspace/effects.txt"
        effects.write_text("".join(lines))
        if number == 0:  # the copies are alike
            storm.judge(copy, seen)
        if damage:
            with contextlib.closing(sqlite3.connect(copy / "state.db")) as file:
                names = {"sent": sent, "task": task}
                file.execute(damage, {k: v for k, v in names.items() if f":{k}" in damage})
                file.commit()
        else:
            effects.write_text(effects.read_text() + effects.read_text().split()[0] + "\n")
        with pytest.raises(AssertionError, match=saying):
            storm.judge(copy, seen)
    said = next(each for each in seen if each["message"]["text"].startswith("said t"))
    again = {**said, "message": {**said["message"], "message_id": 999_999}}
    with pytest.raises(AssertionError, match="sent twice"):
        storm.judge(home, [*seen, again])


@pytest.mark.timeout(max(120, KILLS * 8))
async def test_no_kill_loses_or_doubles_anything_in_a_storm(tmp_path: Path) -> None:
    print(
        f"replay: AGENTSUP_KILL_SEED={SEED} AGENTSUP_KILLS={KILLS} "
        ".venv/bin/python -m pytest tests/process/test_storm.py"
    )
    async with (
        FakeTelegramProcess(tmp_path / "fake", limits="count") as fake,
        TelegramDriver(fake.url) as people,
    ):
        town = TaskChatCluster(people)
        await town.settle(SEED, places=2, topics=1)
        agents: list[dict[str, Any]] = [{"name": name, "slots": SLOTS} for name in AGENTS]
        agents[0] |= town.entry()
        home = write_home(tmp_path / "home", agents, RULES, CONFIG)
        daemon = DaemonProcess(home, command=("-c", COMMAND), loaded=WITH_TELEGRAM)
        storm = Storm(daemon, town)
        try:
            await storm.run()
        finally:
            await daemon.close()
        seen = await town.seen()
        assert await people.violations() == []
    found = storm.judge(home, seen)
    print(f"{len(storm.record.items)} items, {len(storm.works.works)} tasks", dict(found))
    assert len(storm.record.items) >= NEEDED_PER_LIFE * KILLS
    the_judge_bites(storm, tmp_path, seen)
