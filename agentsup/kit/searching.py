"""Search for programs that are not on the PATH, as the PATH of a service is short. Blocks."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

_USUAL = (
    ".local/bin",
    "bin",
    ".npm-global/bin",
    ".npm-packages/bin",
    ".volta/bin",
    ".bun/bin",
    ".cargo/bin",
    ".local/share/pnpm",
    ".asdf/shims",
    ".local/share/mise/shims",
    ".claude/local",
    ".opencode/bin",
)
_VERSIONS = (".nvm/versions/node/*/bin", ".local/share/fnm/node-versions/*/installation/bin")
_SHARED = ("/usr/local/bin", "/opt/homebrew/bin", "/home/linuxbrew/.linuxbrew/bin", "/snap/bin")
_MOST_CHARS = 400


def folder_of(program: str) -> str:
    """Return the usual folder in which ``program`` is, or "". Only a bare name is looked for."""
    if not program or os.sep in program:
        return ""
    user = os.environ.get("HOME", "")  # a program's own HOME is elsewhere
    folders = [Path(user, each) for each in _USUAL] if user.startswith("/") else []
    for pattern in _VERSIONS if folders else ():
        folders += sorted(Path(user).glob(pattern), key=_version, reverse=True)
    folders += map(Path, _SHARED)
    path = os.pathsep.join(map(str, folders))
    found = shutil.which(program, path=path)
    return str(Path(found).parent) if found else ""


def not_found(program: str, env: Mapping[str, str], remedy: str) -> str:
    """Return a sentence that ``program`` is not found: where it was searched, where it is, and what
    to do, or else ``remedy``."""
    path = env.get("PATH", os.defpath)
    if os.sep in program:
        return f"the program {program} is not there, or can't be executed: {remedy}"
    shown = path if len(path) <= _MOST_CHARS else f"{path[:_MOST_CHARS]}…"
    where = f"the program {program} is not on the PATH ({shown})"
    folder = folder_of(program)
    if not folder:
        return f"{where}: {remedy}"
    return (
        f"{where}, but in {folder}: start the daemon with that folder on its PATH. For a service of "
        f'systemd: `systemctl --user edit agentsup`, with the lines "[Service]" and '
        f'"Environment=PATH={folder}:{path}", then restart it'
    )


def _version(folder: Path) -> list[int]:
    """The numbers in its path, so that 22 comes after 9."""
    digits = "".join(char if char.isdigit() else " " for char in str(folder))
    return [int(each) for each in digits.split()]
