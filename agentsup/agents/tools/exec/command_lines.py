"""Commands word by word: programs refused by name, and command lines for grants by pattern. Pure.

A call that runs a program needs an approval of a person who sees all of it, and the program fence
of the kernel (``kit.fence``) holds what it starts. So only a command's first word can refuse it. The
lines of a call are empty if it may run more than its words say: a script, a command line that a
shell would change before it runs it, a wrapper that starts another program. Such a call is asked
about each time.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

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
Lines = tuple[tuple[str, ...], ...]

_SHELLS = frozenset(["sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "rbash", "fish"])
_STARTERS = _SHELLS | frozenset(
    [
        "env",
        "nice",
        "ionice",
        "timeout",
        "nohup",
        "setsid",
        "stdbuf",
        "time",
        "xargs",
        "busybox",
        "command",
        "exec",
        "builtin",
        "find",
    ]
)
"""Programs, and words of shells, that only start another program."""
_KEYS = frozenset(["argv", "command", "cmd"])
_OTHER_KEYS = frozenset(["timeout", "description", "justification", "title", "run_in_background"])
_OF_SHELLS_TEXT = """
. : [ [[ alias bind break case cd continue coproc declare do done elif else esac eval export fi for
function if in let local mapfile popd pushd read readarray readonly return select set shift shopt
source test then trap typeset ulimit umask unalias unset until wait while { } !
"""
_OF_SHELLS = frozenset(_OF_SHELLS_TEXT.split())
_CHANGED = re.compile(r"[$`\\*?\[\]{}~]")
"""Characters that a shell may replace. They are refused in quotes too, because a program that the
shell starts may read them."""
_OPERATORS = frozenset("();<>|&\n")
_MAX_LINE_CHARS = 20_000
"""A longer line is not split: ``shlex`` takes a minute for a million characters."""


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


def split_at_operators(line: str) -> list[str]:
    """The words of a line as a shell splits it, and its operators as words of their own.

    Nothing is expanded. Raises ``ValueError`` for a quotation that is not closed and for a line of
    more than 20,000 characters.
    """
    if len(line) > _MAX_LINE_CHARS:
        raise ValueError(f"it has more than {_MAX_LINE_CHARS:,} characters")
    lexer = shlex.shlex(line, posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace = " \t"
    lexer.whitespace_split = True
    lexer.commenters = ""
    return list(lexer)


def is_operator(token: str) -> bool:
    """Whether a word of ``split_at_operators`` is an operator, or looks like one in quotes."""
    return bool(token) and set(token) <= _OPERATORS


def of_words(words: Sequence[str]) -> Lines:
    """The command line of a program with its arguments; empty if it only starts another one."""
    if not words or any("\0" in word for word in words):
        return ()
    if "=" in words[0] or program_name(words[0]) in _STARTERS:
        return ()
    return (tuple(words),)


def of_script(script: str) -> Lines:
    """The command line of a script that is one plain command of words; else empty."""
    if not script.isprintable() or _CHANGED.search(script) is not None:
        return ()
    try:
        words = split_at_operators(script)
    except ValueError:
        return ()
    if not words or words[0] in _OF_SHELLS or any(is_operator(word) for word in words):
        return ()
    return of_words(words)


def of_own_call(args: Mapping[str, Any]) -> Lines:
    """The command lines of a coding CLI's call of its shell.

    Empty if an argument is not known here, such as another directory.
    """
    given = [key for key in args if key in _KEYS]
    if len(given) != 1 or not set(args) <= _KEYS | _OTHER_KEYS:
        return ()
    command = script_of(args[given[0]])
    if isinstance(command, str):
        return of_script(command)
    if not isinstance(command, list) or not all(isinstance(word, str) for word in command):
        return ()
    return of_words(command)


def script_of(command: Any) -> Any:
    """The script of a command that a CLI gives as the words ``bash -lc SCRIPT``; else the command."""
    is_script = isinstance(command, list) and len(command) == 3 and command[1] in ("-c", "-lc")
    return command[2] if is_script and command[0] in _SHELLS else command
