from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.mailbox_fixture import MailboxFixture


@pytest.fixture(params=["inline", "threads"])
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MailboxFixture]:
    """A mailbox over each runner of the store; the laws are checked after every test."""
    rig = await MailboxFixture.open(tmp_path, threads=request.param == "threads")
    yield rig
    await rig.check()
    await rig.close()
