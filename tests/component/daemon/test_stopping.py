"""Stop means stop, over whole agents: exact counts, nothing comes back, the agents stay up."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentsup.model.errors import StoreUnavailable
from agentsup.model.principal import OPERATOR
from tests.component.conftest import Open
from tests.support.virtual_daemon import VirtualDaemon, agent

pytestmark = pytest.mark.virtual

SLOW = {"match": "slow.*", "steps": [{"sleep": 600}]}
DEAF = {"match": "deaf", "steps": [{"hang": True}]}
ASKS = {"match": "q", "steps": [{"question": {"text": "?"}}]}


async def test_counts_are_exact(household: Open) -> None:
    house = await household(
        agent("ann", SLOW, ASKS), agent("ben", SLOW), agent("cat", enabled=False)
    )
    await house.said("ann", "q", conversation="p")
    await house.clock.sleep(1)
    for name in ("ann", "ben"):
        for number in range(3):
            await house.said(name, f"slow {number}")
    await house.said("cat", "waits")
    await house.clock.sleep(1)
    report = await house.daemon.control.stop("all", OPERATOR)
    assert (report.running, report.queued, report.parked) == (2, 5, 1)
    assert (report.agents, report.names) == (3, ("ann", "ben", "cat"))
    assert report.durable
    again = await house.daemon.control.stop("all", OPERATOR)
    assert (again.running, again.queued, again.parked, again.agents) == (0, 0, 0, 0)
    assert {house.state(name) for name in ("main", "ann", "ben")} == {"running"}
    assert (await house.ask("ann", "hello")).outcome == "ok"


async def test_a_deaf_engine_delays_no_stop(household: Open) -> None:
    house = await household(agent("ann", DEAF), *(agent(f"a{n}", SLOW) for n in range(20)))
    await house.said("ann", "deaf")
    for number in range(20):
        await house.said(f"a{number}", "slow")
    await house.clock.sleep(1)
    report = await house.daemon.control.stop("all", OPERATOR)
    assert report.running == 21
    assert report.elapsed_ms < 1000
    assert (await house.ask("ann", "hello")).outcome == "ok"


async def test_without_a_disk_it_holds_in_memory_and_says_so(
    household: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = await household(agent("ann", SLOW))
    first, second = await house.said("ann", "slow"), await house.said("ann", "slow 2")
    await house.clock.sleep(1)
    write = house.db.write

    async def full(fn: Any, *args: Any, name: str = "", **more: Any) -> Any:
        raise StoreUnavailable("the disk is full")

    monkeypatch.setattr(house.db, "write", full)
    reply = await house.command("main", "/stop_all")
    assert "could not record it" in reply.text
    monkeypatch.setattr(house.db, "write", write)
    await house.until(lambda: _all_cancelled(house, first, second))


async def _all_cancelled(house: VirtualDaemon, *ids: str) -> bool:
    return {await house.state_of(i) for i in ids} == {"cancelled"}


async def test_two_stops_at_once(household: Open) -> None:
    house = await household(agent("ann", SLOW))
    ids = [await house.said("ann", "slow"), await house.said("ann", "slow 2")]
    await house.clock.sleep(1)
    control = house.daemon.control
    reports = await asyncio.gather(*(control.stop("all", OPERATOR) for _ in range(2)))
    assert sum(r.running + r.queued for r in reports) == 2, "each message is counted once"
    assert await _all_cancelled(house, *ids)
    assert (await house.ask("ann", "hello")).outcome == "ok"


async def test_what_was_accepted_after_a_stop_is_worked_on(household: Open) -> None:
    house = await household(agent("ann", SLOW))
    await house.said("ann", "slow")
    await house.clock.sleep(1)
    stopping = asyncio.ensure_future(house.daemon.control.stop("all", OPERATOR))
    await house.clock.sleep(0.001)
    after = await house.said("ann", "hello", conversation="two")
    await stopping
    assert (await house.daemon.mailbox.wait_done(after, 60)).outcome == "ok"


async def test_a_stopped_asker_gets_no_late_result(household: Open) -> None:
    asks = {
        "match": "go",
        "steps": [
            {"tool": {"name": "ask_agent_async", "args": {"to": "ben", "message": "work"}}},
            {"say": "asked"},
        ],
    }
    house = await household(
        agent("ann", asks),
        agent("ben", {"match": "work", "steps": [{"sleep": 60}, {"say": "late"}]}),
    )
    await house.ask("ann", "go")
    ann = house.roster.entry("ann").agent_id
    await house.daemon.control.stop(f"agent:{ann}", OPERATOR)
    await house.clock.sleep(120)
    kinds = [m.kind for m in await house.daemon.mailbox.list(agent_id=ann)]
    assert "reply" not in kinds
    assert not any("late" in text for text in house.texts())
