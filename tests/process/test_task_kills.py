"""Tasks under kills (P1, P2): SIGKILL at any instant and at every fault point of background work.

One home lives through all kills, with tasks given over HTTP and by agents, questions, resumes,
cancels and schedules every one or two seconds; another with an agent whose model costs. A kill
counts only with at least five pieces of work in flight. `AGENTSUP_KILLS` says how many kills count
(40, at most 300), `AGENTSUP_KILL_SEED` replays a schedule.
"""

import asyncio
import contextlib
import os
import random
import shutil
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from agentsup.kit.faults import TASK_POINTS
from agentsup.testing.daemon_process import DaemonProcess, write_home
from agentsup.testing.model_server import ModelServer
from agentsup.testing.task_oracle import (
    check_paid,
    check_tasks_after_kill,
    check_tasks_at_the_end,
    cut_off,
)
from agentsup.testing.task_traffic import (
    AGENTS,
    CONFIG,
    RULES,
    SLOTS,
    THINKER,
    Giver,
    Pressing,
    Works,
    think,
)

pytestmark = pytest.mark.process

KILLS = min(300, int(os.environ.get("AGENTSUP_KILLS", "40")))
PAID_KILLS = max(5, KILLS // 8)
SEED = int(os.environ.get("AGENTSUP_KILL_SEED") or random.SystemRandom().randrange(1 << 32))
GIVERS = 16
NEEDED_IN_FLIGHT = 5
POINT_S = 2.0
"""A point that was not passed by then is left for a later life, with an earlier passing."""
PASSINGS = 4
TASKS = 100


class Kills:
    """One run: a home, its givers, and the schedule of kills. With ``model`` the givers have its
    agent think, and kills come while it is asked."""

    def __init__(self, home: Path, kills: int, seed: int, model: ModelServer | None = None) -> None:
        self.chance = random.Random(seed)
        self.daemon = DaemonProcess(home)
        self.works = Works()
        self.passed = home.parent / "passed-points"
        kind = "" if model is None else "think"
        self.givers = [Giver(n, random.Random(seed + n), self.works, kind) for n in range(GIVERS)]
        self.kills = kills
        self.fired: Counter[str] = Counter()
        self.points = sorted(TASK_POINTS) if model is None else []
        self.model = model
        self.chance.shuffle(self.points)
        self.tries: Counter[str] = Counter()
        self.lives = 0

    async def run(self) -> None:
        counted = 0
        while counted < self.kills or self.points:
            self.lives += 1
            assert self.lives <= 4 * self.kills + 40, f"{counted} kills, left {self.points}"
            point = self.points[0] if self.points else ""
            fired = await self._life(point)
            cut_off(self.daemon.home, self.works)
            check_tasks_after_kill(self.daemon.home, self.works)
            if fired != "random":
                assert fired in self.passed.read_text().split(), f"killed, but not at {fired}"
            counts = self.works.in_flight >= NEEDED_IN_FLIGHT
            counted += counts
            if counts:
                self.fired[fired] += 1
            if point and fired == point and counts:
                self.points.pop(0)
            elif point:
                self.points.append(self.points.pop(0))
        await self._calm()
        check_tasks_at_the_end(self.daemon.home, self.works)

    async def _life(self, point: str) -> str:
        """Start, let the givers work, have it killed; the point that did it, or `random`."""
        environ = {}
        if point:
            self.tries[point] += 1
            passing = self.chance.randint(1, max(1, PASSINGS // self.tries[point]))
            environ["AGENTSUP_FAULT"] = f"{point}:{passing}"
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
            await self._busy(self.chance.uniform(0.0, 0.1 if self.model is not None else 0.8))
        if not by_itself:
            assert self.daemon.is_running, self.daemon.tail()
            self.daemon.kill()
            await self.daemon.ended()
        await self._over(work)
        await self.daemon.leave()  # what a giver opened that had not seen the end yet
        return point if by_itself else "random"

    async def _busy(self, seconds: float) -> None:
        """A random instant, but not before enough is in flight."""
        async with asyncio.timeout(15):
            if self.model is not None:
                await self.model.wait_asked(len(self.model.asked) + self.chance.randint(1, GIVERS))
            await asyncio.sleep(seconds)
            while self.works.in_flight < NEEDED_IN_FLIGHT:
                await asyncio.sleep(0.01)

    def _begin(self, wants_more: Callable[[], bool]) -> list[asyncio.Task[None]]:
        work = [giver.live(self.daemon, wants_more) for giver in self.givers]
        work.append(Pressing(self.works, self.chance).live(self.daemon))
        return [asyncio.create_task(each) for each in work]

    async def _over(self, work: list[asyncio.Task[None]]) -> None:
        done, pending = await asyncio.wait(work, timeout=10)
        for task in pending:
            task.cancel()
        assert not pending, pending
        for task in done:
            task.result()

    async def _calm(self) -> None:
        """No more kills, no more work: everything comes to its end."""
        await self.daemon.start()
        *givers, pressing = self._begin(lambda: False)
        _, late = await asyncio.wait(givers, timeout=90)
        assert not late, [giver.work for giver in self.givers if giver.work is not None]
        await self._over(givers)
        async with asyncio.timeout(60), contextlib.aclosing(self.daemon.events()) as events:
            async for _ in events:
                if not self._unfinished():
                    break
        pressing.cancel()
        assert await self.daemon.stop() == 0
        await asyncio.wait({pressing})

    def _unfinished(self) -> bool:
        return bool(
            self.daemon.sql(
                "SELECT 1 FROM messages WHERE state IN ('queued', 'leased', 'parked')"
                " UNION ALL SELECT 1 FROM outbox WHERE state = 'pending' LIMIT 1"
            )
        )


RUN = "(SELECT current_run FROM tasks WHERE task_id = :task)"
DAMAGES = {
    "a task is not where its run is": "UPDATE tasks SET state = 'failed' WHERE task_id = :task",
    "confirmed and lost": "DELETE FROM tasks WHERE task_id = :task",
    "runs are miscounted": "UPDATE tasks SET runs = runs + 1 WHERE task_id = :task",
    "a result came back twice": "UPDATE messages SET in_reply_to = (SELECT in_reply_to"
    " FROM messages WHERE kind = 'reply' ORDER BY seq LIMIT 1) WHERE kind = 'reply'",
    "state': 'done'}": f"DELETE FROM messages WHERE message_id = {RUN}",
    "accepted": "UPDATE counts SET count = count + 1 WHERE state = 'accepted'",
    "a question for nothing": "UPDATE questions SET state = 'open' WHERE put_as = ''",
    "a schedule goes on": "UPDATE schedules SET next_at = 1",
    "not delivered": "UPDATE outbox SET state = 'pending'",
    "task_": "DELETE FROM runs WHERE slot_at = (SELECT max(slot_at) FROM runs WHERE why <> '')",
    "result_text": "DELETE FROM events WHERE type = 'chat.out'",
    "had its effect 2 times": "",
    "the folder of": "",
}
"""What is done to a copy of the home, and what the judge must say to it."""


def the_judge_bites(kills: Kills, place: Path) -> None:
    """A judge that is content with everything proves nothing."""
    home, works = kills.daemon.home, kills.works
    done = next(w for w in works.works if w.kind == "effect" and w.terminal == "done")
    for number, (saying, damage) in enumerate(DAMAGES.items()):
        copy = place / f"damaged{number}"
        (copy / "agents/x/workspace").mkdir(parents=True)
        shutil.copy(home / "state.db", copy)
        shutil.copytree(home / "tasks", copy / "tasks")
        effects = copy / "agents/x/workspace/effects.txt"
        lines = [path.read_text() for path in home.glob("agents/*/workspace/effects.txt")]
        effects.write_text("".join(lines))
        check_tasks_at_the_end(copy, works)
        if damage:
            with contextlib.closing(sqlite3.connect(copy / "state.db")) as file:
                file.execute(damage, {"task": done.task_id} if ":task" in damage else {})
                file.commit()
        elif "effect" in saying:
            once = {line for text in lines for line in text.split()} - set(works.again)
            effects.write_text(effects.read_text() + f"{min(once)}\n")
        else:
            shutil.rmtree(copy / "tasks" / done.task_id)
        with pytest.raises(AssertionError, match=saying):
            check_tasks_at_the_end(copy, works)


def replay(test: str) -> None:
    print(
        f"replay: AGENTSUP_KILL_SEED={SEED} AGENTSUP_KILLS={KILLS} "
        f".venv/bin/python -m pytest tests/process/test_task_kills.py -k {test}"
    )


def summary(kills: Kills) -> str:
    ends = Counter(f"{work.kind} {work.terminal}" for work in kills.works.works)
    return f"{kills.lives} lives, {sum(ends.values())} tasks, kills: {kills.fired}, {ends}"


@pytest.mark.timeout(max(240, KILLS * 8))
async def test_no_kill_loses_or_doubles_a_task(tmp_path: Path) -> None:
    replay("doubles_a_task")
    agents = [{"name": name, "slots": SLOTS} for name in AGENTS]
    kills = Kills(write_home(tmp_path / "home", agents, RULES, CONFIG), KILLS, SEED)
    try:
        await kills.run()
    finally:
        await kills.daemon.close()
    print(summary(kills))
    assert len(kills.works.works) >= min(TASKS, 2 * KILLS)
    the_judge_bites(kills, tmp_path)
    never = TASK_POINTS - set(kills.fired)
    assert not never, f"these points never killed with enough in flight: {sorted(never)}"


@pytest.mark.timeout(max(120, KILLS * 4))
async def test_no_kill_repeats_a_call_that_was_paid(tmp_path: Path) -> None:
    replay("paid")
    async with ModelServer(think) as model:
        options = {"base_url": model.base_url, "api_key": "sk-loopback"}
        entry = {"engine": "llm", "model": "loopback-1", "engine_options": options}
        agents = [{"name": name, "slots": SLOTS, **entry} for name in ("main", THINKER)]
        home = write_home(tmp_path / "home", agents, config=CONFIG)
        kills = Kills(home, PAID_KILLS, SEED, model)
        try:
            await kills.run()
        finally:
            await kills.daemon.close()
        repeated = check_paid(home, kills.works, model.asked)
        assert model.violations == []
    print(summary(kills), f"{len(model.asked)} calls of the model, {repeated} repeated")
    assert repeated, "no kill has met a call"
    kills.works.interrupted.clear()  # as if nothing had been cut off
    with pytest.raises(AssertionError, match="requests"):
        check_paid(home, kills.works, model.asked)
