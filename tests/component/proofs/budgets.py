"""P6: no surprise bill. What turns will use is held before, and what they used counts once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentsup.agents.budget.token_estimate import TokenEstimate
from agentsup.agents.turn.usage import SegmentState, TurnUsage
from agentsup.mailbox.usage.budget import Amount, Limit, LimitUsage, ledger
from agentsup.model.engine import (
    EngineCaps,
    EngineDone,
    EngineEvent,
    EngineHost,
    EngineSpec,
    Segment,
    TextDelta,
    Usage,
)
from agentsup.store import Reader, Tx
from tests.component.proofs.house import ProofDaemon, agent
from tests.component.proofs.proof import Claim, Proof, Removal

claim = Claim("P6")
ZONE = "Etc/UTC"


def uses(tokens: int, pause_s: float = 0.0) -> list[dict[str, Any]]:
    steps = [{"sleep": pause_s}] if pause_s else []
    return [{"match": "(.*)", "steps": [*steps, {"usage": {"input": tokens}}, {"say": "ok"}]}]


async def used(house: ProofDaemon) -> int:
    return int((await house.sql("SELECT coalesce(sum(tokens), 0) FROM budget_spent"))[0][0])


async def sixteen_at_once_with_a_budget_for_three(home: Path) -> None:
    ann = agent(
        "ann", uses(2000, 5.0), slots=16, budget={"per_day_tokens": 8000}, user_timezone=ZONE
    )
    async with ProofDaemon(home, [agent("main"), ann]) as house:
        first = await house.say("ann", "first")
        await house.daemon.mailbox.queue.wait_done(first, 60)
        asked = [await house.say("ann", f"t{n}", f"c{n}") for n in range(16)]
        done = [await house.daemon.mailbox.queue.wait_done(each, 600) for each in asked]
        total = await used(house)
        claim.holds(total <= 8000, f"{total} of 8000 tokens were used")
        served = sum(one.outcome == "ok" for one in done)
        claim.holds(served == 3, f"{served} of 16 were served, where the budget is for three")
        told = {one.error_code for one in done if one.outcome != "ok"}
        claim.holds(told == {"budget_exceeded"}, f"the others were told {told}")


class _Requests:
    """An engine that makes paid requests, a second apart, until something ends it."""

    name = "scripted"
    caps = EngineCaps(streaming=True, usage=True)

    def __init__(self, most: int = 1000) -> None:
        self.made = 0
        self._most = most

    async def open(self, spec: EngineSpec, host: EngineHost) -> _Requests:
        return self

    async def run(self, segment: Segment) -> Any:
        for _ in range(self._most):
            self.made += 1
            yield Usage(100, 0)
            await asyncio.sleep(1)
        yield EngineDone("ok", text="done")

    async def close(self) -> None:
        return


async def what_was_paid_counts_once_whatever_is_killed(home: Path) -> None:
    ann = agent("ann", uses(0), budget={"per_day_tokens": 100_000}, user_timezone=ZONE)
    async with ProofDaemon(home, [agent("main"), ann]) as house:
        paid = _Requests()
        _think(house, paid)
        await house.say("ann", "go")
        await asyncio.sleep(3.5)
        await house.crash()
        made = paid.made
        paid = _Requests(3)
        await house.open()
        _think(house, paid)
        last = await house.say("ann", "another", "c2")
        await house.daemon.mailbox.queue.wait_done(last, 60)
        await asyncio.sleep(10)
        (row,) = await house.sql(
            "SELECT count(*) FROM usage u JOIN messages m USING (message_id)"
            " WHERE u.input_tokens = 100 AND m.fence = 1 AND m.message_id = ?",
            last,
        )
        claim.holds(row[0] == 3, f"three requests count as {row[0]}")
        (before,) = await house.sql(
            "SELECT count(*) FROM usage WHERE input_tokens = 100 AND message_id <> ?", last
        )
        claim.holds(before[0] >= made, f"{made} requests were paid before the kill: {before[0]}")


class _Silent(_Requests):
    """A program that writes without end and tells no tokens."""

    name = "command"
    caps = EngineCaps(streaming=True, usage=True, may_not_report=True)

    async def run(self, segment: Segment) -> Any:
        for _ in range(self._most):
            self.made += 1
            yield TextDelta("word " * 2_000)
            await asyncio.sleep(1)
        yield EngineDone("ok", text="done")


async def who_tells_nothing_passes_no_budget(home: Path) -> None:
    ann = agent("ann", uses(0), budget={"per_day_tokens": 20_000}, user_timezone=ZONE)
    async with ProofDaemon(home, [agent("main"), ann]) as house:
        talks = _Silent(20)
        _think(house, talks)
        await house.daemon.mailbox.queue.wait_done(await house.say("ann", "go on"), 600)
        claim.holds(talks.made < 16, f"{talks.made * 2_500} tokens were written, of 20,000")
        again = await house.daemon.mailbox.queue.wait_done(await house.say("ann", "more"), 600)
        claim.holds(again.error_code == "budget_exceeded", "there is a next turn")


def _think(house: ProofDaemon, engine: _Requests) -> None:
    stack = house.unit("ann").stack
    assert stack is not None
    stack.engine = engine


# -- removals --------------------------------------------------------------------------------------


def _no_holds(patch: pytest.MonkeyPatch) -> None:
    _reserving(patch, lambda reader, claim: Amount())


def _recorded_at_the_end(patch: pytest.MonkeyPatch) -> None:
    async def may_pass(self: TurnUsage, event: EngineEvent, state: SegmentState) -> bool:
        if isinstance(event, Usage):
            state.usage.append(event)
        return True

    patch.setattr(TurnUsage, "may_pass", may_pass)


def _reserving(
    patch: pytest.MonkeyPatch, reserved: Callable[[Reader | Tx, ledger.HoldOwner | None], Amount]
) -> None:
    """What ``reserved`` says counts as reserved for other turns, in every scope."""
    usages = ledger.usages

    def others(
        reader: Reader | Tx,
        owner: ledger.HoldOwner | None,
        limits: Sequence[Limit],
        *,
        boot_id: str,
    ) -> list[LimitUsage]:
        found = usages(reader, owner, limits, boot_id=boot_id)
        return [replace(each, reserved=reserved(reader, owner)) for each in found]

    patch.setattr(ledger, "usages", others)


def _not_estimated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TokenEstimate, "observe", lambda self, event: None)
    patch.setattr(TokenEstimate, "ended", lambda self, end: None)


PROOFS = (
    Proof(
        "an engine that reports nothing passes no budget",
        "P6",
        who_tells_nothing_passes_no_budget,
        Removal("nothing is estimated", _not_estimated),
    ),
    Proof(
        "sixteen at once with a budget for three",
        "P6",
        sixteen_at_once_with_a_budget_for_three,
        Removal("holds that count for nobody", _no_holds),
    ),
    Proof(
        "what was paid counts once, whatever is killed",
        "P6",
        what_was_paid_counts_once_whatever_is_killed,
        Removal("usage recorded at the end of a turn", _recorded_at_the_end),
    ),
)
