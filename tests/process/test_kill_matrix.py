"""The kill matrix (P1, P2): SIGKILL at any instant and at every fault point loses and doubles nothing.

One home lives through all kills. A kill counts only with at least five confirmed items in flight.
``AGENTSUP_KILLS`` says how many kills count (8; from 40 on each fault point is among them),
``AGENTSUP_KILL_SEED`` replays a schedule.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import signal
import sqlite3
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from agentsup.kit.faults import CORE_POINTS
from tests.support.bound import BOUND_S
from tests.support.daemon_process import DaemonProcess, write_home
from tests.support.kill_oracle import check_after_kill, check_at_the_end
from tests.support.kill_traffic import (
    AGENTS,
    RULES,
    SLOTS,
    Record,
    Stopper,
    User,
    answer_questions,
)
from tests.support.preloaded_process import DAEMON

pytestmark = pytest.mark.process

KILLS = int(os.environ.get("AGENTSUP_KILLS", "8"))
SEED = int(os.environ.get("AGENTSUP_KILL_SEED") or random.SystemRandom().randrange(1 << 32))
FOR_ALL_POINTS = 40
"""Fewer kills than these are half at points drawn by chance, half at any instant."""
USERS = 16
NEEDED_IN_FLIGHT = 5
POINT_S = 3.0
"""A point that was not passed by then is left for a later life, with an earlier passing."""
PASSINGS = {"store.before_commit": 60, "store.after_commit": 60, "stop.before_commit": 2}
PASSINGS |= {"stop.after_commit": 2, "question.parked": 2, "question.answered": 2}
USUAL_PASSINGS = 16


class Matrix:
    """One run: a home, its users, and the schedule of kills."""

    def __init__(self, home: Path, kills: int, seed: int) -> None:
        self.chance = random.Random(seed)
        self.daemon = DaemonProcess(home, loaded=DAEMON)
        self.record = Record()
        self.passed = home.parent / "passed-points"
        self.users = [User(n, random.Random(seed + n), self.record) for n in range(USERS)]
        self.stopper = Stopper(self.record)
        self.kills = kills
        self.fired: Counter[str] = Counter()
        self.points = sorted(CORE_POINTS)
        self.chance.shuffle(self.points)
        if kills < FOR_ALL_POINTS:
            del self.points[kills // 2 :]
        self.wanted = frozenset(self.points)
        self.tries: Counter[str] = Counter()

    async def run(self) -> None:
        counted = lives = 0
        while counted < self.kills or self.points:
            lives += 1
            assert lives <= 4 * self.kills + 40, f"{counted} kills counted, left {self.points}"
            # Points first, so that a short run reaches them all.
            point = self.points[0] if self.points else ""
            fired = await self._life(point)
            check_after_kill(self.daemon.home, self.record)
            if fired != "random":
                assert fired in self.passed.read_text().split(), f"killed, but not at {fired}"
            counts = self.record.in_flight >= NEEDED_IN_FLIGHT
            counted += counts
            if counts:
                self.fired[fired] += 1
            if point and fired == point and counts:
                self.points.pop(0)
            elif point:
                self.points.append(self.points.pop(0))
        await self._calm()
        check_at_the_end(self.daemon.home, self.record)
        print(f"{lives} lives, {counted} kills counted, {len(self.record.items)} items", self.fired)

    async def _life(self, point: str) -> str:
        """Start, let the users work, have it killed; the point that did it, or ``random``."""
        environ = {}
        if point:
            self.tries[point] += 1
            most = max(1, PASSINGS.get(point, USUAL_PASSINGS) // self.tries[point])
            environ["AGENTSUP_FAULT"] = f"{point}:{self.chance.randint(1, most)}"
            environ["AGENTSUP_FAULT_LOG"] = str(self.passed)
            self.passed.unlink(missing_ok=True)
        self.daemon.launch(**environ)
        try:
            await self.daemon.ready()
        except RuntimeError:
            assert point, self.daemon.tail()
            assert await self.daemon.ended() == -signal.SIGKILL, self.daemon.tail()
            return point
        work = self._begin(lambda: True)
        by_itself = False
        if point:
            with contextlib.suppress(TimeoutError):
                code = await self.daemon.ended(POINT_S)
                assert code == -signal.SIGKILL, (code, self.daemon.tail())
                by_itself = True
        else:
            await self._busy(self.chance.uniform(0.1, 1.2))
        if not by_itself:
            assert self.daemon.is_running, self.daemon.tail()
            self.daemon.kill()
            await self.daemon.ended()
        await self._over(work)
        return point if by_itself else "random"

    async def _busy(self, seconds: float) -> None:
        """A random instant, but not before enough is in flight."""
        async with asyncio.timeout(BOUND_S):
            await asyncio.sleep(seconds)
            while self.record.in_flight < NEEDED_IN_FLIGHT:
                await asyncio.sleep(0.01)

    def _begin(self, wants_more: Any) -> list[asyncio.Task[None]]:
        work: list[Coroutine[Any, Any, None]] = [
            u.live(self.daemon, wants_more) for u in self.users
        ]
        work.append(self.stopper.live(self.daemon, wants_more))
        work.append(answer_questions(self.daemon, self.record, self.chance))
        return [asyncio.create_task(each) for each in work]

    async def _over(self, work: list[asyncio.Task[None]]) -> None:
        done, pending = await asyncio.wait(work, timeout=BOUND_S)
        for task in pending:
            task.cancel()
        assert not pending, pending
        for task in done:
            task.result()

    async def _calm(self) -> None:
        """No more kills, no more work: everything comes to its end."""
        await self.daemon.start()
        *users, stopper, answering = self._begin(lambda: False)
        await asyncio.wait({stopper}, timeout=30)
        await self.stopper.finish(self.daemon)
        async with asyncio.timeout(60):
            await asyncio.wait(users)
        await self._over([*users, stopper])
        async with asyncio.timeout(30), contextlib.aclosing(self.daemon.events()) as events:
            async for _ in events:
                if not self._unfinished():
                    break
        answering.cancel()
        assert await self.daemon.stop() == 0
        await asyncio.wait({answering})

    def _unfinished(self) -> bool:
        return bool(
            self.daemon.sql(
                "SELECT 1 FROM messages WHERE state IN ('queued', 'leased', 'parked')"
                " UNION ALL SELECT 1 FROM outbox WHERE state = 'pending' LIMIT 1"
            )
        )


DAMAGES = {
    "confirmed and lost": "DELETE FROM messages WHERE message_id = :done",
    "'state': 'queued'": "UPDATE messages SET state = 'queued', outcome = NULL"
    " WHERE message_id = :done",
    "not at an end": "UPDATE messages SET state = 'leased', outcome = NULL WHERE in_reply_to <> ''",
    "accepted": "UPDATE counts SET count = count + 1 WHERE state = 'accepted'",
    "completed twice": "INSERT INTO transcript (session_id, message_id, role, text, at)"
    " SELECT session_id, message_id, role, text, at FROM transcript WHERE message_id = :done",
    "told twice": "INSERT INTO events (at, type, message_id) VALUES (1, 'message.done', :done)",
    "shown twice": "INSERT INTO events (at, type, data) SELECT at, type, data FROM events"
    " WHERE type = 'chat.out' LIMIT 1",
    "not delivered": "UPDATE outbox SET state = 'pending'",
    "a wait for nothing": "INSERT INTO waits (waiter_id, target_id, waiter_fence)"
    " VALUES ('a', 'b', 1)",
    "had its effect 2 times": "",
}
"""What is done to a copy of the store, and what the oracle must say to it."""


def the_oracle_bites(matrix: Matrix, place: Path) -> None:
    """A judge that is content with everything proves nothing."""
    (effects, *_) = matrix.daemon.home.glob("agents/*/workspace/effects.txt")
    again = {message_id for message_id, often in matrix.record.again.items() if often}
    once = next(line for line in effects.read_text().split() if line not in again)
    done = next(i.message_id for i in matrix.record.items if i.terminal == "ok" and i.by == "async")
    for number, (saying, damage) in enumerate(DAMAGES.items()):
        home = place / f"damaged{number}"
        (home / "agents/x/workspace").mkdir(parents=True)
        shutil.copy(matrix.daemon.home / "state.db", home)
        for path in matrix.daemon.home.glob("agents/*/workspace/effects.txt"):
            with (home / "agents/x/workspace/effects.txt").open("a") as file:
                file.write(path.read_text())
        check_at_the_end(home, matrix.record)
        if damage:
            with contextlib.closing(sqlite3.connect(home / "state.db")) as file_:
                file_.execute(damage, {"done": done} if ":done" in damage else {})
                file_.commit()
        else:
            with (home / "agents/x/workspace/effects.txt").open("a") as file:
                file.write(f"{once}\n")
        with pytest.raises(AssertionError, match=saying):
            check_at_the_end(home, matrix.record)


@pytest.mark.timeout(max(240, KILLS * 8))
async def test_no_kill_loses_or_doubles_anything(tmp_path: Path) -> None:
    print(
        f"replay: AGENTSUP_KILL_SEED={SEED} AGENTSUP_KILLS={KILLS} "
        ".venv/bin/python -m pytest tests/process/test_kill_matrix.py"
    )
    agents = [{"name": name, "slots": SLOTS} for name in AGENTS]
    matrix = Matrix(write_home(tmp_path / "home", agents, RULES), KILLS, SEED)
    try:
        await matrix.run()
    finally:
        for user in matrix.users:
            await user.close()
        await matrix.daemon.close()
    the_oracle_bites(matrix, tmp_path)
    never = matrix.wanted - set(matrix.fired)
    assert not never, f"these points never killed with enough in flight: {sorted(never)}"
