"""Programs that are refused by name. Pure.

Each call that runs a program needs an approval of a person who sees all of it, and the program fence
of the kernel (``kit.fence``) holds what it starts. A command is not read beyond its first word: what
a wrapper, a shell or a script starts is for that person to judge.
"""

from __future__ import annotations

from collections.abc import Sequence

_REFUSED = {
    "another user's rights": "sudo su doas pkexec runuser setpriv newgrp gosu chroot sudoedit run0",
    "other namespaces": "nsenter unshare",
    "the machine's power": "shutdown reboot halt poweroff kexec init",
    "disks and mounts": "mount umount losetup swapon swapoff fdisk parted wipefs cryptsetup mkfs",
    "the kernel": "insmod rmmod modprobe sysctl",
    "other processes": "killall pkill kill xkill gdb strace",
    "accounts": "passwd chpasswd useradd usermod userdel visudo",
    "the firewall": "iptables nft ufw",
    "work of a program outside the fence": "systemctl systemd-run machinectl busctl dbus-send gdbus"
    " at batch crontab launchctl flatpak-spawn toolbox distrobox-host-exec host-spawn tmux screen"
    " emacsclient xdotool",
}
_WHY = {program: what for what, names in _REFUSED.items() for program in names.split()}


def problem(argv: Sequence[str]) -> str | None:
    """Why a command of these words is refused, or None: a person is asked."""
    if not argv or not argv[0]:
        return "there is no command"
    if any("\0" in word for word in argv):
        return "a word of a command can't hold a NUL character"
    program = program_name(argv[0])
    why = _WHY.get(program)
    return None if why is None else f"{program} is refused: it is about {why}"


def program_name(word: str) -> str:
    """The name of a program without its directory, in lower case."""
    name = word.rstrip("/").rsplit("/", 1)[-1].casefold()
    return "mkfs" if name.startswith("mkfs.") else name
