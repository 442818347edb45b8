from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from agentsup.fakes.entropy import SeededEntropy
from agentsup.kit.clock import SystemClock
from agentsup.store import Database, Runner, StoreOptions, ThreadRunner
from tests.support.inline_runner import InlineRunner

SCHEMA = """
CREATE TABLE items (
  item_id TEXT PRIMARY KEY,
  agent_id TEXT NOT NULL DEFAULT 'a',
  state TEXT NOT NULL DEFAULT 'done',
  body TEXT NOT NULL DEFAULT '',
  at INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE parts (item_id TEXT NOT NULL REFERENCES items (item_id)) STRICT;
CREATE TABLE totals (
  agent_id TEXT NOT NULL, state TEXT NOT NULL, count INTEGER NOT NULL,
  PRIMARY KEY (agent_id, state)
) STRICT, WITHOUT ROWID;
"""


@pytest.fixture
def migrations(tmp_path: Path) -> Path:
    directory = tmp_path / "migrations"
    directory.mkdir()
    (directory / "0001_items.sql").write_text(SCHEMA)
    return directory


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "state.db"


@pytest.fixture(params=["thread", "inline"])
def make_runner(request: pytest.FixtureRequest, path: Path) -> Callable[[], Runner]:
    """Both adapters of the port ``Runner``: every test here runs over each."""
    clock = SystemClock()
    if request.param == "thread":
        return ThreadRunner
    entropy = SeededEntropy(clock, seed=1)
    return lambda: InlineRunner(path, clock=clock, entropy=entropy, max_delay_s=0.001)


@pytest.fixture
async def open_store(
    path: Path, migrations: Path, make_runner: Callable[[], Runner]
) -> AsyncIterator[Callable[..., Awaitable[Database]]]:
    """Opens the store at ``path``; what is still open at the end is closed."""
    path.parent.mkdir(exist_ok=True)
    async with AsyncExitStack() as stack:

        async def opener(runner: Runner | None = None, **options: Any) -> Database:
            options.setdefault("reserve_bytes", 0)
            options.setdefault("batch_hold_ms", 10_000)  # a stalled disk must not split a batch
            database = await Database.open(
                path,
                clock=SystemClock(),
                runner=runner or make_runner(),
                migrations=migrations,
                options=StoreOptions(**options),
            )
            stack.push_async_callback(database.close)
            return database

        yield opener


@pytest.fixture
async def store(open_store: Callable[..., Awaitable[Database]]) -> Database:
    return await open_store()
