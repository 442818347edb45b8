"""What is closed to the programs of agents in this daemon, as it is set now."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from agentsup.config import places
from agentsup.config.fencing import FenceSettings
from agentsup.config.mcp import servers_of
from agentsup.config.program_places import program_places
from agentsup.config.snapshot import ConfigSnapshot
from agentsup.engines.child.fencing import Fencing
from agentsup.engines.child.homes import agents_places
from agentsup.engines.programs import PROGRAMS
from agentsup.model.agent import AgentSpec


def fencing_of(
    home: Path, environ: Mapping[str, str], current: Callable[[], ConfigSnapshot]
) -> Callable[[], Fencing]:
    """What is closed now, in the daemon of ``home``."""

    def fencing() -> Fencing:
        snapshot = current()
        return fencing_by(home, environ, snapshot.settings.fence, snapshot.specs.values())

    return fencing


def fencing_by(
    home: Path, environ: Mapping[str, str], settings: FenceSettings, specs: Iterable[AgentSpec]
) -> Fencing:
    """Closed are ``home``, where all that is secret and all that is others' lies, other places of
    keys and sign-ins, and what ``settings`` name. The user's start-up files, the control groups, our
    own code, and the programs that are started by name, those of ``specs`` among them, can be read."""
    if settings.mode == "off":
        return Fencing()
    keys = places.key_places(environ, os.getuid())
    agents = agents_places(environ.get("HOME", ""))
    names = frozenset(_programs_of(specs))

    def programs() -> tuple[str, ...]:
        return (*places.installation(), *program_places(environ, names, home=home))

    return Fencing(
        (str(home), *keys, *agents, *settings.paths(environ)),
        is_required=settings.mode == "required",
        read_only=(*places.startup_places(environ), *places.control_groups()),
        sockets=(*places.name_services(), *settings.socket_paths(environ)),
        programs=programs,
    )


def _programs_of(specs: Iterable[AgentSpec]) -> Iterator[str]:
    """What the daemon may start: known coding agents, and what entries name."""
    yield from (preset.program for preset in PROGRAMS.values())
    for spec in specs:
        command = spec.engine_options.get("command")
        if isinstance(command, list | tuple) and command:
            yield str(command[0])
        yield from (each.command for each in servers_of(spec.mcp).values() if each.command)
