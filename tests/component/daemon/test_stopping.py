"""Stop means stop, over whole agents: exact counts, nothing comes back, the agents stay up."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentsup.model.errors import LeaseLost, StoreUnavailable
from agentsup.model.principal import OPERATOR
from tests.component.conftest import Open
from tests.support.virtual_daemon import VirtualDaemon, agent

pytestmark = pytest.mark.virtual

SLOW = {"match": "slow.*", "steps": [{"sleep": 600}]}


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


async def test_a_token_of_a_turn_that_is_gone_asks_for_nothing(household: Open) -> None:
    house = await household(agent("ann", SLOW))
    message_id = await house.said("ann", "slow")
    await house.clock.sleep(1)
    fleet = house.daemon.fleet
    turn = fleet.turn_behind(message_id)
    assert turn is not None
    assert turn.lease.message.message_id == message_id
    await house.command("ann", "/stop")
    with pytest.raises(LeaseLost, match="is over"):
        fleet.turn_behind(message_id)
    assert fleet.turn_behind("") is None  # an operator's token is of no turn
