"""The relay on the machine's own clock, threads and disk."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agentsup.kit.clock import SystemClock
from agentsup.kit.entropy import SystemEntropy
from agentsup.mailbox.delivery import outbox
from agentsup.mailbox.delivery.relay import Relay
from agentsup.store import Database, Tx
from tests.support.bound import BOUND_S
from tests.support.empty_store import lay_store
from tests.support.recording_channel import RecordingChannel

PARTS = 1000
CONVERSATIONS = 50


@pytest.mark.parametrize("idempotent", [False, True])
async def test_a_thousand_parts_share_commits_and_keep_their_order(
    tmp_path: Path, *, idempotent: bool
) -> None:
    clock = SystemClock()
    database = await Database.open(lay_store(tmp_path / "state.db"), clock=clock)
    channel = RecordingChannel(idempotent=idempotent)
    relay = Relay(database, clock, SystemEntropy(clock), {channel.name: channel}, boot_id="b1")

    def add(tx: Tx) -> None:
        for number in range(PARTS):
            outbox.add_tx(
                tx,
                agent_id="a",
                channel=channel.name,
                conversation=f"c{number % CONVERSATIONS}",
                kind="answer",
                body={"text": str(number)},
                at=clock.now_ms(),
            )

    ready, draining = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(relay.run(ready.set, draining))
    await ready.wait()
    await database.write(add)
    commits = database.stats.commits
    await channel.wait_sent(PARTS, timeout_s=BOUND_S)
    draining.set()
    await task
    assert database.stats.commits - commits < PARTS / 2
    for conversation in range(CONVERSATIONS):
        assert channel.texts(f"c{conversation}") == [
            str(number) for number in range(conversation, PARTS, CONVERSATIONS)
        ]
    states = (await database.read(outbox.counts))[channel.name]
    assert (states["delivered"], states["pending"]) == (PARTS, 0)
    await database.close()
