"""What is closed to the programs of agents in this daemon, as it is set now."""

from __future__ import annotations

import os
from collections.abc import Callable

from agentsup.config import places
from agentsup.config.snapshot import ConfigSnapshot
from agentsup.daemon.ground import Ground
from agentsup.engines.child.fencing import Fencing
from agentsup.engines.child.homes import agents_places


def fencing_of(ground: Ground, current: Callable[[], ConfigSnapshot]) -> Callable[[], Fencing]:
    """Closed are the home, where all that is secret and all that is others' lies, other places of
    keys and sign-ins, and what ``fence.closed`` names. Our own code, the user's start-up files and
    the control groups can be read."""
    environ = ground.environ
    keys = places.key_places(environ, os.getuid())
    agents = agents_places(environ.get("HOME", ""))
    read_only = (
        *places.startup_places(environ),
        *places.control_groups(),
        *places.installation(),
    )

    def fencing() -> Fencing:
        settings = current().settings.fence
        if settings.mode == "off":
            return Fencing()
        return Fencing(
            (str(ground.home.root), *keys, *agents, *settings.paths(environ)),
            is_required=settings.mode == "required",
            read_only=read_only,
            sockets=(*places.name_services(), *settings.socket_paths(environ)),
        )

    return fencing
