"""What is closed is closed, whichever way a program takes; what is its own stays open."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentsup.kit import fence
from agentsup.kit.fence import (
    Fence,
    FenceUnavailable,
    Gap,
    Mount,
    gaps,
    mounts,
    rules_of,
    second_paths,
)
from agentsup.kit.pipes import Stdio
from agentsup.kit.procgroup import ProcessGroup

HAS_FENCE = fence.version() >= fence.OLDEST
needs_fence = pytest.mark.skipif(not HAS_FENCE, reason="this kernel has no Landlock")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    for name in ("ann", "bob"):
        (home / name / "space").mkdir(parents=True)
        (home / name / "space" / "notes").write_text(f"of {name}")
    (home / "secret").write_text("the key")
    (tmp_path / "beside").write_text("of all")
    (tmp_path / "shelf").mkdir()
    return home


@contextmanager
def rules(closed: Path, *opened: Path) -> Iterator[int]:
    shelf = str(closed.parent / "shelf")
    descriptor = rules_of(Fence((str(closed),), tuple(map(str, opened)), (shelf,)))
    try:
        yield descriptor
    finally:
        os.close(descriptor)


async def run(home: Path, *argv: str) -> tuple[int, str]:
    """As a program of ann, with the exit code and all it says."""
    space = home / "ann" / "space"
    with rules(home, space) as fence:
        group = await ProcessGroup.spawn(
            argv, env={"PATH": os.environ["PATH"]}, cwd=str(space), stderr=Stdio.MERGE, fence=fence
        )
    async with group:
        output = await group.communicate(limit_bytes=100_000)
    return output.code, output.stdout.decode()


def opened_by(wanted: Fence) -> list[str]:
    """The paths of what a program may read."""
    return [gap.path for gap in gaps(wanted)]


def written_by(wanted: Fence) -> set[str]:
    """The paths of what a program may write, beside devices and ``/proc``."""
    found = {gap.path for gap in gaps(wanted) if gap.is_writable}
    return {path for path in found if not path.startswith(("/dev/", "/proc"))}


# -- which places are opened -------------------------------------------------------------------


def test_what_lies_beside_the_way_to_a_closed_place_is_open(home: Path) -> None:
    found = set(opened_by(Fence((str(home),))))
    assert {str(home.parent / "beside"), str(home.parent / "shelf"), "/usr"} <= found
    assert not any(path == "/" or str(home).startswith(path + "/") for path in found)
    assert not any(path.startswith(str(home)) for path in found)


def test_what_is_opened_inside_is_open_and_nothing_beside_it(home: Path) -> None:
    space = home / "ann" / "space"
    inside = [
        path for path in opened_by(Fence((str(home),), (str(space),))) if path.startswith(str(home))
    ]
    assert inside == [str(space)]


def test_what_is_shown_inside_can_be_read_and_not_written(home: Path) -> None:
    space = str(home / "ann" / "space")
    found = gaps(Fence((str(home),), shown=(space,)))
    inside = [gap for gap in found if gap.path.startswith(str(home))]
    assert inside == [Gap(space, is_writable=False)]


def test_a_closed_place_inside_an_opened_one_stays_closed(home: Path) -> None:
    inner = home / "ann" / "space" / "inner"
    inner.mkdir()
    found = set(opened_by(Fence((str(home), str(inner)), (str(home / "ann" / "space"),))))
    assert str(home / "ann" / "space" / "notes") in found
    assert not any(path.startswith((str(inner), str(home / "bob"))) for path in found)


def test_an_opened_place_that_holds_a_closed_one_is_opened_around_it(home: Path) -> None:
    found = set(opened_by(Fence((str(home),), (str(home.parent),))))
    assert str(home.parent / "shelf") in found
    assert str(home.parent) not in found
    assert not any(path.startswith(str(home)) for path in found)


def test_a_link_to_a_closed_place_opens_nothing(home: Path) -> None:
    way = home.parent / "way"
    way.symlink_to(home)
    found = list(opened_by(Fence((str(way),))))
    assert not any(path == str(way) or path.startswith(str(home)) for path in found)


def test_what_is_not_named_is_read_only(home: Path) -> None:
    space, shelf = str(home / "ann" / "space"), str(home.parent / "shelf")
    assert written_by(Fence((str(home),), (space,))) == {space}
    assert written_by(Fence((str(home),), (space,), (shelf,))) == {space, shelf}
    written = {gap.path for gap in gaps(Fence((str(home),))) if gap.is_writable}
    assert {"/dev/null", "/dev/shm", "/proc"} <= written


def test_a_writable_place_opens_nothing_that_is_closed(home: Path) -> None:
    wanted = Fence((str(home),), (), (str(home / "bob"), str(home.parent)))
    assert not any(path.startswith(str(home)) for path in written_by(wanted))
    assert str(home.parent / "shelf") in written_by(wanted)
    assert str(home.parent) not in written_by(wanted), "nothing new is made beside the home"


def test_a_link_that_a_program_could_have_planted_opens_nothing(home: Path, tmp_path: Path) -> None:
    shelf, other = tmp_path / "shelf", tmp_path / "other"
    other.mkdir()
    (shelf / "inner").symlink_to(other)
    (home / "ann" / "space" / "inner").symlink_to(other)
    (tmp_path / "way").symlink_to(other)
    for planted in (shelf / "inner", home / "ann" / "space" / "inner"):
        assert str(other) not in written_by(Fence((str(home),), (), (str(shelf), str(planted))))
    by_a_person = Fence((str(home),), (), (str(shelf), str(tmp_path / "way")))
    assert written_by(by_a_person) == {str(shelf), str(other)}


def test_a_closed_place_that_does_not_exist_closes_nothing_else(home: Path) -> None:
    found = set(opened_by(Fence((str(home / "ann" / "none"),))))
    assert {str(home / "secret"), str(home / "bob"), str(home / "ann" / "space")} <= found


def test_where_the_system_has_none_that_is_said(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fence, "version", lambda: 1)
    with pytest.raises(FenceUnavailable, match=r"Linux 5\.19 or newer"):
        rules_of(Fence((str(home),)))


# -- real programs -----------------------------------------------------------------------------

ATTACKS = {
    "read": "cat {home}/secret",
    "read another's": "cat ../../bob/space/notes",
    "list": "ls {home}",
    "through a link": "ln -s {home}/secret way && cat way",
    "through a hard link": "ln {home}/secret way && cat way",
    "through proc": "cat /proc/self/root{home}/secret",
    "through a descriptor of ours": "cat /proc/{pid}/root{home}/secret",
    "by moving it here": "mv {home}/secret here && cat here",
    "by moving the workspace": "mv ../../bob/space here && cat here/notes",
    "write": "echo mine > {home}/secret",
    "append": "echo mine >> {home}/secret",
    "cut": "truncate -s 0 {home}/secret",
    "remove": "rm -f {home}/secret && ! [ -e {home}/secret ]",
    "plant": "echo x > {home}/planted",
    "plant beside": "echo x > ../../bob/space/planted",
    "signal": "kill -9 {pid}",
    "a grandchild in its own session": "setsid -w cat {home}/secret",
    "a copy of the shell": "cp /bin/sh mine && ./mine -c 'cat {home}/secret'",
    "python": "{python} -c 'print(open(\"{home}/secret\").read())'",
}


ELSEWHERE = {
    "write": "echo x > {beside}",
    "append": "echo x >> {beside}",
    "cut": "truncate -s 0 {beside}",
    "remove": "rm -f {beside} && ! [ -e {beside} ]",
    "make": "echo x > {beside}-new",
    "make a folder": "mkdir {beside}-new",
    "move in": "mv notes {beside}",
    "move out": "mv {beside} here",
    "by a hard link": "ln {beside} here && echo x > here",
    "by a link": "ln -s {beside} here && echo x > here",
    "through proc": "echo x > /proc/self/root{beside}",
    "through a planted link": "ln -s {beside} ../../../shelf/l && echo x > ../../../shelf/l",
}


@needs_fence
@pytest.mark.parametrize("how", sorted(ELSEWHERE))
async def test_no_way_writes_anywhere_else(home: Path, how: str) -> None:
    beside = home.parent / "beside"
    before = sorted(home.parent.iterdir())
    code, said = await run(home, "/bin/sh", "-c", ELSEWHERE[how].format(beside=beside))
    assert code != 0, said
    assert beside.read_text() == "of all"
    assert sorted(home.parent.iterdir()) == before


ALLOWED = """
cat notes; echo; echo new > f; mkdir d; mv f d/g; cat d/g; rm -r d; ln -s notes l; cat l; echo
cat ../../../beside; echo; echo kept > ../../../shelf/f; ls /usr > /dev/null; : > /dev/null
sleep 30 & kill -9 $!; wait $! || echo ended by $?
"""


@needs_fence
@pytest.mark.parametrize("how", sorted(ATTACKS))
async def test_no_way_leads_to_a_closed_place(home: Path, how: str) -> None:
    line = ATTACKS[how].format(home=home, pid=os.getpid(), python=sys.executable)
    before = {path: path.read_text() for path in home.rglob("*") if path.is_file()}
    code, said = await run(home, "/bin/sh", "-c", line)
    assert code != 0, said
    assert "the key" not in said
    assert "of bob" not in said
    assert any(word in said for word in ("enied", "not permitted", "cross-device")), said
    assert {path: path.read_text() for path in before} == before
    assert not list(home.rglob("planted"))


@needs_fence
@pytest.mark.parametrize("how", sorted(set(ATTACKS) - {"signal"}))
async def test_each_way_is_open_without_a_fence(home: Path, how: str) -> None:
    """An attack that never works proves nothing; the signal would be the end of this run."""
    line = ATTACKS[how].format(home=home, pid=os.getpid(), python=sys.executable)
    async with await ProcessGroup.spawn(
        ["/bin/sh", "-c", line],
        env={"PATH": os.environ["PATH"]},
        cwd=str(home / "ann" / "space"),
        stderr=Stdio.MERGE,
    ) as group:
        output = await group.communicate(limit_bytes=100_000)
    assert output.code == 0, output.stdout


@needs_fence
async def test_its_own_place_and_the_rest_of_the_system_stay_open(home: Path) -> None:
    code, said = await run(home, "/bin/sh", "-ec", ALLOWED)
    assert code == 0, said
    lines = [line for line in said.splitlines() if line != "Killed"]
    assert lines == ["of ann", "new", "of ann", "of all", "ended by 137"]
    assert (home.parent / "shelf" / "f").read_text() == "kept\n"


@needs_fence
async def test_nothing_runs_where_the_fence_can_not_be_closed(home: Path) -> None:
    with (home / "secret").open() as not_rules, pytest.raises(OSError, match="can't be closed"):
        await ProcessGroup.spawn(
            ["/bin/sh", "-c", "echo ran > ran"],
            env={},
            cwd=str(home),
            fence=not_rules.fileno(),
        )
    assert not (home / "ran").exists()


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
