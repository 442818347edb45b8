"""The order of the supervisor: what comes back by itself, and what goes down before what."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agentsup.daemon.assembly import services
from agentsup.daemon.runtime.fleet import Fleet
from agentsup.mailbox.mailbox import Mailbox
from agentsup.model.health import AgentState
from agentsup.supervision.board import ChildStatus
from agentsup.supervision.policy import Restart
from agentsup.supervision.spec import ChildSpec, Grace
from tests.component.proofs.house import ProofDaemon, agent
from tests.component.proofs.proof import Claim, Proof, Removal

edits = Claim("P4")
lost = Claim("P1")
order = Claim("order")
SLOW = [{"match": "(.*)", "steps": [{"sleep": 100}, {"say": "answer to $1"}]}]


async def the_watcher_comes_back(home: Path) -> None:
    """The task that watches the files is ended three times; edits are applied all the same."""
    async with ProofDaemon(home, [agent("main")]) as house:
        for number in range(3):
            life = house.daemon.supervisor._parts.watcher._life
            assert life is not None
            life.task.cancel()
            await edits.comes(lambda: house.edit_seen is None, 1, "it can't be ended")
            await edits.comes(lambda: house.edit_seen, 120, "nothing watches the files any more")
            name = f"new-{number}"
            await house.edit([agent("main"), agent(name)])
            await edits.comes(
                partial(runs, house, name), 10, f"{name} was declared and does not run"
            )


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


async def a_drain_gives_work_back(home: Path) -> None:
    """A turn outlives the drain at the end; the next start works on it again."""
    async with ProofDaemon(home, [agent("main"), agent("ann", SLOW)]) as house:
        message_id = await house.say("ann", "one")
        await asyncio.sleep(1)
        await house.close()
        await house.open()
        (row,) = await house.sql(
            "SELECT attempts, crashes FROM messages WHERE message_id = ?", message_id
        )
        lost.holds(row[1] == 0, "an orderly end was counted as a crash")
        await lost.comes(lambda: house.heard("answer to one"), 200, "the turn was lost in the stop")


# -- removals --------------------------------------------------------------------------------------


def _unsupervised_watcher(patch: pytest.MonkeyPatch) -> None:
    original = services.watcher_spec

    def unsupervised(*args: Any, **rest: Any) -> ChildSpec:
        spec: ChildSpec = original(*args, **rest)
        return replace(spec, restart=Restart.TEMPORARY)

    patch.setattr(services, "watcher_spec", unsupervised)


def _all_at_once(patch: pytest.MonkeyPatch) -> None:
    original = Fleet.stop_all

    async def stop_all(self: Fleet, grace: Grace | None, *, main_last: bool = True) -> None:
        await original(self, grace, main_last=False)

    patch.setattr(Fleet, "stop_all", stop_all)


def _cut_turns_fail(patch: pytest.MonkeyPatch) -> None:
    """What does not end within the drain is closed, not given back."""

    async def let_go(self: Mailbox, instance_id: str, **rest: Any) -> list[str]:
        await self._db.write(
            lambda tx: (
                tx.execute(
                    "UPDATE messages SET state = 'cancelled' WHERE state = 'leased'"
                    " AND lease_instance = ?",
                    (instance_id,),
                ).rowcount
            )
        )
        return []

    patch.setattr(Mailbox, "release_all", let_go)


PROOFS = (
    Proof(
        "the watcher comes back",
        "P4",
        the_watcher_comes_back,
        Removal("the watcher unsupervised", _unsupervised_watcher),
    ),
    Proof(
        "a stop goes in reverse",
        "order",
        a_stop_goes_in_reverse,
        Removal("all agents stopped at once", _all_at_once),
    ),
    Proof(
        "a drain gives work back",
        "P1",
        a_drain_gives_work_back,
        Removal("cut turns closed", _cut_turns_fail),
    ),
)
