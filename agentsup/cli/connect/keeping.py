"""Finds the service or parent that restarts the daemon, with texts about it, and the port of the
next start."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any
from urllib.parse import urlsplit

from agentsup.cli.connect.failure import CommandFailed
from agentsup.cli.connect.locate import DaemonLocation
from agentsup.config import AppliedHome, Home
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


@dataclass(frozen=True, slots=True)
class Listening:
    """The address at which a daemon of the home would listen by its settings."""

    bind: str
    port: int

    def problem(self) -> str:
        """Why nothing can listen there now; empty if it is free."""
        try:
            for family, _, _, _, address in socket.getaddrinfo(
                self.bind, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            ):
                with socket.socket(family) as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    if family == socket.AF_INET6:
                        probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                    probe.bind(address)
        except OSError as error:
            return error.strerror or str(error)
        return ""


def by_settings(home: Home) -> Listening | None:
    """The address by config.toml and the environment. If config.toml is wrong, the copy that was
    applied last is used, as at a start. None if neither can be used. Blocks on the disk."""
    from agentsup.config import parse_settings
    from agentsup.model.errors import ConfigErrors

    for path in (home.config_toml, AppliedHome(home.root).config_toml):
        try:
            content = path.read_bytes() if path.exists() else None
            api = parse_settings(content).settings.api
        except (ConfigErrors, OSError):
            continue
        return Listening(api.bind, api.port)
    return None


def port_for_restart(location: DaemonLocation, given: int | None) -> int | None:
    """The port with which to start the daemon of ``location`` again: ``given``, else the one of its
    last ``--port``; None: that of the settings.

    Raises ``CommandFailed`` if that is another port than now and is not free: the daemon is not
    stopped then, as it could not be started again.
    """
    written: dict[str, Any] = location.written() or {}
    now = urlsplit(str(written.get("url", ""))).port
    chosen = given if given is not None else now if written.get("is_port_given") else None
    settings = by_settings(location.home)
    if settings is None:
        return chosen
    wanted = Listening(settings.bind, settings.port if chosen is None else chosen)
    if wanted.port not in (0, now) and (problem := wanted.problem()):
        option = location.command("restart --port N")
        raise CommandFailed(
            f"port {wanted.port} on {wanted.bind} can't be had ({problem.lower()}), so the daemon "
            f"was not stopped; choose another with api.port in config.toml or `{option}`"
        )
    return chosen
