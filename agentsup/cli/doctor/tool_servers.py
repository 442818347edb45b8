"""Checks of the agents' tool servers for the doctor: what they need, and how the running ones are."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

from agentsup.cli.connect.client import DaemonClient
from agentsup.cli.connect.failure import CommandFailed
from agentsup.cli.connect.locate import DaemonLocation
from agentsup.cli.doctor.check import FAIL, OK, WARN, Check
from agentsup.config import Home, McpServer, load, servers_of
from agentsup.engines import NotInstalled
from agentsup.engines.process import find_program
from agentsup.kit.terminal import clean
from agentsup.model.errors import AgentsupError

_WELL = ("running", "starting", "stopping", "stopped", "disabled")


def _path_of(env: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, str]:
    """The environment in which the program is looked for; the server's own PATH comes first."""
    path = env.get("PATH") or environ.get("PATH")
    return {"PATH": path} if isinstance(path, str) else {}


def check_servers(home: Home, environ: Mapping[str, str]) -> Iterator[Check]:
    """Whether what the tool servers need is installed: the library, and each program. Blocks."""
    named = _named(home, environ)
    if named and importlib.util.find_spec("mcp") is None:
        agents = ", ".join(sorted({agent for agent, _ in named}))
        text = f"{agents} name tool servers, and what they take is not installed"
        yield Check(
            "tool server", FAIL, text, "pip install 'agentsup[mcp]', then restart the daemon"
        )
        return
    for agent, server in named:
        if server.url is not None:
            text = f"{server.name} of {agent}: {server.shown} (not asked)"
            yield Check("tool server", OK, text)
            continue
        try:
            path = find_program(
                server.command,
                _path_of(server.env, environ),
                cwd=server.cwd or str(home.workspace(agent)),
                remedy=server.remedy,
            )
        except NotInstalled as error:
            text = f"{server.name} of {agent}: the program {server.command} is not found"
            yield Check("tool server", FAIL, text, error.message)
        else:
            yield Check("tool server", OK, f"{server.name} of {agent}: {path}")


def check_running_servers(location: DaemonLocation, environ: Mapping[str, str]) -> Iterator[Check]:
    """Report problems of the servers in the running daemon; nothing if none answers."""
    for agent in dict.fromkeys(agent for agent, _ in _named(location.home, environ)):
        try:
            path = f"/agents/{quote(agent, safe='')}/mcp"
            answer = DaemonClient.to(location).ask("GET", path, timeout_s=5.0)
        except CommandFailed:
            return
        if answer.status == 200:
            yield from amiss(agent, answer.document["servers"])


def amiss(agent: str, servers: Iterable[Mapping[str, Any]]) -> Iterator[Check]:
    """A warning for each server that does not run, and for each with tools that are left out."""
    for one in servers:
        head = f"{one['name']} of {agent}"
        if one["state"] not in _WELL:
            text = f"{head}: {one['state'].replace('_', ' ')}"
            why = clean(one["error"])
            yield Check("tool server", WARN, f"{text}: {why}" if why else text)
        if one["notes"]:
            yield Check("tool server", WARN, f"{head}: {clean('; '.join(one['notes']))}")


def _named(home: Home, environ: Mapping[str, str]) -> list[tuple[str, McpServer]]:
    """The servers that are on, each with its agent. None if the files are wrong, which the check of
    the configuration reports."""
    try:
        specs = load(home, environ=environ).specs.values()
    except AgentsupError:
        return []
    return [
        (spec.name, server)
        for spec in specs
        for server in servers_of(spec.mcp).values()
        if server.enabled
    ]
