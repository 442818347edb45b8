"""Tool servers of agents, as the doctor sees them without starting any."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agentsup.config.home import Home
from agentsup.config.mcp import servers_of
from agentsup.config.snapshot import load
from agentsup.engines.child import find_program
from agentsup.engines.failures import NotInstalled
from agentsup.model.errors import AgentsupError


@dataclass(frozen=True, slots=True)
class Seen:
    """One thing to tell; ``advice`` says what to do where it is not well."""

    text: str
    is_well: bool
    advice: str = ""


def _path_of(env: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, str]:
    """What the program is looked for with; a PATH of the server's own comes first."""
    path = env.get("PATH") or environ.get("PATH")
    return {"PATH": path} if isinstance(path, str) else {}


def look(home: Home, environ: Mapping[str, str]) -> Iterator[Seen]:
    """Whether what agents' servers need is there: the library, and each program. Blocks."""
    try:
        specs = load(home, environ=environ).specs.values()
    except AgentsupError:
        return  # told by the check of the configuration
    named = [
        (spec.name, server)
        for spec in specs
        for server in servers_of(spec.mcp).values()
        if server.enabled
    ]
    if named and importlib.util.find_spec("mcp") is None:
        agents = ", ".join(sorted({agent for agent, _ in named}))
        told = f"{agents} name tool servers, and what they take is not installed"
        yield Seen(told, False, "pip install 'agentsup[mcp]', then restart the daemon")
        return
    for agent, server in named:
        if server.url is not None:
            yield Seen(f"{server.name} of {agent}: {server.shown} (not asked)", True)
            continue
        try:
            path = find_program(
                server.command, _path_of(server.env, environ), cwd=str(home.workspace(agent))
            )
        except NotInstalled:
            told = f"{server.name} of {agent}: the program {server.command} is not found"
            yield Seen(told, False, "install it, or name its full path as command")
        else:
            yield Seen(f"{server.name} of {agent}: {path}", True)
