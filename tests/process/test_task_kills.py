"""Tasks under kills (P1, P2): SIGKILL at any instant and at every fault point of background work.

One home lives through all kills, with tasks given over HTTP, by agents and by people in Telegram,
questions, resumes, cancels and schedules every one or two seconds; another with an agent whose model
costs. The Bot API server is a process of its own, on a way that loses messages and answers. A kill
counts only with at least five pieces of work in flight. ``AGENTSUP_KILLS`` says how many kills count
(40, at most 300), ``AGENTSUP_KILL_SEED`` replays a schedule.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentsup.fakes.telegram import TelegramDriver
from agentsup.kit.faults import TASK_POINTS
from tests.support.bound import BOUND_S
from tests.support.chat_oracle import check_chats, place_of, plain
from tests.support.daemon_process import DaemonProcess, write_home
from tests.support.model_server import ModelServer
from tests.support.preloaded_process import DAEMON, WITH_TELEGRAM
from tests.support.task_chat_traffic import Person, TaskChatCluster
from tests.support.task_oracle import (
    check_paid,
    check_tasks_after_kill,
    check_tasks_at_the_end,
    cut_off,
)
from tests.support.task_traffic import (
    AGENTS,
    CONFIG,
    RULES,
    SLOTS,
    THINKER,
    Pressing,
    TaskClient,
    TaskRecord,
    think,
)
from tests.support.telegram_process import UNHURRIED, FakeTelegramProcess

pytestmark = pytest.mark.process

KILLS = min(300, int(os.environ.get("AGENTSUP_KILLS", "40")))
PAID_KILLS = max(5, KILLS // 8)
SEED = int(os.environ.get("AGENTSUP_KILL_SEED") or random.SystemRandom().randrange(1 << 32))
GIVERS = 16
PEOPLE = (0, 2, 4, 6, 9, 12)
"""Which of them are people in Telegram; none is one who keeps schedules."""
NEEDED_IN_FLIGHT = 5
POINT_S = 2.0
"""A point that was not passed by then is left for a later life, with an earlier passing."""
PASSINGS = 4
TASKS = 100


class Kills:
    """One run: a home, its givers, and the schedule of kills. With ``model`` the givers have its
    agent think, and kills come while it is asked."""

    def __init__(
        self,
        home: Path,
        kills: int,
        seed: int,
        model: ModelServer | None = None,
        town: TaskChatCluster | None = None,
    ) -> None:
        self.chance = random.Random(seed)
        if town is None:
            self.daemon = DaemonProcess(home, loaded=DAEMON)
        else:
            self.daemon = DaemonProcess(home, command=("-c", UNHURRIED), loaded=WITH_TELEGRAM)
        self.works = TaskRecord()
        self.passed = home.parent / "passed-points"
        kind = "" if model is None else "think"
        self.givers = [
            TaskClient(n, random.Random(seed + n), self.works, kind) for n in range(GIVERS)
        ]
        if town is not None:
            for number, place in zip(PEOPLE, town.places, strict=True):
                chance = random.Random(seed + number)
                self.givers[number] = Person(number, chance, self.works, town.people, place)
        self.kills = kills
        self.fired: Counter[str] = Counter()
        self.points = sorted(TASK_POINTS) if model is None else []
        self.model = model
        self.chance.shuffle(self.points)
        self.tries: Counter[str] = Counter()
        self.lives = 0

    async def run(self) -> None:
        counted = 0
        await self._arrive()
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

    async def _arrive(self) -> None:
        """A first life without kills, in which each giver writes in its conversation."""
        await self.daemon.start()
        await asyncio.gather(*(giver.arrive(self.daemon) for giver in self.givers))
        assert await self.daemon.stop() == 0
        if self.model is not None:
            self.model.asked.clear()

    async def _life(self, point: str) -> str:
        """Start, let the givers work, have it killed; the point that did it, or ``random``."""
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
        return point if by_itself else "random"

    async def _busy(self, seconds: float) -> None:
        """A random instant, but not before enough is in flight."""
        async with asyncio.timeout(BOUND_S):
            if self.model is not None:
                await self.model.wait_asked(len(self.model.asked) + self.chance.randint(1, GIVERS))
            await asyncio.sleep(seconds)
            while self.works.in_flight < NEEDED_IN_FLIGHT:
                await asyncio.sleep(0.01)

    def _begin(self, wants_more: Callable[[], bool]) -> list[asyncio.Task[None]]:
        """First the givers, and then those who answer."""
        work = [giver.live(self.daemon, wants_more) for giver in self.givers]
        work.append(Pressing(self.works, self.chance).live(self.daemon))
        work += [each.attend(self.daemon) for each in self.givers if isinstance(each, Person)]
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
        everybody = self._begin(lambda: False)
        givers, answering = everybody[:GIVERS], everybody[GIVERS:]
        _, late = await asyncio.wait(givers, timeout=90)
        assert not late, [giver.work for giver in self.givers if giver.work is not None]
        await self._over(givers)
        # The store of another process tells of no change, and its last change may have no event.
        # An edit that the platform had no room for is tried again after 30 s.
        looks = 1200
        while (left := self._unfinished()) and looks:
            looks -= 1
            await asyncio.sleep(0.1)
        assert not left, left
        for each in answering:
            each.cancel()
        assert await self.daemon.stop() == 0
        await asyncio.wait(answering)

    def _unfinished(self) -> list[dict[str, Any]]:
        """A row of what still has to end; empty when nothing has."""
        return self.daemon.sql(
            "SELECT message_id AS id, state FROM messages"
            " WHERE state IN ('queued', 'leased', 'parked')"
            " UNION ALL SELECT outbox_id, state FROM outbox WHERE state = 'pending'"
            " UNION ALL SELECT q.question_id, q.state FROM questions q JOIN outbox o"
            " ON o.message_id = q.message_id AND o.body ->> 'question_id' = q.question_id"
            " WHERE o.channel = 'telegram' AND o.kind = 'question' AND o.state = 'delivered'"
            " AND q.question_id NOT IN (SELECT question_id FROM question_ends) LIMIT 1"
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
    "task_": "DELETE FROM runs WHERE slot_at = (SELECT max(slot_at) FROM runs WHERE skip_reason IS NOT NULL)",
    r"result_text|^\[\]": "DELETE FROM events WHERE type = 'chat.out'",
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
        if number == 0:  # the copies are alike
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


OF_TELEGRAM = "SELECT max(outbox_id) FROM outbox WHERE channel = 'telegram'"
ANSWER = (
    f"({OF_TELEGRAM} AND kind = 'answer' AND state = 'delivered' AND body ->> 'repeat_of' IS NULL)"
)
NOTE = f"({OF_TELEGRAM} AND body ->> 'again' IS NOT NULL AND body ->> 'repeat_of' IS NULL)"
SURE_RUN = (
    "(SELECT max(run_id) FROM runs WHERE run_id IN (SELECT message_id FROM outbox"
    " WHERE channel = 'telegram' AND kind = 'answer' AND state = 'delivered')"
    " AND run_id NOT IN (SELECT message_id FROM outbox WHERE state = 'unknown'))"
)
CHAT_DAMAGES = {
    "unknown without its note": f"DELETE FROM outbox WHERE outbox_id = {NOTE}",
    "one part, two notes": f"CREATE TABLE two AS SELECT * FROM outbox WHERE outbox_id = {NOTE};"
    " UPDATE two SET outbox_id = outbox_id + 1000000; INSERT INTO outbox SELECT * FROM two",
    "a note for nothing": "UPDATE outbox SET state = 'delivered', platform_ids = '[1]'"
    " WHERE state = 'unknown'",
    "neither there nor in doubt": f"UPDATE outbox SET state = 'dropped' WHERE outbox_id = {ANSWER}",
    "lost, or one message for two parts": "CREATE TABLE two AS SELECT * FROM outbox"
    f" WHERE outbox_id = {ANSWER}; UPDATE two SET outbox_id = outbox_id + 1000000;"
    " INSERT INTO outbox SELECT * FROM two",
    "written down by nobody": f"DELETE FROM outbox WHERE outbox_id = {ANSWER}",
    "nobody was told": f"UPDATE messages SET outcome = 'failed' WHERE message_id = {SURE_RUN};"
    f" DELETE FROM outbox WHERE message_id = {SURE_RUN} AND kind <> 'question'",
    "'conversation': 'other'": "UPDATE messages SET deliver_to = json_set(deliver_to,"
    f" '$.conversation', 'other') WHERE message_id = {SURE_RUN}",
}
"""What is done to a copy of the store, and what the judge of the chats must say to it."""

Seen = list[dict[str, Any]]


def the_judge_of_chats_bites(kills: Kills, place: Path, seen: Seen) -> None:
    """Nor does one that finds everything in the chats in order, whatever stands there."""
    home = kills.daemon.home
    for number, (saying, damage) in enumerate(CHAT_DAMAGES.items()):
        copy = place / f"doubtful{number}"
        copy.mkdir()
        shutil.copy(home / "state.db", copy)
        with contextlib.closing(sqlite3.connect(copy / "state.db")) as file:
            file.executescript(damage)
        with pytest.raises(AssertionError, match=saying):
            check_chats(copy, kills.works, seen)
    sure: dict[tuple[str, int], str] = {
        (row["conversation"], int(json.loads(row["platform_ids"])[0])): row["kind"]
        for row in kills.daemon.sql(
            "SELECT kind, conversation, platform_ids FROM outbox"
            " WHERE channel = 'telegram' AND state = 'delivered' AND body ->> 'repeat_of' IS NULL"
        )
    }

    def kind_of(record: dict[str, Any]) -> str:
        return sure.get((place_of(record), record["message"]["message_id"]), "in doubt")

    def others(record: dict[str, Any]) -> Seen:
        return [each for each in seen if each is not record]

    def said_again(record: dict[str, Any], **changes: Any) -> dict[str, Any]:
        return {**record, "message": {**record["message"], **changes}}

    doubtful = Counter(
        (row["conversation"], plain(row["text"]))
        for row in kills.daemon.sql(
            "SELECT conversation, body ->> 'text' AS text FROM outbox"
            " WHERE channel = 'telegram' AND state <> 'delivered'"
        )
    )

    def is_alone(record: dict[str, Any]) -> bool:
        """Whether no part in doubt but its own could be taken for it."""
        text = record["message"].get("text", "")
        said = doubtful[place_of(record), plain(text)]
        # What an answer said before an edit counts as well, so damage to it alone would not show.
        is_kept = kind_of(record) == "answer" and any(
            each.get("text", "") == text for each in record["history"]
        )
        return said == (kind_of(record) == "in doubt") and not is_kept

    for kind in ("answer", "question", "in doubt"):
        record = next(each for each in seen if kind_of(each) == kind and is_alone(each))
        twice = [*seen, said_again(record, message_id=999_999)]
        with pytest.raises(AssertionError, match="sent twice"):
            check_chats(home, kills.works, twice)
        if kind == "in doubt":
            continue  # that one may be missing
        with pytest.raises(AssertionError, match="lost"):
            check_chats(home, kills.works, others(record))
        elsewhere = said_again(record, message_thread_id=77)
        with pytest.raises(AssertionError, match="lost"):
            check_chats(home, kills.works, [*others(record), elsewhere])
        open_still = said_again(record, reply_markup={"inline_keyboard": []}, text="else")
        saying = "still be answered" if kind == "question" else "not what was to be said"
        with pytest.raises(AssertionError, match=saying):
            check_chats(home, kills.works, [*others(record), open_still])


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
    async with (
        FakeTelegramProcess(tmp_path / "fake", limits="count") as fake,
        TelegramDriver(fake.url) as people,
    ):
        town = TaskChatCluster(people)
        await town.settle(SEED)
        agents: list[dict[str, Any]] = [{"name": name, "slots": SLOTS} for name in AGENTS]
        agents[0] |= town.entry()
        home = write_home(tmp_path / "home", agents, RULES, CONFIG)
        kills = Kills(home, KILLS, SEED, town=town)
        try:
            await kills.run()
        finally:
            await kills.daemon.close()
        seen = await town.seen()
        violations = await people.violations()
    assert violations == []
    found = check_chats(home, kills.works, seen)
    print(summary(kills))
    print("told in Telegram:", dict(found))
    works = kills.works.works
    assert len(works) >= min(TASKS, 2 * KILLS)
    assert 4 * sum(bool(work.place) for work in works) >= len(works), "too few are of people"
    assert any("unknown" in each for each in found), "nothing was ever in doubt"
    the_judge_bites(kills, tmp_path)
    the_judge_of_chats_bites(kills, tmp_path, seen)
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
