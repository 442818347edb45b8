"""A hub on a real store and mailbox, under virtual or real time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.task_fixture import TaskFixture


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[TaskFixture]:
    rig = await TaskFixture.open(tmp_path)
    yield rig
    await rig.close()
