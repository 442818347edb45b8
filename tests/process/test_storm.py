"""A storm of kills over mixed traffic in one home (P1, P2): SIGKILL at fault points and at any instant
loses and doubles nothing, what nobody says of ends in time, and no process of an ended life is left.

Programs that repeat their keys, people at the console, in the page and in Telegram, chains of agents,
tasks, schedules, questions, stops, a model that costs, and a program that calls over MCP for an agent
that needs approval share one home, which lives through all kills. A kill counts only with at least
five confirmed pieces of work in flight. ``TEST_KILLS`` says how many kills count (8, at most 500;
from 60 on each fault point is among them), ``TEST_KILL_SEED`` replays a schedule.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol

import pytest

from agentsup.fakes.telegram import TelegramDriver
from agentsup.kit.faults import CORE_POINTS, TASK_POINTS, TELEGRAM_POINTS
from tests.support.bound import BOUND_S
from tests.support.daemon_process import DaemonProcess, marked_by, write_home
from tests.support.model_server import ModelServer
from tests.support.preloaded_process import modules_of
from tests.support.storm_chats import check_chats, check_order, check_written
from tests.support.storm_jobs import Jobs
from tests.support.storm_oracle import (
    SETTLE_MS,
    all_rows,
    check_after_kill,
    check_at_the_end,
    copy_of,
    cut_off,
)
from tests.support.storm_record import AGENTS, Record
from tests.support.storm_task_oracle import (
    check_paid,
    check_tasks_after_kill,
    check_tasks_at_the_end,
)
from tests.support.storm_tasks import CONFIG, SLOTS, THINKER, Answerer, TaskClient, think
from tests.support.storm_tasks import RULES as OF_TASKS
from tests.support.storm_telegram import Person, TaskChatCluster, Writer
from tests.support.storm_users import RULES as OF_USERS
from tests.support.storm_users import Stopper, User
from tests.support.telegram_process import UNHURRIED, FakeTelegramProcess

pytestmark = pytest.mark.process

KILLS = min(500, int(os.environ.get("TEST_KILLS", "8")))
SEED = int(os.environ.get("TEST_KILL_SEED") or random.SystemRandom().randrange(1 << 32))
MANY = 60
"""From so many kills on each point kills, and everything that can happen has happened. Fewer kills are
half at points drawn by chance, half at any instant."""
USERS, GIVERS, THINKERS, PEOPLE, WRITERS = 8, 4, 2, 2, 2
NEEDED_IN_FLIGHT = 5
POINT_S = 3.0
"""A point that was not passed by then is left for a later life, with an earlier passing."""
USUAL_PASSINGS = 6
PASSINGS = {"store.before_commit": 60, "store.after_commit": 60, "stop.before_commit": 2}
PASSINGS |= {"stop.after_commit": 2, "question.parked": 2, "question.answered": 2}
MOST_OPEN = 200
"""Open messages at a start, above which people in Telegram write nothing in that life."""
OPEN = "SELECT 1 FROM messages WHERE state IN ('queued', 'leased', 'parked')"
UNFINISHED = (
    "SELECT message_id AS id, agent_id, state FROM messages"
    " WHERE state IN ('queued', 'leased', 'parked')"
    " UNION ALL SELECT outbox_id, kind, state FROM outbox WHERE state = 'pending'"
    " UNION ALL SELECT row_id, channel, state FROM received WHERE state = 'received'"
    " UNION ALL SELECT q.question_id, q.kind, q.state FROM questions q JOIN outbox o"
    " ON o.message_id = q.message_id AND o.body ->> 'question_id' = q.question_id"
    " WHERE o.channel = 'telegram' AND o.kind = 'question' AND o.state = 'delivered'"
    " AND q.question_id NOT IN (SELECT question_id FROM question_ends) LIMIT 5"
)
"""What still has to end, also how a question in Telegram ended, which is written under it."""
CALM_S = 180
"""How long what was begun may take once nobody is killed any more; a guard against hanging."""
ORDERLY_S = 0.5
"""How long a text in Telegram may take where a slow machine has fallen behind: each waits for the
one before."""
COMMAND = (
    "from agentsup.agents.turn import run\n"
    "from agentsup.mailbox.messages import steady_clock\n"
    f"run.UNCERTAIN_WITHIN_S, steady_clock.SETTLE_S = 2.0, {SETTLE_MS / 1000}\n{UNHURRIED}"
)
"""The daemon with seconds for the quarter of an hour that a question about lost work waits, and for the
minute in which the clock may be set after a start."""

Seen = list[dict[str, Any]]


class Worker(Protocol):
    """One kind of traffic; what was confirmed is in the storm's record."""

    @property
    def is_busy(self) -> bool:
        """Whether something was begun whose end is not known."""

    async def live(self, daemon: DaemonProcess, wants_more: Callable[[], bool]) -> None:
        """Work until nothing more is wanted or this life of the daemon is over. What was begun in an
        earlier life goes on."""


class Storm:
    """One home, all who use it, and the kills."""

    def __init__(self, home: Path, town: TaskChatCluster, model: ModelServer, jobs: Jobs) -> None:
        self.daemon = DaemonProcess(home, command=("-c", COMMAND), loaded=modules_of(home))
        self.model, self.jobs = model, jobs
        self.chance = random.Random(SEED)
        self.record = Record()
        self.users = [User(n, self._own(f"u{n}"), self.record) for n in range(USERS)]
        self.stopper = Stopper(self.record)
        self.givers = [
            TaskClient(n, self._own(f"g{n}"), self.record, "think" if n >= GIVERS else "")
            for n in range(GIVERS + THINKERS)
        ]
        places = iter(town.places)
        self.people = [
            Person(100 + n, self._own(f"p{n}"), self.record, town.people, next(places))
            for n in range(PEOPLE)
        ]
        self.pace = asyncio.Event()
        self.writers = [
            Writer(n, self._own(f"t{n}"), town.people, place, self.pace)
            for n, place in enumerate(places)
        ]
        self.workers: list[Worker] = [*self.users, self.stopper, *self.givers, *self.people, jobs]
        self.passed = home.parent / "passed-points"
        self.points = sorted(CORE_POINTS | TASK_POINTS | TELEGRAM_POINTS)
        self.chance.shuffle(self.points)
        if KILLS < MANY:
            del self.points[KILLS // 2 :]
        self.wanted = frozenset(self.points)
        self.tries: Counter[str] = Counter()
        self.fired: Counter[str] = Counter()
        self.answering: list[asyncio.Task[None]] = []
        self.lives: list[int] = []
        self.began_at = 0

    def _own(self, name: str) -> random.Random:
        return random.Random(f"{SEED}.{name}")

    @property
    def in_flight(self) -> int:
        return self.record.in_flight + self.jobs.in_flight

    async def run(self) -> None:
        """All kills, and a calm life in which everything comes to its end."""
        await self._arrive()
        writing = [asyncio.create_task(writer.live()) for writer in self.writers]
        try:
            await self._kills()
        finally:
            for task in writing:
                task.cancel()
            await asyncio.wait(writing)
        assert all(task.cancelled() for task in writing), writing
        await self._calm()

    async def _arrive(self) -> None:
        """A first life without kills, in which each giver writes in its conversation."""
        await self._start()
        await asyncio.gather(*(giver.arrive(self.daemon) for giver in self.givers))
        assert await self.daemon.stop() == 0
        self.model.asked.clear()

    async def _kills(self) -> None:
        lives = 0
        while self.fired.total() < KILLS or (self.points and KILLS >= MANY):
            lives += 1
            assert lives <= 4 * KILLS + 40, f"{self.fired}, left {self.points}"
            # Points first, so that a short run reaches them all.
            point = self.points.pop(0) if self.points else ""
            fired = await self._life(point)
            self._check_after_kill()
            if fired != "random":
                assert fired in self.passed.read_text().split(), f"killed, but not at {fired}"
            counts = self.in_flight >= NEEDED_IN_FLIGHT
            self.fired[fired] += counts
            if point and not (fired == point and counts):
                self.points.append(point)

    def _check_after_kill(self) -> None:
        home = self.daemon.home
        with copy_of(home) as sql:
            assert all_rows(sql, "PRAGMA quick_check")[0][0] == "ok"
            cut_off(sql, self.record)
            check_after_kill(sql, home, self.record)
            check_tasks_after_kill(sql, home, self.record)

    async def _start(self, **environ: str) -> None:
        """Begin a life. Raises ``RuntimeError`` if it ends before it is ready."""
        self.began_at = time.time_ns() // 1_000_000
        self.daemon.launch(**environ)
        ended, pid = tuple(self.lives), self.daemon.pid
        self.lives.append(pid)
        await self.daemon.ready()
        assert marked_by(ended, now=pid) == [], "processes of an ended life"

    async def _life(self, point: str) -> str:
        """Start, let everybody work, have it killed; the point that did it, or ``random``."""
        environ = {}
        if point:
            self.tries[point] += 1
            most = max(1, PASSINGS.get(point, USUAL_PASSINGS) // self.tries[point])
            environ["AGENTSUP_FAULT"] = f"{point}:{self.chance.randint(1, most)}"
            environ["AGENTSUP_FAULT_LOG"] = str(self.passed)
            self.passed.unlink(missing_ok=True)
        try:
            await self._start(**environ)
        except RuntimeError:
            assert point, self.daemon.tail()
            assert await self.daemon.ended() == -signal.SIGKILL, self.daemon.tail()
            return point
        # Lives are short: people who never paused would write more than all of them can do.
        is_behind = len(self.daemon.sql(OPEN)) > MOST_OPEN
        (self.pace.clear if is_behind else self.pace.set)()
        working = self._begin(lambda: True)
        if point:
            with contextlib.suppress(TimeoutError):
                await self.daemon.ended(POINT_S)
        else:
            await self._busy(self.chance.uniform(0.1, 1.2))
        by_itself = not self.daemon.is_running
        if not by_itself:
            self.daemon.kill()
        assert await self.daemon.ended() == -signal.SIGKILL, self.daemon.tail()
        assert point or not by_itself, self.daemon.tail()
        await self._over([*working, *self.answering])
        return point if by_itself else "random"

    async def _busy(self, seconds: float) -> None:
        """A random instant, but not before enough is in flight."""
        async with asyncio.timeout(BOUND_S):
            await asyncio.sleep(seconds)
            while self.in_flight < NEEDED_IN_FLIGHT:
                await asyncio.sleep(0.01)

    def _begin(self, wants_more: Callable[[], bool]) -> list[asyncio.Task[None]]:
        """Those who work; those who answer begin, too."""
        work = [self._work(each, wants_more) for each in self.workers]
        answers: list[Coroutine[Any, Any, None]] = [
            Answerer(self.record, self.chance).live(self.daemon),
            self.jobs.attend(self.daemon),
            *(person.attend(self.daemon) for person in self.people),
        ]
        self.answering = [asyncio.create_task(each) for each in answers]
        return [asyncio.create_task(each) for each in work]

    async def _work(self, worker: Worker, wants_more: Callable[[], bool]) -> None:
        """One whose connection a slow machine has cut comes again."""
        while self.daemon.is_running:
            await worker.live(self.daemon, wants_more)
            if not wants_more() and not worker.is_busy:
                return
            await asyncio.sleep(0.05)

    async def _over(self, work: list[asyncio.Task[None]], within_s: float = 90) -> None:
        done, pending = await asyncio.wait(work, timeout=within_s)
        for task in pending:
            task.cancel()
        for task in self.answering:
            if task.done():
                task.result()
        assert not pending, [vars(each) for each in self.workers if each.is_busy] or pending
        for task in done:
            task.result()

    async def _calm(self) -> None:
        """No more kills, no more work."""
        await self._start()
        working = self._begin(lambda: False)
        await self._over(working, CALM_S)
        await self.stopper.finish(self.daemon)
        try:
            async with asyncio.timeout(CALM_S + ORDERLY_S * len(self._written())):
                while self._unfinished():
                    await asyncio.sleep(0.1)
        except TimeoutError:
            pytest.fail(f"left: {self._unfinished()}")
        for task in self.answering:
            task.cancel()
        assert await self.daemon.stop() == 0
        await asyncio.wait(self.answering)
        assert marked_by(self.lives) == [], "processes of the last life"

    def _unfinished(self) -> list[Any]:
        taken = self.daemon.sql("SELECT raw ->> '$.message.text' AS text FROM received")
        left = self._written() - {row["text"] for row in taken}
        return [*left, *self.daemon.sql(UNFINISHED)]

    def _written(self) -> set[str]:
        return {text for writer in self.writers for text in writer.texts}

    async def close(self) -> None:
        for user in self.users:
            await user.close()
        await self.daemon.close()

    def judge(self, home: Path, seen: Seen) -> Counter[str]:
        """What was found of each kind. ``seen`` are all messages of the bot."""
        with copy_of(home) as sql:
            assert all_rows(sql, "PRAGMA integrity_check")[0][0] == "ok"
            found = check_at_the_end(sql, home, self.record, self.began_at)
            check_tasks_at_the_end(sql, home, self.record)
            found += check_written(sql, self.writers)
            found += check_chats(sql, self.record, seen)
            check_order(self.writers, seen)
            found += self.jobs.check(sql)
            found["paid again"] = check_paid(sql, self.record, self.model.asked)
        return found


TELEGRAM = "SELECT max(outbox_id) FROM outbox WHERE channel = 'telegram'"
ANSWER = (
    f"({TELEGRAM} AND kind = 'answer' AND state = 'delivered' AND body ->> 'repeat_of' IS NULL)"
)
NOTE = f"({TELEGRAM} AND body ->> 'again' IS NOT NULL AND body ->> 'repeat_of' IS NULL)"
TWICE = (
    "CREATE TABLE two AS SELECT * FROM outbox WHERE outbox_id = {};"
    " UPDATE two SET outbox_id = outbox_id + 1000000; INSERT INTO outbox SELECT * FROM two"
)
OF_A_WRITER = (
    "(SELECT max(message_id) FROM messages WHERE kind = 'chat' AND parts LIKE '%say t%'"
    " AND deliver_to ->> '$.channel' = 'telegram')"
)
SURE_RUN = (
    "(SELECT max(run_id) FROM runs WHERE run_id IN (SELECT message_id FROM outbox"
    " WHERE channel = 'telegram' AND kind = 'answer' AND state = 'delivered')"
    " AND run_id NOT IN (SELECT message_id FROM outbox WHERE state = 'unknown'))"
)
DAMAGES = {
    "confirmed and lost": "DELETE FROM messages WHERE message_id = :sent",
    "'state': 'queued'": "UPDATE messages SET state = 'queued', outcome = NULL"
    " WHERE message_id = :sent",
    "not at an end": "UPDATE messages SET state = 'leased', outcome = NULL"
    " WHERE in_reply_to <> '' AND message_id NOT IN (SELECT message_id FROM questions)",
    "'accepted'": "UPDATE counts SET count = count + 1 WHERE state = 'accepted'",
    "completed twice": "INSERT INTO transcript (session_id, message_id, role, text, at)"
    " SELECT session_id, message_id, role, text, at FROM transcript WHERE message_id = :sent",
    "told twice": "INSERT INTO events (at, type, message_id) VALUES (1, 'message.done', :sent)",
    "shown twice": "INSERT INTO events (at, type, data) SELECT at, type, data FROM events"
    " WHERE type = 'chat.out' LIMIT 1",
    "not delivered": "UPDATE outbox SET state = 'pending' WHERE state <> 'unknown'",
    "a wait for nothing": "INSERT INTO waits (waiter_id, target_id, waiter_fence)"
    " VALUES ('a', 'b', 1)",
    "'asked': 'expired'": "INSERT INTO questions (question_id, agent_id, session_id, message_id, kind,"
    " text, options, state, asked_at) SELECT 'q_x', agent_id, session_id, message_id, 'uncertain',"
    " '', '[]', 'expired', 1 FROM messages WHERE message_id = :sent",
    "a task is not where its run is": "UPDATE tasks SET state = 'failed' WHERE task_id = :task",
    "confirmed and lost: Work": "DELETE FROM tasks WHERE task_id = :task",
    "runs are miscounted": "UPDATE tasks SET runs = runs + 1 WHERE task_id = :task",
    "a question for nothing": "UPDATE questions SET state = 'open'"
    " WHERE put_as = '' AND kind <> 'uncertain'",
    "a schedule goes on": "UPDATE schedules SET next_at = 1",
    "written once, 0 messages": f"DELETE FROM messages WHERE message_id = {OF_A_WRITER}",
    "neither there nor in doubt": f"UPDATE outbox SET state = 'dropped' WHERE outbox_id = {ANSWER}",
    "one message for two parts|answer went out twice|not answered once": TWICE.format(ANSWER),
    "one part, two notes": TWICE.format(NOTE),
    "unknown without its note": f"DELETE FROM outbox WHERE outbox_id = {NOTE}",
    "written down by nobody|not answered once": f"DELETE FROM outbox WHERE outbox_id = {ANSWER}",
    "conversation.*other": "UPDATE messages SET deliver_to = json_set(deliver_to,"
    f" '$.conversation', 'other') WHERE message_id = {SURE_RUN}",
    "had its effect 2 times": "",
}
"""What is done to a copy of the home, and what the judge must say to it."""


def the_judge_bites(storm: Storm, place: Path, seen: Seen) -> None:
    """A judge that is content with everything proves nothing."""
    home, record = storm.daemon.home, storm.record
    sent = next(i.message_id for i in record.items if i.terminal == "ok" and i.by == "async")
    task = next(work.task_id for work in record.works if work.terminal == "done")
    lines = [path.read_text() for path in home.glob("agents/*/workspace/effects.txt")]
    once = {line for text in lines for line in text.split()} - set(record.again)
    idle = []
    for number, (saying, damage) in enumerate(DAMAGES.items()):
        copy = place / f"damaged{number}"
        effects = copy / "agents/x/workspace/effects.txt"
        effects.parent.mkdir(parents=True)
        shutil.copy(home / "state.db", copy)
        (copy / "tasks").symlink_to(home / "tasks")
        effects.write_text("".join(lines))
        if number == 0:  # the copies are alike
            storm.judge(copy, seen)
        with contextlib.closing(sqlite3.connect(copy / "state.db", isolation_level=None)) as file:
            for line in (
                damage.replace(":sent", f"'{sent}'").replace(":task", f"'{task}'").split(";")
            ):
                file.execute(line)
            if not damage:
                effects.write_text(f"{effects.read_text()}{min(once)}\n")
            elif not file.total_changes:
                idle.append(saying)
                continue
        with pytest.raises(AssertionError, match=saying):
            storm.judge(copy, seen)
    assert not idle or KILLS < MANY, f"there was nothing to damage: {idle}"
    answers = [each for each in seen if each["message"].get("text", "").startswith("said t")]
    said = answers[0]
    again = {**said, "message": {**said["message"], "message_id": 999_999}}
    with pytest.raises(AssertionError, match="sent twice"):
        storm.judge(home, [*seen, again])
    # One whose sending was interrupted may be missing; one that was surely sent may not.
    losses = ([each for each in seen if each is not said] for said in answers)
    assert any(_is_missed(storm, rest) for rest in losses), "no lost answer was noticed"
    if storm.record.interrupted and KILLS >= MANY:
        storm.record.interrupted.clear()  # as if nothing had been cut off
        with pytest.raises(AssertionError, match="requests"):
            storm.judge(home, seen)


def _is_missed(storm: Storm, seen: Seen) -> bool:
    """Whether the judge says that an answer was lost."""
    try:
        storm.judge(storm.daemon.home, seen)
    except AssertionError as error:
        return "lost" in str(error)
    return False


@pytest.mark.timeout(max(600, KILLS * 12))
async def test_no_kill_loses_or_doubles_anything(tmp_path: Path) -> None:
    print(
        f"replay: TEST_KILL_SEED={SEED} TEST_KILLS={KILLS} "
        ".venv/bin/python -m pytest tests/process/test_storm.py"
    )
    async with (
        FakeTelegramProcess(tmp_path / "fake", limits="count") as fake,
        TelegramDriver(fake.url) as people,
        ModelServer(think) as model,
    ):
        town = TaskChatCluster(people)
        await town.settle(SEED, places=PEOPLE + WRITERS, topics=2)
        agents: list[dict[str, Any]] = [{"name": name, "slots": SLOTS} for name in AGENTS]
        agents[0] |= town.entry()
        jobs = Jobs(tmp_path, random.Random(f"{SEED}.jobs"))
        agents += jobs.agents()
        options = {"base_url": model.base_url, "api_key": "sk-loopback"}
        thinker = {"engine": "llm", "model": "loopback-1", "engine_options": options}
        agents.append({"name": THINKER, "slots": SLOTS, **thinker})
        home = write_home(tmp_path / "home", agents, [*jobs.rules(), *OF_TASKS, *OF_USERS], CONFIG)
        storm = Storm(home, town, model, jobs)
        try:
            await storm.run()
        finally:
            await storm.close()
        seen = await town.seen()
        assert await people.violations() == []
        assert model.violations == []
    found = storm.judge(home, seen)
    print(f"{len(storm.record.items)} items, {len(storm.record.works)} tasks", dict(found))
    print("kills:", dict(storm.fired))
    if KILLS >= MANY:
        assert found["paid again"], "no kill has met a call of the model"
        assert any("unknown" in each for each in found), "nothing was ever in doubt"
    the_judge_bites(storm, tmp_path, seen)
    never = storm.wanted - set(storm.fired)
    assert not never or KILLS < MANY, f"never killed with enough in flight: {sorted(never)}"
