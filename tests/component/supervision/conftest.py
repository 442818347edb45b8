import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.component.supervision.lives import Bench


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    made.release.set()
    await made.pool.stop_all()
    while any(child._owner.tasks for child in made.pool.children.values()):
        await asyncio.sleep(0.1)
