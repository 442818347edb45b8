from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from agentsup.testing.household import Household

Open = Callable[..., Awaitable[Household]]


@pytest.fixture
async def household(tmp_path: Path) -> AsyncIterator[Open]:
    """Opens a household in virtual time, and ends it; the law of conservation is asked last."""
    opened: list[Household] = []

    async def open_(*agents: dict[str, Any], **more: Any) -> Household:
        house = await Household.open(tmp_path / "home", agents, **more)
        opened.append(house)
        return house

    yield open_
    for house in opened:
        holds, sums = await house.daemon.mailbox.conservation()
        assert holds, sums
        await house.stop()
