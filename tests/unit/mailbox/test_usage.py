from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from agentsup.kit.clock import LoopClock
from agentsup.kit.entropy import SeededEntropy
from agentsup.mailbox import usage
from agentsup.mailbox.usage import UsageSum
from agentsup.model.engine import Usage
from agentsup.store import Database, InlineRunner, Tx
from agentsup.testing.fresh_store import lay_store

HOUR_MS = 3_600_000
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
    return usage.record_tx(
        tx,
        Usage(tokens, 2 * tokens, usd),
        message_id=message_id,
        agent_id=agent_id,
        session_id="s",
        engine="llm",
        model="x",
        at=at,
    )


async def test_sums_per_agent_keep_unpriced_rows_apart(database: Database) -> None:
    def rows(tx: Tx) -> None:
        used(tx, 10, usd=0.25)
        used(tx, 5, usd=0.5)
        used(tx, 1)
        used(tx, 7, agent_id="b")

    await database.write(rows)
    sums = await database.read(usage.by_agent)
    assert sums == {"a": UsageSum(3, 16, 32, 0.75, 1), "b": UsageSum(1, 7, 14, None, 1)}


async def test_a_span_includes_its_start_and_not_its_end(database: Database) -> None:
    def rows(tx: Tx) -> None:
        for at in (9, 10, 19, 20):
            used(tx, at, at=at)

    await database.write(rows)
    sums = await database.read(lambda r: usage.by_agent(r, since=10, until=20))
    assert (sums["a"].rows, sums["a"].input_tokens) == (2, 29)


async def test_a_day_is_the_persons_day(database: Database) -> None:
    def rows(tx: Tx) -> None:
        used(tx, 1, at=MIDNIGHT - 1)
        used(tx, 2, at=MIDNIGHT)
        used(tx, 4, at=MIDNIGHT + 23 * HOUR_MS, agent_id="b")

    await database.write(rows)
    utc = await database.read(usage.by_day)
    assert {day: s.input_tokens for day, s in utc.items()} == {"2027-01-15": 1, "2027-01-16": 6}
    east = await database.read(lambda r: usage.by_day(r, utc_offset_s=2 * 3600))
    assert {day: s.input_tokens for day, s in east.items()} == {"2027-01-16": 3, "2027-01-17": 4}
    only_b = await database.read(lambda r: usage.by_day(r, agent_id="b"))
    assert list(only_b) == ["2027-01-16"]


async def test_a_root_counts_what_every_agent_used_for_it(database: Database) -> None:
    def rows(tx: Tx) -> None:
        tx.execute(
            "INSERT INTO sessions (session_id, agent_id, key, created_at, updated_at)"
            " VALUES ('s', 'a', 'k', 1, 1)"
        )
        for message_id, root_id in (("m1", "m1"), ("m2", "m1"), ("m3", "m3")):
            tx.execute(
                "INSERT INTO messages (message_id, agent_id, session_id, kind, lane, priority,"
                " state, parts, principal, deliver_to, root_id, accepted_at)"
                " VALUES (?, 'a', 's', 'chat', 'peer', 2, 'queued', '[]', '{}', '{}', ?, 1)",
                (message_id, root_id),
            )
        used(tx, 1, message_id="m1", usd=1.0)
        used(tx, 2, message_id="m2", usd=2.0, agent_id="b")
        used(tx, 4, message_id="m3", usd=4.0)

    await database.write(rows)
    assert (await database.read(lambda r: usage.of_root(r, "m1"))).usd == 3.0
    assert (await database.read(lambda r: usage.of_message(r, "m2"))).input_tokens == 2
    assert await database.read(lambda r: usage.of_root(r, "none")) == UsageSum()


async def test_a_report_with_nonsense_does_not_lower_a_sum(database: Database) -> None:
    await database.write(lambda tx: [used(tx, 10), used(tx, -50)])
    assert (await database.read(usage.by_agent))["a"].input_tokens == 10
