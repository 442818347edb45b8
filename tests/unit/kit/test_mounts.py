"""Other ways to the same files: what is closed under one path is closed under each."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentsup.kit import fence
from agentsup.kit.fence import Fence, gaps
from agentsup.kit.mounts import Mount, mounts, second_paths

ROOT = Mount("254:0", "/", "/")
BOUND = Mount("254:0", "/home/ann", "/mnt/bound")
HOME = Mount("0:45", "/@home", "/home")
WHOLE = Mount("0:45", "/", "/mnt/pool")


def test_a_line_is_read_and_what_is_none_is_passed_over(tmp_path: Path) -> None:
    lines = (
        "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue",
        r"40 35 98:0 /a\040b /c\134d rw - ext3 /dev/root rw",
        "nothing",
    )
    table = tmp_path / "mountinfo"
    table.write_text("\n".join(lines))
    assert mounts(table) == (Mount("98:0", "/mnt1", "/mnt2"), Mount("98:0", "/a b", r"/c\d"))
    assert mounts(tmp_path / "none") == ()


@pytest.mark.parametrize(
    "path, known, found",
    [
        ("/home/ann/.agentsup", (ROOT,), set()),
        ("/home/ann/.agentsup", (ROOT, BOUND), {"/mnt/bound/.agentsup"}),
        ("/home/ann/.agentsup", (ROOT, HOME, WHOLE), {"/mnt/pool/@home/ann/.agentsup"}),
        ("/home/ben", (ROOT, BOUND), set()),
        ("/mnt/bound/.agentsup", (ROOT, BOUND), {"/home/ann/.agentsup"}),
        ("/home", (ROOT, BOUND), {"/mnt/bound"}),
        ("/srv", (), set()),
    ],
)
def test_each_other_path_of_the_same_files(
    path: str, known: tuple[Mount, ...], found: set[str]
) -> None:
    assert second_paths(path, known) == found


def test_a_fence_closes_every_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("home/secret", "home/open", "second/secret", "second/open"):
        (tmp_path / name).mkdir(parents=True)
    table = (ROOT, Mount("254:0", str(tmp_path / "home"), str(tmp_path / "second")))
    monkeypatch.setattr(fence, "mounts", lambda: table)
    found = {gap.path for gap in gaps(Fence((str(tmp_path / "home" / "secret"),)))}
    assert {str(tmp_path / "home" / "open"), str(tmp_path / "second" / "open")} <= found
    assert not any(path.endswith(("/secret", "/second")) for path in found)
