from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentsup.kit.clock import SystemClock
from agentsup.store import Database, StoreOptions
from tests.support.empty_store import lay_store


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    """A store with the agents ann, ben and old; old is removed."""
    clock = SystemClock()
    opened = await Database.open(
        lay_store(tmp_path / "state.db"), clock=clock, options=StoreOptions(reserve_bytes=0)
    )
    await opened.write(
        lambda tx: tx.executemany(
            "INSERT INTO agents (agent_id, name, present, created_at) VALUES (?, ?, ?, 0)",
            [("agt_ann", "ann", 1), ("agt_ben", "ben", 1), ("agt_old", "old", 0)],
        )
    )
    yield opened
    await opened.close()
