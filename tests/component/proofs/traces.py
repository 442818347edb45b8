"""Traces stand beside the work: a store that takes none holds up nobody, and what a kill cut is
told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from agentsup.agents.turn.handler import TurnHandler
from agentsup.observe.traces import rows
from agentsup.store.database import Database
from tests.component.proofs.house import ProofDaemon, agent
from tests.component.proofs.proof import Claim, Proof, Removal

alone, told = Claim("P3"), Claim("P9")
ROOM = 40


@contextmanager
def no_store_for_spans() -> Iterator[None]:
    """The store never answers about spans; for all else it is as ever."""
    write = Database.write

    async def refusing(self: Database, fn: Any, *args: Any, name: str = "", **more: Any) -> Any:
        if name == "traces.write":
            await asyncio.Event().wait()
        return await write(self, fn, *args, name=name, **more)

    with mock.patch.object(Database, "write", refusing):
        yield


async def spans_hold_up_nobody(home: Path) -> None:
    """While nothing of a trace can be written, turns go on, and what waits is bounded."""
    with no_store_for_spans():
        async with ProofDaemon(home, [agent("main")]) as house:
            recorder = house.daemon.traces.recorder
            recorder._buffer._most = ROOM
            for number in range(20):
                await house.say("main", f"hello {number}")
                await alone.comes(
                    lambda number=number: house.heard(f"hello {number}"),  # type: ignore[misc]  # bound at once
                    5,
                    "no answer: it waits for its trace",
                )
            alone.holds(recorder.waiting <= ROOM, f"{recorder.waiting} spans wait in memory")
            alone.holds(recorder.dropped > 0, "what there was no room for is not counted")


async def a_cut_turn_is_told(home: Path) -> None:
    """A turn that was under way at a kill stands in its trace as interrupted, not as running."""
    slow = [{"match": "slow", "steps": [{"sleep": 100}, {"say": "late"}]}]
    async with ProofDaemon(home, [agent("main", slow)]) as house:
        message_id = await house.say("main", "slow")
        await asyncio.sleep(5)
        await house.crash()
        await house.open()
        await asyncio.sleep(5)
        found = await house.sql(
            "SELECT state FROM spans WHERE message_id = ? AND kind = 'segment' ORDER BY span_no",
            message_id,
        )
        states = [row[0] for row in found]
        told.holds(states == ["interrupted", "running"], f"its segments are {states}")


# -- removals --------------------------------------------------------------------------------------


def _written_by_the_turn(patch: pytest.MonkeyPatch) -> None:
    handle = TurnHandler.handle

    async def attached(self: TurnHandler, work: Any, start: Any = None) -> None:
        try:
            await handle(self, work, start)
        finally:
            recorder = self._services.tracer.put.__self__  # type: ignore[attr-defined]  # the daemon's own
            await recorder._write_all(settle=False)

    patch.setattr(TurnHandler, "handle", attached)


def _not_interrupted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rows, "interrupt_tx", lambda tx, boot_id, at: 0)


PROOFS = (
    Proof(
        "spans hold up nobody",
        "P3",
        spans_hold_up_nobody,
        Removal("spans written by the turn", _written_by_the_turn),
    ),
    Proof(
        "an interrupted turn is shown as one",
        "P9",
        a_cut_turn_is_told,
        Removal("spans of earlier boots left running", _not_interrupted),
    ),
)
