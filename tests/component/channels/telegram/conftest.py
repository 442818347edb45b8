"""The bench for tests of what goes out, over raw HTTP."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.component.channels.telegram.bench import Bench, benched


@pytest_asyncio.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    """A fake that enforces the limits, one bot and its outbox."""
    async with benched(tmp_path) as bench:
        yield bench
