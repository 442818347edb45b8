"""A turn that was left behind: what still lives of it, with its token, has nothing done any more."""

from __future__ import annotations

import pytest

from agentsup.model.errors import LeaseLost
from tests.component.conftest import Open
from tests.support.virtual_daemon import agent

pytestmark = pytest.mark.virtual

SLOW = {"match": "slow", "steps": [{"sleep": 600}]}


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
