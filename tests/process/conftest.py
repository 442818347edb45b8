"""Real daemons on temporary homes; whatever still runs at the end of a test is ended."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon_process import DaemonProcess, write_home
from tests.support.fork_server import ADDRESS, ForkServer
from tests.support.preloaded_process import DAEMON

MakeDaemon = Callable[..., DaemonProcess]


def pytest_configure(config: pytest.Config) -> None:
    """One server for all workers: they inherit its address."""
    if ADDRESS not in os.environ:
        config.add_cleanup(ForkServer.start(DAEMON).close)


@pytest.fixture
async def make_daemon(tmp_path: Path) -> AsyncIterator[MakeDaemon]:
    """``make_daemon(agents, rules, config)``: a home and its daemon, not started yet."""
    made: list[DaemonProcess] = []

    def make(
        agents: Sequence[str | Mapping[str, Any]],
        rules: Sequence[Mapping[str, Any]] = (),
        config: str = "",
        **options: Any,
    ) -> DaemonProcess:
        entries = [{"name": agent} if isinstance(agent, str) else agent for agent in agents]
        home = write_home(tmp_path / f"home{len(made)}", entries, rules, config)
        daemon = DaemonProcess(home, **options)
        made.append(daemon)
        return daemon

    yield make
    for daemon in made:
        await daemon.close()
