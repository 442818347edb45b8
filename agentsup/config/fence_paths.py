"""Locations outside the home for the program fence: those of keys, and sockets of name services."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

NAME_SERVICES: Final = (
    "/run/nscd",
    "/run/systemd/resolve",
    "/run/systemd/userdb",
    "/var/lib/sss/pipes",
)
"""Sockets of name services for hosts and users; these services start no programs."""


def key_folders(environ: Mapping[str, str], uid: int) -> tuple[str, ...]:
    """Closed locations besides the home: the folder in which the unit and the README put keys, and
    the user's run-time folder with its sockets and keyrings."""
    user = environ.get("HOME", "")
    config = environ.get("XDG_CONFIG_HOME") or (f"{user}/.config" if user else "")
    runtime = {f"/run/user/{uid}", environ.get("XDG_RUNTIME_DIR") or f"/run/user/{uid}"}
    keys = {f"{config}/agentsup"} | ({f"{user}/.config/agentsup"} if user else set())
    return tuple(sorted(path for path in keys | runtime if path.startswith("/")))


def expanded(path: str, environ: Mapping[str, str]) -> str:
    """``path`` with the home of the daemon's user in place of ``~/``."""
    user = environ.get("HOME", "")
    return f"{user}{path[1:]}" if path.startswith("~/") and user else path


def without_folders_of(environ: Mapping[str, str], home: Path) -> dict[str, str]:
    """``environ`` with a PATH without folders in the daemon's ``home``. Blocks.

    Agents write there, and their files must not run for others.
    """
    path = environ.get("PATH")
    if path is None:
        return dict(environ)
    closed = _real(home)
    folders = [each for each in path.split(os.pathsep) if not _real(each).is_relative_to(closed)]
    return {**environ, "PATH": os.pathsep.join(folders) or os.defpath}


def _real(path: str | Path) -> Path:
    return Path(os.path.realpath(path))
