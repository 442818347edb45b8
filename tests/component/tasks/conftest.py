"""A hub on a real store and mailbox, under virtual or real time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentsup.testing.task_rig import TaskRig


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[TaskRig]:
    rig = await TaskRig.open(tmp_path)
    yield rig
    await rig.close()
