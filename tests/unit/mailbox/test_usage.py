from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from agentsup.fakes.entropy import SeededEntropy
from agentsup.mailbox.usage import reports
from agentsup.mailbox.usage.reports import UsageSum
from agentsup.model.engine import Usage
from agentsup.store import Database, Tx
from tests.support.empty_store import lay_store
from tests.support.inline_runner import InlineRunner
from tests.support.loop_clock import LoopClock

MIDNIGHT = 1_800_057_600_000  # 2027-01-16 00:00 UTC


@pytest_asyncio.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    clock = LoopClock()
    path = tmp_path / "state.db"
    runner = InlineRunner(path, clock=clock, entropy=SeededEntropy(clock, 1), max_delay_s=0)
    opened = await Database.open(lay_store(path), clock=clock, runner=runner)
    yield opened
    await opened.close()


def used(
    tx: Tx,
    tokens: int,
    *,
    usd: float | None = None,
    agent_id: str = "a",
    message_id: str = "m1",
    at: int = MIDNIGHT,
) -> Usage | None:
    return reports.record_tx(
        tx,
        Usage(tokens, 2 * tokens, usd),
        reports.UsageSource(message_id, agent_id, "s", "llm", "x"),
        at=at,
    )


async def test_sums_per_agent_keep_unpriced_rows_apart(database: Database) -> None:
    def rows(tx: Tx) -> None:
        used(tx, 10, usd=0.25)
        used(tx, 5, usd=0.5)
        used(tx, 1)
        used(tx, 7, agent_id="b")

    await database.write(rows)
    sums = await database.read(reports.by_agent)
    assert sums == {"a": UsageSum(3, 16, 32, 0.75, 1), "b": UsageSum(1, 7, 14, None, 1)}


async def test_a_span_includes_its_start_and_not_its_end(database: Database) -> None:
    def rows(tx: Tx) -> None:
        for at in (9, 10, 19, 20):
            used(tx, at, at=at)

    await database.write(rows)
    sums = await database.read(lambda r: reports.by_agent(r, since=10, until=20))
    assert (sums["a"].rows, sums["a"].input_tokens) == (2, 29)


async def test_a_message_has_a_sum_of_its_own(database: Database) -> None:
    def rows(tx: Tx) -> None:
        used(tx, 1, message_id="m1", usd=1.0)
        used(tx, 2, message_id="m2", usd=2.0, agent_id="b")

    await database.write(rows)
    assert (await database.read(lambda r: reports.of_message(r, "m2"))).input_tokens == 2
    assert await database.read(lambda r: reports.of_message(r, "none")) == UsageSum()


async def test_a_report_with_nonsense_does_not_lower_a_sum(database: Database) -> None:
    await database.write(lambda tx: [used(tx, 10), used(tx, -50)])
    assert (await database.read(reports.by_agent))["a"].input_tokens == 10
