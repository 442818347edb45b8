"""The relay under many interleavings, with channels that misbehave and processes that die."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from agentsup.fakes.entropy import SeededEntropy
from agentsup.mailbox.delivery import outbox
from agentsup.mailbox.delivery.attempt import RelayLimits
from agentsup.mailbox.delivery.relay import Relay
from agentsup.model.channel import Delivery, DeliveryOutcome
from agentsup.model.errors import StoreUnavailable
from agentsup.store import Database, Tx
from tests.support.empty_store import lay_store
from tests.support.inline_runner import InlineRunner
from tests.support.loop_clock import LoopClock
from tests.support.recording_channel import RecordingChannel, ids
from tests.support.simloop import SimRun, run_seeded, seeds

RETRY = Delivery(DeliveryOutcome.RETRY, "busy")
UNKNOWN = Delivery(DeliveryOutcome.UNKNOWN, "lost")
CONVERSATIONS = ("c0", "c1", "c2")
# A net that never comes: a lost wake would show as a part that is not delivered in time.
LIMITS = RelayLimits(slots=2, lanes=2, burst=2, net_s=1e6, timeout_s=5.0, slow_s=0.5)


class Scenario:
    def __init__(self, seed: int, path: Path, *, max_delay_s: float) -> None:
        self.rng = random.Random(seed)
        self.clock = LoopClock()
        self.entropy = SeededEntropy(self.clock, seed)
        self.path = path
        self.max_delay_s = max_delay_s
        self.boots = 0
        self.channel = RecordingChannel(idempotent=self.rng.random() < 0.3)
        self.accepted: list[int] = []

    async def boot(self) -> None:
        self.boots += 1
        self.runner = InlineRunner(
            self.path, clock=self.clock, entropy=self.entropy, max_delay_s=self.max_delay_s
        )
        self.database = await Database.open(
            lay_store(self.path), clock=self.clock, runner=self.runner
        )
        relay = Relay(
            self.database,
            self.clock,
            self.entropy,
            {"recording": self.channel},
            boot_id=f"boot{self.boots}",
            limits=LIMITS,
        )
        self.draining = asyncio.Event()
        self.task = asyncio.create_task(relay.run(lambda: None, self.draining))

    async def kill(self) -> None:
        self.runner.kill()
        self.task.cancel()
        await asyncio.wait({self.task})
        if not self.task.cancelled():
            self.task.exception()  # the store died under it: that is the point
        await self.database.close()

    async def add(self) -> None:
        conversation = self.rng.choice(CONVERSATIONS)

        def add(tx: Tx) -> int:
            return outbox.add_tx(
                tx,
                agent_id="a",
                channel="recording",
                conversation=conversation,
                kind="answer",
                body={"text": "x"},
                at=1,
            )

        try:
            self.accepted.append(await self.database.write(add))
        except StoreUnavailable:
            return  # not confirmed

    async def pending(self) -> int:
        return int(
            await self.database.read(
                lambda r: r.scalar("SELECT count(*) FROM outbox WHERE state = 'pending'")
            )
        )

    async def settle(self) -> None:
        deadline = self.clock.monotonic() + 900
        while await self.pending():
            assert self.clock.monotonic() < deadline, "a part was forgotten"
            await self.clock.sleep(0.5)
        self.draining.set()
        await self.task


async def misbehave(scenario: Scenario) -> None:
    rng = scenario.rng
    acts = [RETRY, UNKNOWN, ValueError("bug"), asyncio.Event(), None]
    for act in rng.choices(acts, k=10):
        if act is None:
            scenario.channel.plan(Delivery(DeliveryOutcome.DELIVERED))
        else:
            scenario.channel.plan(act)  # type: ignore[arg-type]  # a list of mixed acts
    await scenario.boot()
    for _ in range(rng.randint(1, 3)):
        adding = [asyncio.create_task(scenario.add()) for _ in range(rng.randint(1, 8))]
        await scenario.clock.sleep(rng.uniform(0, 0.05))
        if rng.random() < 0.5:
            await scenario.kill()
            await asyncio.wait(adding)
            await scenario.boot()
        else:
            await asyncio.wait(adding)
            await scenario.clock.sleep(rng.choice([0.0, 0.0, 0.01, 3.0]))
    await scenario.settle()
    await judge(scenario)
    await scenario.database.close()


async def judge(scenario: Scenario) -> None:
    rows = await scenario.database.read(
        lambda r: [dict(row) for row in r.all("SELECT * FROM outbox ORDER BY outbox_id")]
    )
    state = {row["outbox_id"]: row["state"] for row in rows}
    assert set(scenario.accepted) <= set(state), "an accepted part is gone"
    assert set(state.values()) <= {"delivered", "unknown"}
    told = await scenario.database.read(
        lambda r: [row[0] for row in r.all("SELECT data ->> 'outbox_id' FROM events")]
    )
    assert sorted(told) == [number for number, how in state.items() if how == "delivered"]
    sent = Counter(ids(scenario.channel.sent))
    for number, how in state.items():
        assert how != "delivered" or sent[number] >= 1, "told as delivered and never sent"
        assert scenario.channel.idempotent or sent[number] <= 1, "a blind part was sent twice"
    for conversation in CONVERSATIONS:
        first = list(
            dict.fromkeys(
                p.outbox_id for p in scenario.channel.sent if p.conversation == conversation
            )
        )
        assert first == sorted(first), "out of order"
    noted = {number for row in rows if (number := _again(row["body"])) is not None}
    own = {row["outbox_id"] for row in rows if _again(row["body"]) is None}
    assert noted == {n for n, how in state.items() if how == "unknown" and n in own}


def _again(body: str) -> int | None:
    found = json.loads(body).get("again")
    return None if found is None else int(found)


@pytest.mark.parametrize("max_delay_s", [0.0, 0.005])
def test_whatever_happens_every_part_ends_once_in_order_and_told(
    tmp_path: Path, max_delay_s: float
) -> None:
    def scenario(run: SimRun) -> Coroutine[Any, Any, None]:
        path = tmp_path / f"{run.seed}.db"
        return misbehave(Scenario(run.seed, path, max_delay_s=max_delay_s))

    for seed in seeds(60):
        run_seeded(seed, scenario)
