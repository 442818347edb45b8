"""The paths that the program fence closes in this daemon, by the current settings."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from agentsup.config import ConfigSnapshot, FenceSettings, places, program_locations, servers_of
from agentsup.engines.process import Fencing, coding_agent_folders
from agentsup.engines.programs import PROGRAMS
from agentsup.model.agent import AgentSpec


def fencing_of(
    home: Path, environ: Mapping[str, str], current: Callable[[], ConfigSnapshot]
) -> Callable[[], Fencing]:
    """The fence of the daemon whose home is ``home``, by the current configuration."""

    def fencing() -> Fencing:
        snapshot = current()
        return fencing_by(home, environ, snapshot.settings.fence, snapshot.specs.values())

    return fencing


def fencing_by(
    home: Path, environ: Mapping[str, str], settings: FenceSettings, specs: Iterable[AgentSpec]
) -> Fencing:
    """The fence by ``settings``, for the programs of the agents ``specs``.

    Closed are ``home``, which holds all secrets and the data of other agents, other locations of
    keys and sign-ins, and the paths that ``settings`` name. Readable are the user's start-up files,
    the control groups, our own code, and the programs that are started by name, including those of
    ``specs``.
    """
    if settings.mode == "off":
        return Fencing()
    keys = places.key_folders(environ, os.getuid())
    agents = coding_agent_folders(environ)
    names = frozenset(_programs_of(specs))

    def programs() -> tuple[str, ...]:
        return (*places.installation(), *program_locations(environ, names, home=home))

    return Fencing(
        (str(home), *keys, *agents, *settings.paths(environ)),
        is_required=settings.mode == "required",
        read_only=(*places.startup_files(environ), places.CONTROL_GROUPS),
        sockets=(*places.NAME_SERVICES, *settings.socket_paths(environ)),
        programs=programs,
    )


def _programs_of(specs: Iterable[AgentSpec]) -> Iterator[str]:
    """The programs that the daemon may start: known coding agents, and those that entries name."""
    yield from (preset.program for preset in PROGRAMS.values())
    for spec in specs:
        command = spec.engine_options.get("command")
        if isinstance(command, list | tuple) and command:
            yield str(command[0])
        yield from (each.command for each in servers_of(spec.mcp).values() if each.command)
