"""SIGKILL of the daemon and of the homeserver under traffic (P1, P2): each text is answered once.

Nothing may even be unknown: the homeserver tells a repeated transaction id from a new one. A person
goes on writing in several rooms while either is dead, and the way between the two loses answers,
fails and dawdles. `AGENTSUP_KILLS` says how many kills (12, at most 300), `AGENTSUP_KILL_SEED`
replays a schedule.
"""

import asyncio
import contextlib
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from agentsup.kit.faults import MATRIX_POINTS
from agentsup.testing.daemon_process import DaemonProcess
from agentsup.testing.faulty_proxy import FaultyProxy
from agentsup.testing.matrix_driver import MatrixPerson
from agentsup.testing.synapse import Synapse
from tests.live.matrix_town import BOT_PASSWORD, Town, accounts, settled

KILLS = min(300, int(os.environ.get("AGENTSUP_KILLS", "12")))
SEED = int(os.environ.get("AGENTSUP_KILL_SEED") or random.SystemRandom().randrange(1 << 32))
ROOMS = 4
TEXTS = max(20, KILLS * 2)
"""For each of the rooms."""
CHUNKS = [f"{word} of a longer answer, " for word in ("first", "second", "third", "fourth")]
RULES: list[dict[str, Any]] = [
    {"match": r"say (\S+)", "steps": [{"say": "said $1"}]},
    {"match": r"tell (\S+)", "steps": [{"stream": {"chunks": [*CHUNKS, "said $1"], "every": 0.4}}]},
]
STREAM_EVERY = 5
"""One of so many texts gets an answer that is written for a while."""
CONFIG = "[limits]\nattempts = 100\ncrashes = 100\n"
POINTS = (*sorted(MATRIX_POINTS), "outbox.before_deliver", "outbox.after_deliver")
POINT_S = 4.0
SERVER_EVERY = 4
"""In one of so many lives the homeserver is killed too."""


class World:
    """The person's texts, the homeserver's deaths and the daemon's."""

    def __init__(self, town: Town, synapse: Synapse, daemon: DaemonProcess) -> None:
        self.town = town
        self.synapse = synapse
        self.daemon = daemon
        self.chance = random.Random(SEED)
        self.written = [0] * ROOMS
        self.server_deaths = 0

    async def write(self, upto: int) -> None:
        """In each room until ``upto`` texts are there, all at their own pace."""

        async def one(number: int) -> None:
            while self.written[number] < min(upto, TEXTS):
                index = self.written[number]
                self.written[number] += 1
                verb = "say" if index % STREAM_EVERY else "tell"
                await self.town.person.say(self.town.rooms[number], f"{verb} {number}-{index}")
                await asyncio.sleep(self.chance.uniform(0, 0.05))

        async with asyncio.TaskGroup() as writers:
            for number in range(ROOMS):
                writers.create_task(one(number))

    async def server_dies(self) -> None:
        """Somewhere in the life of a daemon."""
        await asyncio.sleep(self.chance.uniform(0.5, 2.0))
        await self.synapse.kill()
        await asyncio.sleep(self.chance.uniform(0.0, 0.5))
        await self.synapse.start()
        self.server_deaths += 1

    async def life(self, point: str, upto: int, *, with_server: bool) -> str:
        """Start, write, have it killed; what did it."""
        environ = {"AGENTSUP_FAULT": f"{point}:{self.chance.randint(1, 4)}"} if point else {}
        self.daemon.launch(**environ)
        fired = "random"
        async with asyncio.TaskGroup() as meanwhile:
            meanwhile.create_task(self.write(upto))
            if with_server:
                meanwhile.create_task(self.server_dies())
            with contextlib.suppress(RuntimeError):  # killed before it was ready
                await self.daemon.ready()
            if point:
                with contextlib.suppress(TimeoutError):
                    await self.daemon.ended(POINT_S)
            else:
                await asyncio.sleep(self.chance.uniform(0.0, 1.5))
            died_alone = not self.daemon.is_running
            if not died_alone:
                self.daemon.kill()
            assert await self.daemon.ended() == -signal.SIGKILL, self.daemon.tail()
            assert point or not died_alone, self.daemon.tail()
            if died_alone:
                fired = point
        return fired


@pytest.fixture
async def world(own_synapse: Synapse, tmp_path: Path) -> AsyncIterator[World]:
    bot, ann = await accounts(own_synapse)
    async with (
        FaultyProxy(own_synapse.url, seed=SEED) as proxy,
        MatrixPerson(own_synapse.url, ann, BOT_PASSWORD) as person,
    ):
        town = Town(person, bot, proxy.url)
        await town.furnish(ROOMS)
        home = town.home(tmp_path / "home", RULES, CONFIG, slots=ROOMS)
        daemon = DaemonProcess(home)
        try:
            await daemon.start()
            await town.joined()
            assert await daemon.stop() == 0
            for kind in ("lost", "half", "status", "cut", "limited", "late"):
                proxy.fault(kind, probability=0.01, retry_after_ms=300, seconds=0.5)
            yield World(town, own_synapse, daemon)
        finally:
            await daemon.close()


def expected(number: int, index: int) -> str:
    """The whole answer to one text."""
    return ("" if index % STREAM_EVERY else "".join(CHUNKS)) + f"said {number}-{index}"


def judge(seen: Sequence[Sequence[str]]) -> int:
    """Each text of each room answered once, whole and in order, and nothing else; how many."""
    total = 0
    for number, texts in enumerate(seen):
        times = Counter(texts)
        wanted = [expected(number, index) for index in range(TEXTS)]
        for text in wanted:
            assert times[text] > 0, f"lost: {text}"
            assert times[text] == 1, f"answered {times[text]} times: {text}"
            total += 1
        others = [text for text in texts if text not in wanted]
        assert not others, f"half an answer, or one to nothing, in room {number}: {others}"
        assert list(texts) == wanted, f"out of order in room {number}"
    return total


@pytest.mark.timeout(max(180, KILLS * 12))
async def test_no_kill_of_either_loses_or_doubles_an_answer(world: World) -> None:
    print(f"replay: AGENTSUP_KILL_SEED={SEED} AGENTSUP_KILLS={KILLS}")
    waiting = list(POINTS)
    fired: Counter[str] = Counter()
    for number in range(KILLS):
        point = waiting[0] if waiting else ""
        did = await world.life(
            point,
            TEXTS * (number + 1) // (KILLS + 1),
            with_server=number % SERVER_EVERY == SERVER_EVERY - 1,
        )
        fired[did] += 1
        if point:
            waiting.pop(0)
            if did != point:
                waiting.append(point)
    await world.daemon.start()
    await world.write(TEXTS)
    town = world.town

    def all_answered() -> bool:
        return all(
            sum("said" in text for text in town.answers(room)) >= TEXTS for room in town.rooms
        )

    with contextlib.suppress(TimeoutError):  # the judge says what is missing
        async with asyncio.timeout(60 + TEXTS):
            while not all_answered():
                await town.person.sync()
    await settled(world.daemon)
    assert (
        world.daemon.sql("SELECT * FROM outbox WHERE state NOT IN ('delivered', 'dropped')") == []
    )
    await town.person.sync(timeout_ms=0)
    seen = [
        [one.text for one in town.person.messages(room, by=town.bot) if one.kind != "m.notice"]
        for room in town.rooms
    ]
    found = judge(seen)
    print(f"{found} answers, {dict(fired)}, the homeserver killed {world.server_deaths} times")
    assert not waiting or len(POINTS) * 2 > KILLS, f"these points never killed: {waiting}"
    assert world.server_deaths >= KILLS // SERVER_EVERY
    # A judge that is content with everything proves nothing.
    with pytest.raises(AssertionError, match="lost"):
        judge([texts[len(texts) // 2 :] for texts in seen])
    with pytest.raises(AssertionError, match="2 times"):
        judge([[*texts, *texts[:5]] for texts in seen])
    with pytest.raises(AssertionError, match="half"):
        judge([[*texts, CHUNKS[0]] for texts in seen])
    with pytest.raises(AssertionError, match="out of order"):
        judge([texts[::-1] for texts in seen])
