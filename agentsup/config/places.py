"""Places outside the home that count for the fence: where keys lie, where code is that runs later
without a fence, and where services of the machine listen.

The lists name what is well known. They can't be complete: a program reads its start-up files where
its maker wanted it to.
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
"""Where package and version managers put programs and what these load."""
_OF_THE_SYSTEM: Final = ("/var/spool/cron", "/var/spool/at")
_CONTROL_GROUPS: Final = "/sys/fs/cgroup"
_SYSTEM_PREFIXES: Final = frozenset({"/", "/usr", "/usr/local"})
_NAME_SERVICES: Final = (
    "/run/nscd",
    "/run/systemd/resolve",
    "/run/systemd/userdb",
    "/var/lib/sss/pipes",
)


def key_places(environ: Mapping[str, str], uid: int) -> tuple[str, ...]:
    """What is closed beside the home: the folder where the unit and the README put keys, and the
    user's run-time folder with its sockets and keyrings."""
    user = environ.get("HOME", "")
    config = environ.get("XDG_CONFIG_HOME") or (f"{user}/.config" if user else "")
    runtime = {f"/run/user/{uid}", environ.get("XDG_RUNTIME_DIR") or f"/run/user/{uid}"}
    keys = {f"{config}/agentsup"} | ({f"{user}/.config/agentsup"} if user else set())
    return tuple(sorted(path for path in keys | runtime if path.startswith("/")))


def startup_places(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Files and folders of the daemon's user from which programs start by themselves or take their
    orders: shells, sessions, schedulers, editors, remote logins, package managers."""
    user = environ.get("HOME", "")
    below = (*_SHELLS, *_SESSIONS, *_PROGRAMS, *_PACKAGES) if user.startswith("/") else ()
    return (*(f"{user}/{name}" for name in below), *_OF_THE_SYSTEM)


def control_groups() -> tuple[str, ...]:
    """Where the kernel takes orders about groups of processes. Those of a user's services are that
    user's: who writes there can end or freeze the daemon."""
    return (_CONTROL_GROUPS,)


def installation() -> tuple[str, ...]:
    """Where the code of this daemon and of its Python lies, so far as we could write there."""
    paths = sysconfig.get_paths()
    found = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    found.add(str(Path(__file__).resolve().parents[1]))
    found.update({sys.prefix, sys.base_prefix} - _SYSTEM_PREFIXES)
    return tuple(sorted(path for path in found if is_ours(path)))


def name_services() -> tuple[str, ...]:
    """Sockets that programs ask for names of hosts and users, and that start nothing."""
    return _NAME_SERVICES


def is_ours(path: str | os.PathLike[str]) -> bool:
    """Whether a program of this user could change what is there; who owns a file may change its
    mode. Blocks."""
    try:
        return os.stat(path).st_uid == os.geteuid() or os.access(path, os.W_OK)  # noqa: PTH116
    except OSError:
        return False
