"""Checks of the program fence: its protection on this machine, and its gaps."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from agentsup.cli.doctor.check import FAIL, OK, WARN, Check, Examined
from agentsup.config import fence_paths, servers_of
from agentsup.kit import fence

_LISTENS: Final = 0x10000
_NAMED: Final = 6
_TAKES_ORDERS: Final = (
    ("tmux", "/tmux-"),
    ("screen", "/screen/"),
    ("systemd", "/systemd/"),
    ("D-Bus", "/bus"),
    ("D-Bus", "/dbus/"),
    ("Docker", "/docker"),
    ("Podman", "/podman/"),
    ("containerd", "/containerd/"),
    ("snapd", "/snapd"),
    ("emacs", "/emacs"),
    ("kitty", "/kitty"),
    ("VS Code", "/vscode-"),
    ("WezTerm", "/wezterm/"),
    ("X", "/.X11-unix/"),
    ("ssh-agent", "/ssh-"),
    ("gpg-agent", "/gnupg/"),
)


def check_fence(mode: str) -> Iterator[Check]:
    """Whether the kernel keeps programs of agents from the home. ``mode``: as ``[fence]`` says."""
    known = fence.version()
    if mode == "off":
        text = "fence.mode is off: what agents run can read the home, its tokens and all chats"
        yield Check("fence", WARN, text, 'take `mode = "off"` out of [fence]')
        return
    if known < fence.OLDEST:
        text = (
            "this system can't fence programs in (Landlock of Linux 5.19 or newer): what agents "
            "run can read the home, its tokens and all chats"
        )
        advice = "give `exec` and coding agents only to agents you trust with all of it"
        yield Check("fence", FAIL if mode == "required" else WARN, text, advice)
        return
    if known < fence.WHOLE:
        text = "what agents run can't read the home, but could cut its files to nothing"
        yield Check("fence", WARN, text, "Linux 6.2 or newer closes that too")
    else:
        text = f"what agents run can't open what is in the home (Landlock {known})"
        yield Check(
            "fence", OK, f"{text}; modes and names stay open to it, see `agentsup docs fence`", ""
        )
    if known < fence.SCOPED:
        text = "what agents run can send signals and reach abstract sockets of other programs"
        yield Check("fence", WARN, text, "Linux 6.12 or newer closes that")
    if os.geteuid() == 0:
        text = (
            "the daemon runs as root: what agents run can change what this machine starts by itself"
        )
        yield Check("fence", WARN, text, "run it as a user of its own")
    if known < fence.SOCKETS:
        yield from _sockets()


def check_folders(it: Examined) -> Iterator[Check]:
    """Folders of this user that the files name for programs of agents, and that those can only read."""
    if it.settings is None or it.settings.fence.mode == "off" or fence.version() < fence.OLDEST:
        return
    written = [str(it.home.root), "/dev", "/proc", *it.settings.fence.writable_paths(it.environ)]
    opened = [Path(os.path.realpath(each)) for each in written]
    found: dict[str, list[str]] = {}
    for spec in it.specs.values():
        servers = servers_of(spec.mcp).values()
        named = [(f"tool server {each.name}", (each.cwd, *each.args)) for each in servers]
        named.append(("command", spec.engine_options.get("command") or ()))
        for what, words in named:
            for word in filter(None, map(str, words)):
                path = Path(os.path.realpath(fence_paths.expanded(word, it.environ)))
                is_own = word.startswith(("/", "~/")) and path.is_dir() and os.access(path, os.W_OK)
                if is_own and not any(path.is_relative_to(each) for each in opened):
                    found.setdefault(str(path), []).append(f"{what} of {spec.name}")
    for folder, users in found.items():
        text = f"{folder} can be read, not written, by what names it: {', '.join(users)}"
        entry = f'`writable = ["{folder}"]` in [fence] of config.toml, beside what it lists already'
        yield Check("fence", WARN, text, f"if it is to write there: {entry}")


def _sockets() -> Iterator[Check]:
    found = open_sockets()
    if not found:
        return
    shown = ", ".join(f"{path} ({name})" for name, path in found[:_NAMED])
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    text = (
        f"what agents run can connect to {shown}{more}: who takes orders there carries them out "
        "without a fence, and so opens the home"
    )
    advice = (
        "Linux 7.1 or newer closes sockets; until then end those services, or run the daemon as a "
        "user or in a container that can't reach them"
    )
    yield Check("fence", WARN, text, advice)


def open_sockets(table: Path = Path("/proc/net/unix")) -> list[tuple[str, str]]:
    """Sockets with a path at which a known service listens and lets this user in, as (name of the
    service, path). A service is recognised by the path alone."""
    try:
        lines = table.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    paths = sorted(set(_listening(lines)))
    return [(name, path) for path in paths if (name := _service(path)) and os.access(path, os.W_OK)]


def _listening(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        fields = line.split(None, 7)
        if len(fields) == 8 and fields[7].startswith("/"):
            try:
                if int(fields[3], 16) & _LISTENS:
                    yield fields[7]
            except ValueError:
                continue


def _service(path: str) -> str:
    return next((name for name, part in _TAKES_ORDERS if part in path), "")
