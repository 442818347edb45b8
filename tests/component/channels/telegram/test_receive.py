"""Receiving over the real client and a strict server; people are played over raw HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.component.channels.telegram.rig import Rig, rigged


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rigged(tmp_path) as rig:
        yield rig


async def test_a_text_is_answered(rig: Rig) -> None:
    await rig.start()
    await rig.people.say(rig.chat, "hello")
    await rig.people.wait_text(rig.chat, "echo: hello")
    assert rig.reports[-1].bot_name == "bob_bot"
    assert await rig.people.violations() == []
