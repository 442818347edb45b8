"""Checks of the agents' tool servers for the doctor, without starting any."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from typing import Any

from agentsup.cli.doctor.check import FAIL, OK, Check
from agentsup.config import Home, load, servers_of
from agentsup.engines import NotInstalled
from agentsup.engines.process import find_program
from agentsup.model.errors import AgentsupError


def _path_of(env: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, str]:
    """The environment in which the program is looked for; the server's own PATH comes first."""
    path = env.get("PATH") or environ.get("PATH")
    return {"PATH": path} if isinstance(path, str) else {}


def check_servers(home: Home, environ: Mapping[str, str]) -> Iterator[Check]:
    """Whether what the tool servers need is installed: the library, and each program. Blocks."""
    try:
        specs = load(home, environ=environ).specs.values()
    except AgentsupError:
        return  # the check of the configuration reports it
    named = [
        (spec.name, server)
        for spec in specs
        for server in servers_of(spec.mcp).values()
        if server.enabled
    ]
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
                server.command, _path_of(server.env, environ), cwd=str(home.workspace(agent))
            )
        except NotInstalled:
            text = f"{server.name} of {agent}: the program {server.command} is not found"
            yield Check("tool server", FAIL, text, server.remedy)
        else:
            yield Check("tool server", OK, f"{server.name} of {agent}: {path}")
