"""Where a program is that is not on the PATH, and what is said about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentsup.kit.searching import folder_of, not_found

_USUAL = [
    ".local/bin",
    ".npm-global/bin",
    ".volta/bin",
    ".bun/bin",
    ".nvm/versions/node/v22.1.0/bin",
]


def put(folder: Path, name: str = "some-agent") -> None:
    folder.mkdir(parents=True)
    (folder / name).write_text("#!/bin/sh\n")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize("folder", _USUAL)
def test_the_path_and_the_folder_are_named(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    put(tmp_path / folder)
    text = not_found("some-agent", {"PATH": "/usr/bin:/bin"}, "install it")
    assert "(/usr/bin:/bin)" in text
    assert f"Environment=PATH={tmp_path / folder}:/usr/bin:/bin" in text
    assert "install it" not in text


def test_the_newest_node_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for version in ("v9.9.9", "v22.1.0", "v22.0.9"):
        put(tmp_path / ".nvm" / "versions" / "node" / version / "bin")
    assert folder_of("some-agent").endswith("/v22.1.0/bin")


@pytest.mark.parametrize("program", ["some-agent", "/nowhere/some-agent", "", "../some-agent"])
def test_what_is_nowhere_is_to_be_installed(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    put(tmp_path / ".local" / "bin", "other")
    assert folder_of(program) == ""
    assert not_found(program, {"PATH": "/usr/bin"}, "install it").endswith(": install it")
