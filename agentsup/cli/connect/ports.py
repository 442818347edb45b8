"""The port of the next start: which it is, and whether it is free."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from agentsup.cli.connect.failure import CommandFailed
from agentsup.cli.connect.locate import DaemonLocation
from agentsup.config import AppliedHome, Home


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
