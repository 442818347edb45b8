"""Locations outside the home for the program fence.

They hold keys, code that later runs without a fence, and sockets of the machine's services. The
lists name what is well known. They can't be complete: any program may choose its own location for
start-up files.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_SHELLS: Final = (
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".bash_aliases",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".zlogout",
    ".inputrc",
    ".config/fish",
    ".config/zsh",
)
_SESSIONS: Final = (
    ".pam_environment",
    ".xprofile",
    ".xsession",
    ".xsessionrc",
    ".xinitrc",
    ".config/environment.d",
    ".config/systemd",
    ".config/autostart",
    ".config/autostart-scripts",
    ".config/plasma-workspace",
    ".local/share/systemd",
    ".local/share/dbus-1",
    ".local/share/applications",
)
_PROGRAMS: Final = (
    "bin",
    ".local/bin",
    ".local/lib",
    ".cargo/bin",
    ".rustup",
    "go/bin",
    ".ssh",
    ".gnupg",
    ".gitconfig",
    ".config/git",
    ".config/pip",
    ".pip",
    ".npmrc",
    ".tmux.conf",
    ".config/tmux",
    ".screenrc",
    ".vimrc",
    ".vim",
    ".config/nvim",
    ".emacs",
    ".emacs.d",
    ".config/emacs",
    ".docker",
    ".kube",
)
_PACKAGES: Final = (
    ".npm-global",
    ".npm-packages",
    ".nvm",
    ".fnm",
    ".local/share/fnm",
    ".volta",
    ".bun",
    ".deno",
    ".yarn",
    ".config/yarn",
    ".local/share/pnpm",
    ".asdf",
    ".local/share/mise",
    ".pyenv",
    ".rbenv",
    ".local/pipx",
    ".local/share/pipx",
    ".local/share/uv",
    ".local/share/claude",
    ".opencode/bin",
)
"""Directories in which package and version managers install programs and their libraries."""
_OF_THE_SYSTEM: Final = ("/var/spool/cron", "/var/spool/at")
CONTROL_GROUPS: Final = "/sys/fs/cgroup"
"""The control group file system of the kernel. The groups of a user's services belong to that user:
a program that can write there can end or freeze the daemon."""
_SYSTEM_PREFIXES: Final = frozenset({"/", "/usr", "/usr/local"})
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


def startup_files(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Files and folders of the daemon's user from which programs are started automatically or
    configured: shells, sessions, schedulers, editors, remote logins, package managers."""
    user = environ.get("HOME", "")
    below = (*_SHELLS, *_SESSIONS, *_PROGRAMS, *_PACKAGES) if user.startswith("/") else ()
    return (*(f"{user}/{name}" for name in below), *_OF_THE_SYSTEM)


def installation() -> tuple[str, ...]:
    """Where the code of this daemon and of its Python lies, as far as we could write there."""
    paths = sysconfig.get_paths()
    found = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    found.add(str(Path(__file__).resolve().parents[1]))
    found.update({sys.prefix, sys.base_prefix} - _SYSTEM_PREFIXES)
    return tuple(sorted(path for path in found if is_ours(path)))


def expanded(path: str, environ: Mapping[str, str]) -> str:
    """``path`` with the home of the daemon's user in place of ``~/``."""
    user = environ.get("HOME", "")
    return f"{user}{path[1:]}" if path.startswith("~/") and user else path


def is_ours(path: str | os.PathLike[str]) -> bool:
    """Whether a program of this user could change the file; its owner always can. Blocks."""
    try:
        return os.stat(path).st_uid == os.geteuid() or os.access(path, os.W_OK)  # noqa: PTH116
    except OSError:
        return False
