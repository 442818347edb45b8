"""Programs that ask another one, outside the program fence, to work for them. Pure.

The fence holds the processes that a command starts, but no service that ran before: a session
manager, a terminal, an editor's server, a container daemon. These act with all rights of the user,
so commands that ask them are refused. Containers are allowed if they get no file or right of the
machine.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_NAMES = (
    # the session manager, its buses and timers
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
"""Programs that are refused only with one of these words."""
_EDITORS = frozenset(["code", "code-insiders", "codium", "cursor", "subl", "zed"])
_POWER_NAMES = "poweroff reboot halt kexec soft-reboot rescue emergency isolate suspend"
_POWER = frozenset(_POWER_NAMES.split())
_LOOKS_NAMES = "status show cat list-units list-unit-files list-timers is-active is-failed"
_LOOKS = frozenset(_LOOKS_NAMES.split())
_CONTAINERS = frozenset(["docker", "podman", "nerdctl", "docker-compose", "podman-compose"])
_RIGHTS = frozenset(["--privileged", "--cap-add", "--security-opt", "--device", "--volumes-from"])
_MACHINE = frozenset(["--pid", "--ipc", "--userns", "--cgroupns", "--uts"])
_SHORT = re.compile(r"-[a-zA-Z]*v(.*)")
_VOLUME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def problem(program: str, rest: Sequence[str]) -> str | None:
    """Why a command that asks for work outside the fence is refused, or None."""
    if program in _ASKS or (program in _EDITORS and any(w.startswith("--") for w in rest)):
        return _refusal(program)
    if not _VERBS.get(program, frozenset()).isdisjoint(word.partition("=")[0] for word in rest):
        return _refusal(program)
    if program == "systemctl":
        return _systemctl(rest)
    return _container(program, rest) if program in _CONTAINERS else None


def _refusal(program: str) -> str:
    return (
        f"{program} is refused: it asks a program outside the fence to work for it, which no fence "
        "holds"
    )


def _systemctl(rest: Sequence[str]) -> str | None:
    if not _POWER.isdisjoint(rest):
        return "systemctl is refused here: it is about the machine's power"
    verbs = [word for word in rest if not word.startswith("-")]
    return None if not verbs or verbs[0] in _LOOKS else _refusal("systemctl")


def _container(program: str, rest: Sequence[str]) -> str | None:
    """Why a container command is refused, or None. A container gets nothing of the machine.

    A folder of the workspace is no exception: a link in it may lead anywhere, and the container's
    daemon would follow it.
    """
    words = list(rest)
    if program.endswith("compose") or not {"compose", "stack", "bake", "kube"}.isdisjoint(words):
        return (
            f"{program} with a file is refused: what containers get of the machine stands there; "
            "run one by itself"
        )
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
    """Whether a mount is a volume of the container's own, and no path of the machine."""
    if "$" in given or "`" in given:
        return False
    if "type=" in given or ("," in given and "=" in given):
        fields = dict(each.partition("=")[::2] for each in given.split(","))
        source = fields.get("source") or fields.get("src") or ""
        is_volume = fields.get("type") in ("volume", "tmpfs") and "/" not in source
        return is_volume and "volume-opt" not in given
    return ":" not in given or _VOLUME.fullmatch(given.partition(":")[0]) is not None
