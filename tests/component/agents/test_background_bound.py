"""The bound of all background turns, edited while they run."""

from __future__ import annotations

import pytest

from tests.component.agents.handing_on import say
from tests.component.conftest import Open
from tests.support.virtual_daemon import VirtualDaemon, agent

pytestmark = pytest.mark.virtual

CONFIG = "[tasks]\nmax_parallel = {}\n"


async def running(house: VirtualDaemon) -> int:
    ((count,),) = await house.sql(
        "SELECT count(*) FROM messages WHERE kind = 'task' AND state = 'leased'"
    )
    return int(count)


async def test_an_edit_of_the_bound_holds_at_once(household: Open) -> None:
    dig = say("dig", "dug", after_s=100)
    house = await household(agent("ann", dig), agent("ben", dig), config=CONFIG.format(1))
    for name in ("ann", "ben", "ann", "ben"):
        assert (await house.command(name, "/task new dig")).ok
    await house.clock.sleep(5)
    assert await running(house) == 1
    house.home.config_toml.write_text(CONFIG.format(3))
    assert await house.daemon.reconciler.reload()
    await house.clock.sleep(1)
    assert await running(house) == 3
    house.home.config_toml.write_text(CONFIG.format(2))
    assert await house.daemon.reconciler.reload()
    await house.clock.sleep(1)
    assert await running(house) == 3, "what runs is not cut off"
    await house.clock.sleep(100)
    assert await running(house) == 1
