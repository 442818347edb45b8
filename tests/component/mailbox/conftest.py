from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.mailbox_fixture import MailboxFixture


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[MailboxFixture]:
    """A mailbox; the laws are checked after every test."""
    rig = await MailboxFixture.open(tmp_path)
    yield rig
    await rig.check()
    await rig.close()
