from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.component.supervision.lives import SupervisorFixture


@pytest.fixture
async def context() -> AsyncIterator[SupervisorFixture]:
    made = SupervisorFixture()
    yield made
    made.release.set()
    await made.stop_all()
    while any(child._owner.tasks for child in made.children):
        await asyncio.sleep(0.1)
