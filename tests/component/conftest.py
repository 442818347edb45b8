from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.mailbox_fixture import OPEN_OF_AGENTS
from tests.support.virtual_daemon import VirtualDaemon

Open = Callable[..., Awaitable[VirtualDaemon]]


@pytest.fixture
async def household(tmp_path: Path) -> AsyncIterator[Open]:
    """Opens a household in virtual time, and ends it; the law of conservation is asked last."""
    opened: list[VirtualDaemon] = []

    async def open_(*agents: dict[str, Any], **more: Any) -> VirtualDaemon:
        house = await VirtualDaemon.open(tmp_path / "home", agents, **more)
        opened.append(house)
        return house

    yield open_
    for house in opened:
        holds, sums = await house.daemon.mailbox.messages.conservation()
        assert holds, sums
        stored = dict(await house.sql(OPEN_OF_AGENTS))
        loads = house.daemon.mailbox.context.loads.open
        assert {name: count for name, count in loads.items() if count} == stored
        await house.stop()
