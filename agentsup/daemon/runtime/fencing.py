"""The paths that the program fence closes in this daemon, by the current settings."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from agentsup.config import ConfigSnapshot, FenceSettings, fence_paths
from agentsup.engines.process import Fencing, coding_agent_folders


def fencing_of(
    home: Path, environ: Mapping[str, str], current: Callable[[], ConfigSnapshot]
) -> Callable[[], Fencing]:
    """The fence of the daemon whose home is ``home``, by the current configuration."""
    return lambda: fencing_by(home, environ, current().settings.fence)


def fencing_by(home: Path, environ: Mapping[str, str], settings: FenceSettings) -> Fencing:
    """The fence by ``settings``.

    Closed are ``home``, which holds all secrets and the data of other agents, other locations of
    keys and sign-ins, and the paths that ``settings`` name. Outside their own part of the home
    programs write temporary files, and where ``settings`` let them.
    """
    if settings.mode == "off":
        return Fencing()
    keys = fence_paths.key_folders(environ, os.getuid())
    return Fencing(
        (str(home), *keys, *coding_agent_folders(environ), *settings.paths(environ)),
        is_required=settings.mode == "required",
        writable=settings.writable_paths(environ),
        sockets=(*fence_paths.NAME_SERVICES, *settings.socket_paths(environ)),
    )
