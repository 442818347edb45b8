"""The order of the supervisor: what comes back by itself, and what goes down before what."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agentsup.daemon.runtime.fleet import Fleet
from agentsup.model.health import AgentState
from agentsup.supervision import ChildStatus, Grace
from tests.component.proofs.house import ProofDaemon, agent
from tests.component.proofs.proof import Claim, Proof, Removal

edits = Claim("P4")
lost = Claim("P1")
order = Claim("order")
SLOW = [{"match": "(.*)", "steps": [{"sleep": 100}, {"say": "answer to $1"}]}]


def runs(house: ProofDaemon, name: str) -> bool:
    units = house.daemon.fleet.units()
    return any(u.spec.name == name and u.child.state is AgentState.RUNNING for u in units)


async def a_stop_goes_in_reverse(home: Path) -> None:
    """Watcher, sub-agents, main, services: what others rest on ends after them."""
    down: list[str] = []
    async with ProofDaemon(home, [agent("main"), agent("ann", SLOW), agent("bob")]) as house:
        names = {u.agent_id: u.spec.name for u in house.daemon.fleet.units()}

        def heard(status: ChildStatus) -> None:
            if status.state is AgentState.STOPPED:
                down.append(names.get(status.child_id, status.child_id))  # type: ignore[call-overload]  # ids are plain text

        house.daemon.board.listen(heard)
        await house.say("ann", "one")
        await asyncio.sleep(1)
    beside = [
        "schedules",
        "traces",
        "budgets",
        "scripts",
        "roles",
        "watchdog",
        "housekeeping",
        "relay",
        "lag",
    ]
    wanted = ["watcher", "bob", "ann", "main", *beside]
    order.holds(down == wanted, f"went down as {down}")


# -- removals --------------------------------------------------------------------------------------


def _all_at_once(patch: pytest.MonkeyPatch) -> None:
    original = Fleet.stop_all

    async def stop_all(self: Fleet, grace: Grace | None, *, main_last: bool = True) -> None:
        await original(self, grace, main_last=False)

    patch.setattr(Fleet, "stop_all", stop_all)


PROOFS = (
    Proof(
        "a stop goes in reverse",
        "order",
        a_stop_goes_in_reverse,
        Removal("all agents stopped at once", _all_at_once),
    ),
)
