"""The service or parent that restarts a daemon, and texts about it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

from agentsup.cli.connect.locate import DaemonLocation
from agentsup.kit.keeper import GIVEN_UP, MAX_RESTARTS, WINDOW_S
from agentsup.kit.keeping import KeeperStatus, read_status

SYSTEMD, CONTAINER, PARENT, NOTHING = "systemd", "container", "parent", "nothing"


@dataclass(frozen=True, slots=True)
class Keeping:
    """``by`` is one of the words above; ``text`` goes on after *kept running*."""

    by: str
    text: str


def keeping_of(location: DaemonLocation, pid: int | None) -> Keeping:
    """Find the service or parent that keeps the daemon ``pid`` of ``location`` running."""
    written = location.written() or {}
    is_of_container = pid is not None and is_container_main(pid)
    return keeping_by(location, pid, written, read_status(location.home.keeper), is_of_container)


def keeping_by(
    location: DaemonLocation,
    pid: int | None,
    written: Mapping[str, Any],
    keeper: KeeperStatus | None,
    is_of_container: bool,
) -> Keeping:
    """The same, from what is known: the address file and the status of a keeper."""
    if written.get("systemd"):
        return Keeping(SYSTEMD, f"by systemd; see `{location.command('service status')}`")
    if is_of_container:
        return Keeping(CONTAINER, "by the container, if its restart policy says so")
    if keeper is None or keeper.child != pid:
        return Keeping(
            NOTHING, "by nothing: `agentsup run` started it, and when it ends it stays down"
        )
    if keeper.is_alive:
        install = location.command("service install")
        return Keeping(
            PARENT,
            f"by the small parent of `agentsup up` (pid {keeper.pid}); "
            f"`{install}` survives a reboot",
        )
    return Keeping(
        NOTHING,
        f"by nothing: its small parent (pid {keeper.pid}) was killed, so when it ends it stays down; "
        f"`{location.command('restart')}` gives it another",
    )


def why_none_runs(location: DaemonLocation) -> str:
    """A text about the daemon that does not answer; empty if nothing is known."""
    from agentsup.kit.clock import SystemClock  # loads asyncio: not for every short command

    keeper = None if location.url else read_status(location.home.keeper)
    return "" if keeper is None else plan_of(location, keeper, SystemClock().now_ms() / 1000)


def plan_of(location: DaemonLocation, keeper: KeeperStatus, now_s: float) -> str:
    """A text about a keeper's next step for a daemon that does not run."""
    if keeper.is_waiting:
        soon_s = max(1, ceil(keeper.until_s - now_s))
        return (
            f"the daemon ended with code {keeper.code}; its small parent (pid {keeper.pid}) starts it "
            f"again in {soon_s} s (try {keeper.failures} of {MAX_RESTARTS}). "
            f"`{location.command('up')}` starts it now, `{location.command('stop')}` gives it up"
        )
    if keeper.is_alive:
        return f"the daemon is starting (its small parent is pid {keeper.pid})"
    if keeper.state == GIVEN_UP:
        return (
            f"the daemon ended {keeper.failures} times within {WINDOW_S:g} s, the last time with code "
            f"{keeper.code}, and was given up; `{location.command('logs')}` says why, "
            f"`{location.command('up')}` starts it"
        )
    return ""


def is_container_main(pid: int) -> bool:
    """Whether ``pid`` is the main program of a container: process 1, or in the session of it.

    A daemon that was started by ``up`` has a session of its own, in a container too.
    """
    try:
        return pid == 1 or os.getsid(pid) == 1
    except ProcessLookupError:
        return False
