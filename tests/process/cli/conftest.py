"""A home of its own for each test, and nothing of it running afterwards."""

import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentsup.testing.bound import BOUND_S
from tests.process.cli.process_cli import RULES, Cli


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    """A home with the example agents, all following short rules."""
    made = Cli(tmp_path / "home", free_port())
    made.good("init")
    (made.home / "demo-rules.yaml").write_text(RULES)
    made.home.joinpath("config.toml").write_text(f"[api]\nport = {made.port}\n")
    yield made
    written = made.written()
    if written is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(written["pid"], signal.SIGKILL)  # started by `up`, so not our child
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
