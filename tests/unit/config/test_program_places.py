"""Which files and folders of programs are kept from being changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentsup.config.program_places import program_locations, without_folders_of


@pytest.fixture
def user(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "ann").mkdir()
    return tmp_path / "ann"


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def found(user: Path, path: str, *names: str) -> set[Path]:
    environ = {"HOME": str(user), "PATH": path}
    places = program_locations(environ, names, home=user.parent / "home")
    return {Path(each) for each in places}


def test_each_folder_of_path_is_kept_with_the_libraries_beside_it(user: Path) -> None:
    tools = program(user / "tools" / "bin" / "x").parent
    names = ("bin", "lib", "lib64", "libexec", "pyvenv.cfg")
    assert found(user, f"{tools}:relative::") == {user / "tools" / name for name in names}


def test_a_folder_that_is_not_there_yet_is_kept_too(user: Path) -> None:
    assert user / "later" in found(user, f"{user}/later")


def test_a_programs_package_is_kept_wherever_its_link_leads(user: Path) -> None:
    packages = user / "global" / "node_modules"
    real = program(packages / "@maker" / "claude" / "cli.js")
    (user / "shims").mkdir()
    link = user / "shims" / "claude"
    link.symlink_to(real)
    assert {link, packages} <= found(user, f"{user}/shims", "claude")
    assert packages not in found(user, f"{user}/shims")


def test_a_program_that_an_entry_names_by_its_path_is_kept(user: Path) -> None:
    own = program(user / "made" / "agent")
    assert own in found(user, "/nowhere", str(own))
    assert own in found(user, "/nowhere", "~/made/agent")


def test_a_folder_that_holds_a_home_is_kept_by_its_files_alone(user: Path) -> None:
    own = program(user / "agent")
    (user / "projects").mkdir()
    assert found(user, f"{user}") == {own}


def test_what_lies_in_the_daemons_home_is_an_agents_own(user: Path) -> None:
    own = program(user.parent / "home" / "agents" / "a" / "workspace" / "bin" / "x")
    assert found(user, f"{own.parent}", str(own)) == set()


def test_a_path_of_the_daemon_names_no_folder_that_agents_write(user: Path) -> None:
    home = user.parent / "home"
    inside = home / "agents" / "a" / "workspace"
    inside.mkdir(parents=True)
    (user / "linked").symlink_to(inside)
    environ = {"PATH": f"/usr/bin:{inside}:{user}/linked:{user}", "A": "b"}
    assert without_folders_of(environ, home) == {"PATH": f"/usr/bin:{user}", "A": "b"}
    assert without_folders_of({"A": "b"}, home) == {"A": "b"}
