"""Programs that ask another one, outside the fence, to work for them. Pure.

The fence holds what a command starts, not a service that was there before it: a session's manager, a
terminal, an editor's server, a container's daemon. They do what they are asked with all of the user's
rights, so asking them is refused. Containers are let in, without anything of the machine.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentsup.agents.tools.shell_reader import UNKNOWN, WILD

_NAMES = (
    # the session's manager, its buses and timers
    "systemd-run machinectl busctl dbus-send gdbus qdbus qdbus6 dbus-launch systemd-inhibit loginctl"
    " homectl portablectl at batch atq atrm crontab anacron launchctl"
    # the host around a container
    " flatpak-spawn toolbox distrobox distrobox-enter distrobox-host-exec host-spawn snap flatpak"
    " lxc lxc-attach incus"
    # terminals, their multiplexers, editors and browsers that are open already
    " tmux screen zellij byobu dtach abduco tmate emacsclient gnome-terminal konsole xfce4-terminal"
    # the user's own screen, keyboard and desktop
    " xdotool ydotool wtype wmctrl xdg-open gio gtk-launch kioclient kstart dex swaymsg i3-msg hyprctl"
    " xte"
)
_ASKS = frozenset(_NAMES.split())
_VERBS: dict[str, frozenset[str]] = {
    "kitty": frozenset(["@"]),
    "kitten": frozenset(["@"]),
    "wezterm": frozenset(["cli"]),
    "alacritty": frozenset(["msg"]),
    "nvim": frozenset(["--server", "--remote", "--remote-send", "--remote-expr"]),
    "vim": frozenset(["--servername", "--remote", "--remote-send", "--remote-expr"]),
    "gvim": frozenset(["--servername", "--remote", "--remote-send", "--remote-expr"]),
}
"""Programs that are their own, but for these words."""
_EDITORS = frozenset(["code", "code-insiders", "codium", "cursor", "subl", "zed"])
_POWER = frozenset(
    [
        "poweroff",
        "reboot",
        "halt",
        "kexec",
        "soft-reboot",
        "rescue",
        "emergency",
        "isolate",
        "suspend",
    ]
)
_LOOKS = frozenset(
    [
        "status",
        "show",
        "cat",
        "list-units",
        "list-unit-files",
        "list-timers",
        "is-active",
        "is-failed",
    ]
)
_CONTAINERS = frozenset(["docker", "podman", "nerdctl", "docker-compose", "podman-compose"])
_RIGHTS = frozenset(["--privileged", "--cap-add", "--security-opt", "--device", "--volumes-from"])
_MACHINE = frozenset(["--pid", "--ipc", "--userns", "--cgroupns", "--uts"])
_SHORT = re.compile(r"-[a-zA-Z]*v(.*)")
_VOLUME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def problem(program: str, rest: Sequence[str]) -> str | None:
    """Why a command that asks for work outside the fence is refused, or None."""
    if program in _ASKS or (program in _EDITORS and any(w.startswith("--") for w in rest)):
        return _told(program)
    if not _VERBS.get(program, frozenset()).isdisjoint(word.partition("=")[0] for word in rest):
        return _told(program)
    if program == "systemctl":
        return _systemctl(rest)
    return _container(program, rest) if program in _CONTAINERS else None


def _told(program: str) -> str:
    return (
        f"{program} is refused: it asks a program outside the fence to work for it, which no fence "
        "holds"
    )


def _systemctl(rest: Sequence[str]) -> str | None:
    if not _POWER.isdisjoint(rest):
        return "systemctl is refused here: it is about the machine's power"
    verbs = [word for word in rest if not word.startswith("-")]
    return None if not verbs or verbs[0] in _LOOKS else _told("systemctl")


def _container(program: str, rest: Sequence[str]) -> str | None:
    """A container gets nothing of the machine: a link in the workspace may lead anywhere, and the
    container's daemon would follow it."""
    words = list(rest)
    if program.endswith("compose") or not {"compose", "stack", "bake", "kube"}.isdisjoint(words):
        return (
            f"{program} with a file is refused: what containers get of the machine stands there; "
            "run one by itself"
        )
    if any(word.startswith((UNKNOWN, WILD)) for word in words):
        return f"what {program} would be told can't be known before it runs"
    while words:
        word = words.pop(0)
        name, has_value, value = word.partition("=")
        short = _SHORT.fullmatch(word)
        if short is not None:
            name, has_value, value = "-v", short[1], short[1].lstrip("=")
        if name in _RIGHTS:
            return f"a container with {name} is as good as another user's rights"
        given = value if has_value else (words[0] if words else "")
        if name in ("-v", "--volume", "--mount") and not _is_own(given):
            return (
                "a container that gets a place of the machine is refused, since it would be outside "
                "the fence; give it a volume of its own (-v name:/path) and use docker cp"
            )
        if name in ("-o", "--opt", "--driver-opt") and "volume" in rest[:2]:
            return "a volume with options may be a place of the machine, and is refused"
        if name in _MACHINE and (given == "host" or given.startswith("container:")):
            return f"a container in the machine's own {name[2:]} is refused"
    return None


def _is_own(given: str) -> bool:
    """Whether what a container is given is a volume of its own, not a place of the machine."""
    if UNKNOWN in given or WILD in given:
        return False
    if "type=" in given or ("," in given and "=" in given):
        kind = dict(each.partition("=")[::2] for each in given.split(",")).get("type")
        return (
            kind in ("volume", "tmpfs") and "volume-opt" not in given and "/" not in _source(given)
        )
    return ":" not in given or _VOLUME.fullmatch(given.partition(":")[0]) is not None


def _source(given: str) -> str:
    fields = dict(each.partition("=")[::2] for each in given.split(","))
    return fields.get("source") or fields.get("src") or ""
