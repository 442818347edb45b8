"""SIGKILL of the daemon and of the homeserver under traffic (P1, P2): each thing is answered once.

Nothing may even be unknown: the homeserver tells a repeated transaction id from a new one. A person
goes on writing in several rooms while either is dead, sends files, answers questions, gives
commands and corrects texts, and the way between the two loses answers, fails and dawdles.
``TEST_KILLS`` says how many kills (12, at most 300), ``TEST_KILL_SEED`` replays a schedule.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from agentsup.kit.faults import MATRIX_POINTS
from tests.live.kill_harness import (
    CHUNKS,
    RESTARTED,
    RULES,
    Presser,
    Room,
    act,
    answered,
    judge,
    room_of,
)
from tests.live.matrix_cluster import BOT_PASSWORD, MatrixCluster, accounts, settled
from tests.support.daemon_process import DaemonProcess
from tests.support.faulty_proxy import FaultyProxy
from tests.support.matrix_driver import MatrixPerson
from tests.support.synapse import Synapse

KILLS = min(300, int(os.environ.get("TEST_KILLS", "12")))
SEED = int(os.environ.get("TEST_KILL_SEED") or random.SystemRandom().randrange(1 << 32))
ROOMS = 4
TEXTS = max(20, KILLS * 2)
"""For each of the rooms."""
CONFIG = "[limits]\nattempts = 100\ncrashes = 100\n"
POINTS = (*sorted(MATRIX_POINTS), "outbox.before_deliver", "outbox.after_deliver")
POINT_S = 4.0
SERVER_EVERY = 4
"""In one of so many lives the homeserver is killed too."""


class World:
    """The person's texts, the homeserver's deaths and the daemon's."""

    def __init__(self, town: MatrixCluster, synapse: Synapse, daemon: DaemonProcess) -> None:
        self.town = town
        self.synapse = synapse
        self.daemon = daemon
        self.chance = random.Random(SEED)
        self.written = [0] * ROOMS
        self.server_deaths = 0

    async def write(self, upto: int, *, is_calm: bool = False) -> None:
        """In each room until ``upto`` texts are there, all at their own pace."""

        async def one(number: int) -> None:
            while self.written[number] < min(upto, TEXTS):
                index = self.written[number]
                self.written[number] += 1
                await act(self.town, number, index, self.chance, is_calm=is_calm)
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
        town = MatrixCluster(person, bot, proxy.url)
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


async def traffic(world: World, fired: Counter[str], waiting: list[str]) -> None:
    """All lives and deaths, and then time for what is left to do."""
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
    await world.write(TEXTS, is_calm=True)
    town = world.town
    with contextlib.suppress(TimeoutError):  # the judge says what is missing
        async with asyncio.timeout(90 + TEXTS):
            while not all(answered(town, number, TEXTS) for number in range(ROOMS)):
                await town.person.sync()


@pytest.mark.timeout(max(240, KILLS * 14))
async def test_no_kill_of_either_loses_or_doubles_an_answer(world: World) -> None:
    print(f"replay: TEST_KILL_SEED={SEED} TEST_KILLS={KILLS}")
    waiting = list(POINTS)
    fired: Counter[str] = Counter()
    town = world.town
    async with asyncio.TaskGroup() as hands:
        pressing = hands.create_task(Presser(town).run())
        await traffic(world, fired, waiting)
        pressing.cancel()
    await settled(world.daemon)
    # A note that something waited is taken back when it does no longer.
    left = world.daemon.sql(
        "SELECT * FROM outbox WHERE state <> 'delivered'"
        " AND NOT (state = 'dropped' AND kind = 'notice')"
    )
    assert left == []
    await town.person.sync(timeout_ms=0)
    seen = [await room_of(town, number) for number in range(ROOMS)]
    found = judge(seen, TEXTS)
    print(f"{dict(found)}, {dict(fired)}, the homeserver killed {world.server_deaths} times")
    assert not waiting or len(POINTS) * 2 > KILLS, f"these points never killed: {waiting}"
    assert world.server_deaths >= KILLS // SERVER_EVERY
    condemns(seen)


def condemns(seen: list[Room]) -> None:
    """A judge that is content with everything proves nothing."""
    first = seen[0]
    texts, notices, files = first.texts, first.notices, first.files
    ended = next(text for text in texts if "✔" in text)
    reply = next(text for text in notices if "0-7" in text or RESTARTED in text)
    wrong = {
        "lost": replace(first, texts=texts[len(texts) // 2 :]),
        "2 times": replace(first, texts=(*texts, *texts[:1])),
        "half": replace(first, texts=(*texts, CHUNKS[0])),
        "out of order": replace(first, texts=texts[::-1]),
        "lost: the file": replace(first, files=files[1:]),
        "sent 2 times": replace(first, files=(*files, files[0])),
        "another file": replace(first, files=((files[0][0], b"x"), *files[1:])),
        "files to nothing": replace(first, files=(*files, ("x", b"x"))),
        "does not say how": replace(
            first, texts=tuple(each.partition("\n")[0] if each == ended else each for each in texts)
        ),
        "without an answer": replace(
            first, notices=tuple(each for each in notices if each != reply)
        ),
        "stands there 0": replace(first, texts=tuple(each for each in texts if each != ended)),
    }
    for words, room in wrong.items():
        with pytest.raises(AssertionError, match=words):
            judge([room, *seen[1:]], TEXTS)
