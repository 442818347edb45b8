"""P1, P2: each time of a schedule comes once or is on record, whatever is killed meanwhile."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agentsup.model.principal import OPERATOR
from agentsup.model.task import NewSchedule, NewTask
from agentsup.store import Database, Tx
from agentsup.tasks import occurrences, scheduler, schedules
from tests.component.proofs.house import ProofDaemon, agent
from tests.component.proofs.proof import Claim, Proof, Removal

lost = Claim("P1")
twice = Claim("P2")
DONE = [{"match": "(.*)", "steps": [{"say": "watered"}]}]
PERIOD_S = 120
SETTLING = "schedule.settle"


async def plan(house: ProofDaemon) -> str:
    """Something for every two minutes from now on; the id of the task."""
    new = NewTask("water the garden", schedule=NewSchedule(every_s=PERIOD_S))
    hub = house.daemon.api._deps.tasks
    assert hub is not None
    return (await hub.create(new, caller=OPERATOR)).task_id


async def killed_in_time(house: ProofDaemon) -> None:
    """The next time comes, the store dies once the scheduler has written, and a new life begins."""
    write, runner = house.database.write, house._runner
    assert runner is not None
    killed = asyncio.Event()

    async def write_and_die(fn: Any, *args: Any, name: str = "", **how: Any) -> Any:
        result = await write(fn, *args, name=name, **how)
        if name == SETTLING:
            runner.kill()
            killed.set()
        return result

    vars(house.database)["write"] = write_and_die  # that very instant is the point
    async with asyncio.timeout(PERIOD_S + 60):
        await killed.wait()
    await house.crash()
    await house.open()
    await asyncio.sleep(20)


async def no_time_is_lost(home: Path) -> None:
    """Killed in its time, then down for five more."""
    async with ProofDaemon(home, [agent("main", DONE)]) as house:
        task_id = await plan(house)
        await killed_in_time(house)
        await house.close()
        await asyncio.sleep(5 * PERIOD_S)
        await house.open()
        await asyncio.sleep(20)
        kept = await house.sql("SELECT skip_reason FROM runs WHERE task_id = ?", task_id)
        lost.holds(len(kept) == 6, f"6 times have come and {len(kept)} are on record")
        lost.holds(
            [reason for (reason,) in kept].count(None) == 2, "one run for those missed is wanted"
        )


def _moved_on_first(patch: pytest.MonkeyPatch) -> None:
    _settled_in_two(patch, is_moved_first=True)


def _settled_in_two(patch: pytest.MonkeyPatch, *, is_moved_first: bool) -> None:
    """The run and the next time in transactions of their own."""

    write = Database.write

    async def in_two(self: Database, fn: Any, *args: Any, **more: Any) -> Any:
        if not (isinstance(fn, partial) and fn.func is scheduler.settle_tx):
            return await write(self, fn, *args, **more)
        task_id, now, starter = (fn.keywords[each] for each in ("task_id", "now", "starter"))
        kept = await self.read(lambda reader: schedules.get(reader, task_id))
        assert kept is not None
        due = occurrences.due(kept, now)
        assert due.last_at is not None

        def move(tx: Tx, last_at: int) -> None:
            schedules.advance_tx(tx, task_id, next_at=due.next_at, last_at=last_at)

        def start(tx: Tx) -> None:
            starter.start_occurrence_tx(tx, task_id, due.run_at[-1])

        steps = (partial(move, last_at=due.last_at), start)
        for step in steps if is_moved_first else reversed(steps):
            await self.write(step, **more)
        return None

    patch.setattr(Database, "write", in_two)


PROOFS = (
    Proof(
        "no time of a schedule is lost",
        "P1",
        no_time_is_lost,
        Removal("the next time written before the run", _moved_on_first),
    ),
)
