"""What is installed for running is in one lock, and the tools of development are in the other."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib

import pytest

from tests.support.source_tree import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
_LOCKED = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)", re.MULTILINE)


def folded(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).casefold()


def locked(name: str) -> dict[str, str]:
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    found = {folded(package): version for package, version in _LOCKED.findall(text)}
    assert text.count("--hash=sha256:") >= len(found) > 10
    return found


def named(group: list[str]) -> set[str]:
    return {folded(re.split(r"[\s<>=\[;]", each, maxsplit=1)[0]) for each in group}


def commands(target: str) -> str:
    """What ``make`` would do for ``target`` in a fresh clone; nothing is run."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    line = ["make", "--dry-run", "--always-make", "--no-print-directory", target]
    done = subprocess.run(line, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    return done.stdout


def test_running_needs_no_tool_of_development() -> None:
    runtime, dev = locked("runtime.txt"), locked("dev.txt")
    tools = named(PROJECT["dependency-groups"]["dev"]) - {"jsonschema"}  # mcp needs it, too
    assert tools <= set(dev)
    assert not tools & set(runtime)
    assert named(PROJECT["project"]["dependencies"]) <= set(runtime)
    # So that `make setup` after `make run`, and the other way round, changes no version.
    assert runtime.items() <= dev.items()


@pytest.mark.skipif(shutil.which("make") is None, reason="asks make")
def test_make_run_installs_what_running_needs_and_make_test_all() -> None:
    run, setup = commands("run"), commands("setup")
    assert "--require-hashes -r requirements/runtime.txt" in run
    assert "agentsup --home .home up" in run
    assert "dev.txt" not in run
    assert "--require-hashes -r requirements/dev.txt" in setup
