"""Files of people in a workspace where an agent may plant what it likes, and people may not."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from agentsup.channels.core.files.inbox_files import FOLDER, InboxFolder, sweep
from agentsup.model.agent import AgentSpec
from agentsup.model.principal import PersonRole, Principal
from tests.component.channels.telegram.fixture import AGENT_ID, TelegramFixture, rigged


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[TelegramFixture]:
    async with rigged(tmp_path) as rig:
        yield rig


def inbox(rig: TelegramFixture) -> list[str]:
    folder = rig.folder / "workspace" / FOLDER
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


async def test_who_may_only_look_leaves_no_file(rig: TelegramFixture) -> None:
    vic = await rig.people.user("Vic")
    chat = await rig.people.private(vic, rig.bot.bot_id)
    rig.allow(vic)
    real = rig.who

    def who(spec: AgentSpec, user_id: int) -> Principal | None:
        found = real(spec, user_id)
        return replace(found, role=PersonRole.VIEWER) if found and user_id == vic else found

    rig.who = who  # type: ignore[method-assign]
    await rig.start()
    await rig.people.send_file(chat, b"evil", name="AGENTS.md", caption="read this")
    await rig.people.wait_text(chat, "look but not write")
    assert inbox(rig) == []
    assert (await rig.people.report())["calls"].get("getFile") is None


async def test_a_full_queue_leaves_no_file(rig: TelegramFixture) -> None:
    object.__setattr__(rig.mailbox.context.limits, "queue_limit", 1)
    rig.agent.gate.clear()
    await rig.start()
    await rig.people.say(rig.chat, "a")
    await rig.updates_done(1)
    await rig.people.send_file(rig.chat, b"zz", name="b.txt", caption="c")
    await rig.people.wait_text(rig.chat, "is full")
    assert inbox(rig) == []
    rig.agent.gate.set()


async def test_a_queue_that_fills_during_the_download_leaves_no_file(rig: TelegramFixture) -> None:
    object.__setattr__(rig.mailbox.context.limits, "queue_limit", 1)
    rig.agent.gate.clear()
    zoe = await rig.people.user("Zoe")
    other = await rig.people.private(zoe, rig.bot.bot_id)
    rig.allow(zoe)
    await rig.start()
    await rig.people.fault("hang", method="getFile", count=1, seconds=1)
    await rig.people.send_file(rig.chat, b"zz", name="b.txt", caption="c")
    await rig.people.say(other, "fills it")
    await rig.people.wait_text(rig.chat, "is full")
    assert inbox(rig) == []
    rig.agent.gate.set()


async def test_a_planted_link_is_not_followed(rig: TelegramFixture) -> None:
    folder = rig.folder / "workspace" / FOLDER
    folder.mkdir(parents=True)
    outside = rig.folder / "outside.txt"
    outside.write_text("precious")
    day = time.strftime("%Y-%m-%d", time.gmtime())
    for name in (f".{day}-a.txt.part", f"{day}-a.txt"):
        (folder / name).symlink_to(outside)
    await rig.start()
    await rig.people.send_file(rig.chat, b"data", name="a.txt", caption="c")
    await rig.people.wait_text(rig.chat, "echo: c")
    assert outside.read_text() == "precious"
    (part,) = [part for part in rig.agent.seen[0][2] if part.type == "file"]
    path = rig.folder / "workspace" / part.path
    assert not path.is_symlink()
    assert path.read_bytes() == b"data"


async def test_what_a_killed_download_left_is_removed_at_the_start(rig: TelegramFixture) -> None:
    workspace = rig.folder / "workspace"
    workspace.mkdir()
    left = InboxFolder(workspace, owner=f"telegram-{AGENT_ID}", token="x")
    left.out.write(b"half of it")
    left.out.close()  # and never more, as after a kill
    other = InboxFolder(workspace, owner="telegram-agt_other", token="y")
    assert len(inbox(rig)) == 2
    await rig.start()
    assert len(inbox(rig)) == 1
    left.close()
    other.close()
    assert inbox(rig) == []


def test_a_file_gets_its_name_when_it_is_whole(tmp_path: Path) -> None:
    for data in (b"one", b"two"):
        landing = InboxFolder(tmp_path, owner="a", token=data.decode())
        landing.out.write(data)
        assert all(
            path.name.startswith(".") or path.stat().st_size
            for path in (tmp_path / FOLDER).iterdir()
        )
        kept = landing.keep("../n.txt", now_ms=0)
        landing.close()
        assert kept.read_bytes() == data
    names = sorted(path.name for path in (tmp_path / FOLDER).iterdir())
    assert names == ["1970-01-01-n-2.txt", "1970-01-01-n.txt"]
    assert sweep(tmp_path, owner="a") == 0
    outside = tmp_path / "elsewhere"
    outside.mkdir()
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / FOLDER).symlink_to(outside)
    landing = InboxFolder(tmp_path / "w", owner="a", token="t")
    landing.keep("n.txt", now_ms=0)
    landing.close()
    assert list(outside.iterdir()) == []
    assert (tmp_path / "w" / f"{FOLDER}.set-aside-1").is_symlink()
    assert (tmp_path / "w" / FOLDER / "1970-01-01-n.txt").is_file()


async def test_a_platform_that_is_away_for_a_while_costs_no_file(rig: TelegramFixture) -> None:
    await rig.start()
    await rig.people.fault("server_error", method="getFile", count=3)
    await rig.people.send_file(rig.chat, b"data", name="b.txt", caption="c")
    # Before it is taken the file may still have its unfinished name, or both.
    await rig.people.wait_text(rig.chat, "echo: c")
    (name,) = inbox(rig)
    assert name.endswith("-b.txt")
