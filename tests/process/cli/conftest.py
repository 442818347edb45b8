"""A home of its own for each test, and nothing of it running afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.cli.process_cli import RULES, Cli
from tests.support.bound import BOUND_S
from tests.support.ports import free_port


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    """A home with the example agents, all following short rules."""
    made = Cli(tmp_path / "home", free_port())
    made.good("init")
    (made.home / "demo-rules.yaml").write_text(RULES)
    made.home.joinpath("config.toml").write_text(f"[api]\nport = {made.port}\n")
    yield made
    made.end_all()
    for daemon in made.daemons:
        daemon.kill()
        daemon.wait()
    made.ends.close()
    for process in made.started:
        if process.poll() is None:
            process.kill()
        process.wait(BOUND_S)
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()
