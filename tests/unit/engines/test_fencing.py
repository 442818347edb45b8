"""Where a fenced program finds room for temporary files."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentsup.engines.failures import EnginesBusy, NotConfigured
from agentsup.engines.process import Fencing
from agentsup.kit import fence
from agentsup.kit.pool import BoundedPool


def test_the_usual_place_stays_where_nothing_in_it_is_closed(tmp_path: Path) -> None:
    env = {"A": "b"}
    closed = Fencing(("/var/lib/agents",), writable=("/tmp",))
    assert closed.with_room(env, tmp_path) == env
    assert Fencing().with_room(env, tmp_path) == env
    assert not (tmp_path / "tmp").exists()


def test_a_closed_place_in_it_means_one_in_the_programs_home(tmp_path: Path) -> None:
    usual, home = tmp_path / "usual", tmp_path / "usual" / "daemon" / "ann" / "home"
    closed = Fencing((str(usual / "daemon"),), writable=(str(usual),))
    env = closed.with_room({"TMPDIR": str(usual), "A": "b"}, home)
    assert env == {"TMPDIR": str(home / "tmp"), "A": "b"}
    assert (home / "tmp").stat().st_mode & 0o777 == 0o700


def test_one_that_a_program_can_not_write_means_one_in_its_home(tmp_path: Path) -> None:
    daemon, home = str(tmp_path / "daemon"), tmp_path / "daemon" / "ann" / "home"
    for usual, writable in (("/srv/tmp", ()), (f"{daemon}/tmp", (f"{daemon}/tmp",))):
        env = Fencing((daemon,), writable=writable).with_room({"TMPDIR": usual}, home)
        assert env == {"TMPDIR": str(home / "tmp")}


async def test_a_fence_that_can_not_be_made_now_is_no_reason_to_run_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def out_of_descriptors(wanted: fence.Fence) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("agentsup.engines.process.fencing.rules_of", out_of_descriptors)
    with pytest.raises(EnginesBusy, match="Too many open files"):
        async with Fencing((str(tmp_path),)).around((), files=BoundedPool("files"), key="ada"):
            pytest.fail("it would have run")


@pytest.mark.parametrize("is_required", [True, False])
async def test_where_there_is_no_fence_it_counts_whether_one_must_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_required: bool
) -> None:
    monkeypatch.setattr(fence, "version", lambda: 0)
    fencing = Fencing((str(tmp_path),), is_required)
    if not is_required:
        async with fencing.around((), files=BoundedPool("files"), key="ada") as rules:
            assert rules is None
        return
    with pytest.raises(NotConfigured, match=r"fence\.mode is required"):
        async with fencing.around((), files=BoundedPool("files"), key="ada"):
            pass
