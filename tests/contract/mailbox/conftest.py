from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentsup.testing.mail import MailRig


@pytest.fixture(params=["inline", "threads"])
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MailRig]:
    """A mailbox over each runner of the store; the laws are checked after every test."""
    rig = await MailRig.open(tmp_path, threads=request.param == "threads")
    yield rig
    await rig.check()
    await rig.close()
