"""What is old is removed by the time of retention, which a wrong clock moves little: folders of deleted
tasks, and files that people sent."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from agentsup.config import LimitSettings
from agentsup.daemon.assembly.children import housekeeping_spec
from agentsup.daemon.runtime.housekeeping import ReceivedFiles
from agentsup.kit.pool import BoundedPool
from agentsup.supervision import SupervisedChild
from tests.support.mailbox_fixture import MailboxFixture

DAY_MS = 24 * 3_600_000


@pytest.mark.virtual
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


def received(workspace: Path, name: str, days_old: float, now_s: float) -> Path:
    path = workspace / "inbox" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    os.utime(path, (now_s - days_old * 86_400,) * 2)
    return path


async def test_old_received_files_go_and_all_else_stays(tmp_path: Path) -> None:
    now_s = 2_000_000_000.0
    main, other = tmp_path / "main", tmp_path / "other"
    gone = [
        received(main, "2020-01-01-a.txt", 31, now_s),
        received(other, "2020-01-02-b", 99, now_s),
    ]
    elsewhere = received(tmp_path / "elsewhere", "2020-01-01-c", 99, now_s)
    stays = [
        received(main, "2020-01-01-new.txt", 29, now_s),
        received(main, "of-the-agent.txt", 99, now_s),
        received(main, "sub/2020-01-01-deep.txt", 99, now_s),
        elsewhere,
    ]
    (main / "inbox" / "2020-01-01-folder").mkdir()
    (main / "inbox" / "2020-01-01-link").symlink_to(elsewhere)
    (tmp_path / "planted").mkdir()
    (tmp_path / "planted" / "inbox").symlink_to(elsewhere.parent)
    (tmp_path / "file").mkdir()
    (tmp_path / "file" / "inbox").write_text("no folder")
    days = 0
    names = ("file", "planted", "main", "none", "other")
    files = ReceivedFiles(lambda: names, tmp_path.joinpath, BoundedPool("files"), lambda: days)
    await files.purge(round(now_s * 1000))
    assert all(path.exists() for path in gone)
    days = 30
    await files.purge(round(now_s * 1000))
    assert not any(path.exists() for path in gone)
    assert all(path.exists() for path in stays)
    assert (main / "inbox" / "2020-01-01-link").is_symlink()
    assert (main / "inbox" / "2020-01-01-folder").is_dir()
