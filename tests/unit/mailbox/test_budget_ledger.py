"""Holds in any order of turns, kills and stops: no limit is overrun, and no hold is left behind."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentsup.fakes.entropy import SeededEntropy
from agentsup.mailbox.usage import reports
from agentsup.mailbox.usage.budget import (
    Amount,
    BudgetNotice,
    BudgetScope,
    HoldOwner,
    Limit,
    ScopeKind,
    ledger,
)
from agentsup.model.engine import Usage
from agentsup.store import Database, Tx
from tests.support.empty_store import lay_store
from tests.support.inline_runner import InlineRunner
from tests.support.loop_clock import LoopClock
from tests.support.simloop import run_virtual

BOOT, NEXT = "boot-1", "boot-2"
AT = 1_800_057_600_000
MOST = 100
DAY = Limit(
    BudgetScope(ScopeKind.AGENT_DAY, "a", AT - 1000 * 900_000, AT + 1000 * 900_000), tokens=MOST
)


async def opened(path: Path) -> Database:
    clock = LoopClock()
    runner = InlineRunner(path, clock=clock, entropy=SeededEntropy(clock, 1), max_delay_s=0)
    return await Database.open(lay_store(path), clock=clock, runner=runner)


@pytest_asyncio.fixture
async def database(tmp_path: Path) -> Any:
    one = await opened(tmp_path / "state.db")
    yield one
    await one.close()


def leased(
    tx: Tx, message: str, *, agent: str = "a", root: str = "", boot: str = BOOT, fence: int = 1
) -> HoldOwner:
    """A message under a lease, and the claim of its turn."""
    tx.execute(
        "INSERT INTO sessions (session_id, agent_id, key, created_at, updated_at)"
        " VALUES ('s', 'a', 'k', 0, 0) ON CONFLICT DO NOTHING"
    )
    tx.execute(
        "INSERT INTO messages (message_id, agent_id, session_id, kind, lane, priority, state, parts,"
        " principal, deliver_to, root_id, accepted_at, fence, lease_boot) VALUES"
        " (?, ?, 's', 'chat', 'interactive', 1, 'leased', '[]', '{}', '{}', ?, 0, ?, ?)"
        " ON CONFLICT (message_id) DO UPDATE SET state = 'leased', fence = excluded.fence,"
        " lease_boot = excluded.lease_boot",
        (message, agent, root or message, fence, boot),
    )
    return HoldOwner(message, fence, boot, agent, root or message)


def used(tx: Tx, claim: HoldOwner, tokens: int, report_id: str | None = None) -> Usage | None:
    return reports.record_tx(
        tx,
        Usage(tokens, 0),
        reports.UsageSource(claim.message_id, claim.agent_id, "s", "x", ""),
        at=AT,
        report_id=report_id,
    )


def charged(tx: Tx, claim: HoldOwner, tokens: int, limits: list[Limit]) -> Any:
    used(tx, claim, tokens)
    return ledger.charge_tx(tx, claim, limits, Amount(0, tokens), at=AT)


async def held(database: Database, boot: str = BOOT) -> int:
    found = await database.read(lambda r: ledger.usages(r, None, [DAY], boot_id=boot))
    return found[0].reserved.tokens


# -- single rules ----------------------------------------------------------------------------------


async def test_a_report_that_comes_twice_counts_once(database: Database) -> None:
    def twice(tx: Tx) -> list[Usage | None]:
        claim = leased(tx, "m")
        return [used(tx, claim, 7, "m:1:0"), used(tx, claim, 7, "m:1:0"), used(tx, claim, 5)]

    first, again, other = await database.write(twice)
    assert (first, again, other) == (Usage(7, 0), None, Usage(5, 0))
    found = await database.read(lambda r: ledger.usages(r, None, [DAY], boot_id=BOOT))
    assert found[0].used.tokens == 12


@pytest.mark.parametrize("usd", [float("inf"), float("nan"), -3.0, 1e300])
async def test_no_report_breaks_the_sums(database: Database, usd: float) -> None:
    def record(tx: Tx) -> None:
        for _ in range(3):
            reports.record_tx(
                tx, Usage(-5, 10**30, usd), reports.UsageSource("m", "a", "s", "x", ""), at=AT
            )

    await database.write(record)
    found = await database.read(lambda r: ledger.usages(r, None, [DAY], boot_id=BOOT))
    assert found[0].used.nano_usd in {0, 3 * 10**15}


@pytest.mark.parametrize("end", ["done", "cancelled", "parked", "queued"])
async def test_a_hold_ends_with_its_lease_whoever_ended_that(database: Database, end: str) -> None:
    await database.write(
        lambda tx: ledger.hold_tx(tx, leased(tx, "m"), [DAY], Amount(0, 60), at=AT)
    )
    assert await held(database) == 60
    outcome = "ok" if end == "done" else None
    await database.write(
        lambda tx: (
            tx.execute(
                "UPDATE messages SET state = ?, outcome = ? WHERE message_id = 'm'", (end, outcome)
            ).rowcount
        )
    )
    assert await held(database) == 0


async def test_holds_of_an_earlier_boot_are_void_and_dropped(database: Database) -> None:
    await database.write(
        lambda tx: ledger.hold_tx(tx, leased(tx, "m"), [DAY], Amount(0, 60), at=AT)
    )
    assert await held(database, NEXT) == 0
    assert await database.write(lambda tx: ledger.drop_void_tx(tx, NEXT)) == 1
    assert await database.read(lambda r: r.scalar("SELECT count(*) FROM budget_holds")) == 0


async def test_a_tree_counts_every_agent_that_works_for_it(database: Database) -> None:
    limit = Limit(BudgetScope(ScopeKind.TREE, "root"), tokens=100)

    def work(tx: Tx) -> Any:
        first = leased(tx, "root")
        second = leased(tx, "sub", agent="b", root="root")
        elsewhere = leased(tx, "other", agent="b")
        used(tx, first, 30)
        used(tx, elsewhere, 1000)
        assert ledger.hold_tx(tx, first, [limit], Amount(0, 40), at=AT).over is None
        return (
            ledger.hold_tx(tx, second, [limit], Amount(0, 30), at=AT).over,
            ledger.hold_tx(tx, second, [limit], Amount(0, 31), at=AT).over,
        )

    fits, refused = await database.write(work)
    assert fits is None
    assert (refused.used, refused.reserved, refused.by_holds) == (30, 40, True)


@pytest.mark.parametrize("kind", [ScopeKind.TEAM, ScopeKind.TASK])
async def test_teams_and_tasks_are_bounded_by_rows(database: Database, kind: ScopeKind) -> None:
    def work(tx: Tx) -> Any:
        one, two, alien = leased(tx, "m1"), leased(tx, "m2", agent="b"), leased(tx, "m3")
        ledger.set_limit_tx(tx, kind, "x", nano_usd=None, tokens=100, at=AT)
        for claim in (one, two):
            ledger.join_tx(tx, claim.message_id, kind, "x")
        used(tx, one, 50)
        assert ledger.limits_by_rows(tx, alien.message_id) == []
        limits = ledger.limits_by_rows(tx, two.message_id)
        refused = ledger.hold_tx(tx, two, limits, Amount(0, 51), at=AT).over
        fits = ledger.hold_tx(tx, two, limits, Amount(0, 50), at=AT).over
        ledger.set_limit_tx(tx, kind, "x", nano_usd=None, tokens=None, at=AT)
        return refused, fits, ledger.limits_by_rows(tx, two.message_id)

    refused, fits, lifted = await database.write(work)
    assert refused.limit.scope == BudgetScope(kind, "x")
    assert fits is None
    assert lifted == []


async def test_operators_are_told_once_per_scope_and_period(database: Database) -> None:
    def work(tx: Tx) -> None:
        claim = leased(tx, "m")
        for tokens in (79, 1, 1, 18, 1, 1):
            charged(tx, claim, tokens, [DAY])

    await database.write(work)
    found = await database.read(ledger.pending_notices)
    assert sorted((one.level, one.used) for one in found) == [("exhausted", 100), ("warned", 80)]
    for one in found:
        await database.write(partial(_told, one))
    await database.write(lambda tx: charged(tx, leased(tx, "m"), 1, [DAY]))
    assert await database.read(ledger.pending_notices) == []
    later = Limit(BudgetScope(ScopeKind.AGENT_DAY, "a", DAY.scope.since + 900_000), tokens=100)
    await database.write(lambda tx: charged(tx, leased(tx, "m"), 1, [later]))
    assert [one.scope.since for one in await database.read(ledger.pending_notices)] == [
        later.scope.since
    ]


def _told(one: BudgetNotice, tx: Tx) -> None:
    ledger.mark_notified_tx(tx, one)


# -- any order -------------------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["begin", "use", "use", "use", "end", "stop", "kill"]),
        st.integers(0, 5),
        st.integers(1, 60),
        st.integers(1, 90),
    ),
    max_size=40,
)


class _Model:
    """What the ledger must agree with: turns by message, with what they hold."""

    def __init__(self) -> None:
        self.boot, self.fence = 1, 0
        self.running: dict[str, tuple[HoldOwner, int]] = {}
        self.used = 0
        self.allowance = 0
        """What requests have cost beyond what was held for them: the documented bound."""


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with its tables; making them takes longer than a walk."""
    path = tmp_path_factory.mktemp("ledger") / "state.db"

    async def make() -> None:
        await (await opened(path)).close()

    run_virtual(make())
    return path


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS)
def test_no_order_of_turns_and_kills_overruns_or_leaks(
    steps: list[tuple[str, int, int, int]], empty: Path
) -> None:
    with TemporaryDirectory(dir=empty.parent) as folder:
        path = Path(shutil.copy(empty, folder))
        run_virtual(_walk(steps, path))


async def _walk(steps: list[tuple[str, int, int, int]], path: Path) -> None:
    database, model = await opened(path), _Model()
    try:
        for step in steps:
            await _step(database, model, *step)
            await _check(database, model)
    finally:
        await database.close()


async def _step(
    database: Database, model: _Model, act: str, which: int, tokens: int, wanted: int
) -> None:
    name = f"m{which}"
    boot = f"boot-{model.boot}"
    if act == "kill":
        model.boot += 1
        model.running.clear()
    elif act == "begin" and name not in model.running:
        model.fence += 1
        fence = model.fence

        def begin(tx: Tx) -> tuple[HoldOwner, Any]:
            claim = leased(tx, name, boot=boot, fence=fence)
            return claim, ledger.hold_tx(tx, claim, [DAY], Amount(0, wanted), at=AT).over

        claim, refused = await database.write(begin)
        if refused is None:
            model.running[name] = (claim, wanted)
    elif act == "use" and name in model.running:
        claim, hold = model.running[name]
        over = await database.write(lambda tx: charged(tx, claim, tokens, [DAY]))
        model.used += tokens
        assert (over is not None) is (model.used >= MOST), "it goes on though all is used"
        model.allowance += max(0, tokens - min(hold, MOST))
        rest = max(0, hold - tokens)
        others = sum(each for one, (_, each) in model.running.items() if one != name)
        wants = max(rest, tokens)
        fits = model.used < MOST and model.used + others + min(wants, MOST) <= MOST
        model.running[name] = (claim, wants if fits else rest)
    elif act in {"end", "stop"} and name in model.running:
        claim, _ = model.running.pop(name)
        if act == "end":
            await database.write(lambda tx: ledger.release_tx(tx, claim.message_id, claim.fence))
        else:
            await database.write(
                lambda tx: (
                    tx.execute(
                        "UPDATE messages SET state = 'cancelled' WHERE message_id = ?", (name,)
                    ).rowcount
                )
            )


async def _check(database: Database, model: _Model) -> None:
    boot = f"boot-{model.boot}"
    (found,) = await database.read(lambda r: ledger.usages(r, None, [DAY], boot_id=boot))
    assert found.used.tokens == model.used, "what was used is lost or doubled"
    assert found.reserved.tokens == sum(hold for _, hold in model.running.values()), "a hold leaked"
    assert found.used.tokens <= MOST + model.allowance, "the limit is overrun"
