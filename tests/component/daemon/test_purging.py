"""Folders of deleted tasks are removed by the time of retention, which a wrong clock moves little."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agentsup.config.settings_file import LimitSettings
from agentsup.daemon.assembly.services import housekeeping_spec
from agentsup.supervision.child import SupervisedChild
from tests.support.mailbox_fixture import MailboxFixture

pytestmark = pytest.mark.virtual

DAY_MS = 24 * 3_600_000


async def test_a_clock_that_is_a_year_ahead_removes_no_folder_of_last_week(tmp_path: Path) -> None:
    rig = await MailboxFixture.open(tmp_path)
    given: list[int] = []
    was_called = asyncio.Event()

    async def purge(now_ms: int) -> None:
        given.append(now_ms)
        was_called.set()

    async def nothing() -> None:
        """No file was replaced, and no mode was corrected."""

    async def life() -> int:
        """The time that one start of the daemon purges by first."""
        was_called.clear()
        spec = housekeeping_spec(
            rig.db,
            rig.mailbox,
            rig.clock,
            lambda: LimitSettings(keep_days=30),
            (purge,),
            lambda: True,
            nothing,
            nothing,
        )
        child = SupervisedChild(spec, clock=rig.clock, entropy=rig.entropy, record=lambda _: None)
        child.start()
        await was_called.wait()
        await child.stop()
        return given[-1]

    right = await life()
    assert right == rig.clock.now_ms()
    rig.clock.jump_ms(365 * DAY_MS)
    assert await life() == right + DAY_MS
    await rig.close()
