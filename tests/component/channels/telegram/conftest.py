"""The bench for tests of what goes out, over raw HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.component.channels.telegram.bench import StreamFixture, benched


@pytest_asyncio.fixture
async def context(tmp_path: Path) -> AsyncIterator[StreamFixture]:
    """A fake that enforces the limits, one bot and its outbox."""
    async with benched(tmp_path) as bench:
        yield bench
