"""Which commands are out of the question, decided on their words and never on their spelling. Pure.

The fence of the kernel is the protection (``kit.fence``). These rules close what it can't: programs
that ask another one, which no fence holds, to work for them; and acts on the machine or on the user's
own session. Beside them they stop accidents that are said in plain words.

The rules see a program's argument list as the kernel will, so quoting changes nothing. Programs
that only start another one (``env``, ``timeout``, ``nice`` …) are looked through, and so is the
script of a shell; what can't be known before it runs is refused.

They are no sandbox: a program that is let in can start others in ways that nobody reads out of its
words, which is why running one is dangerous and asked about.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections.abc import Sequence

from agentsup.agents.tools import shell_outside
from agentsup.agents.tools.shell_reader import UNKNOWN, WILD, Unreadable, commands_of
from agentsup.agents.tools.shell_starters import Found, Refused, Started, started_by
from agentsup.kit.normal_form import normal_form

_DENIED = {
    "another user's rights": "sudo su doas pkexec runuser setpriv newgrp sg gosu chroot sudoedit"
    " sudo-rs run0 su-exec chpst setuidgid s6-setuidgid s6-applyuidgid please capsh",
    "other namespaces": "nsenter unshare",
    "the machine's power": "shutdown reboot halt poweroff kexec init telinit",
    "disks and mounts": "mount umount losetup mkswap swapon swapoff fdisk parted sgdisk wipefs"
    " cryptsetup dd mkfs",
    "the kernel": "insmod rmmod modprobe sysctl",
    "other processes": "killall pkill kill gdb strace ptrace skill snice xkill",
    "accounts": "passwd chpasswd useradd usermod userdel visudo",
    "the firewall": "iptables ip6tables nft ufw",
}
_WHY = {program: what for what, names in _DENIED.items() for program in names.split()}
_SHELL = re.compile(
    r"(?:static-)?(?:(?:ba|da|z|k|mk|a|rba|po|ya|lk|pdk)?sh|fish)(?:[-.]?[\d.]+|\.distrib|-static)?"
)
_STRANGE_SHELLS = frozenset(
    ["csh", "tcsh", "pwsh", "powershell", "nu", "elvish", "xonsh", "oil", "osh", "ion", "rc", "es"]
)
_SHELL_TAKING = ("-O", "+O", "-o", "+o", "--rcfile", "--init-file")
_SHELL_SCRIPTS = ("--command", "--init-command", "-C")
_INPUTS = re.compile(r"-|/dev/(?:stdin|fd/.*)|/proc/[^/]+/fd/.*")
_RECURSIVE = frozenset(["rm", "chmod", "chown", "chgrp", "shred"])
_DESTROYING = _RECURSIVE | {"mv", "unlink", "rmdir", "truncate", "rsync"}
_BUILTINS = frozenset(
    ["eval", "source", ".", "trap", "alias", "coproc", "enable", "hash", "bind", "complete", "fc"]
)
_KEYWORDS = frozenset(
    [
        "if",
        "then",
        "elif",
        "else",
        "fi",
        "while",
        "until",
        "do",
        "done",
        "for",
        "in",
        "case",
        "esac",
        "select",
        "{",
        "}",
        "!",
        "-",
        "begin",
        "end",
        "and",
        "or",
        "not",
        "noglob",
        "nocorrect",
    ]
)
_DECLARING = frozenset(["export", "declare", "typeset", "readonly", "local"])
_MAX_DEPTH = 8
_NAME_CHARS = 4_096
"""No path is longer, so no program is named by more."""
_ASSIGNMENT = re.compile(rf"([A-Za-z_]\w*)(?:{UNKNOWN}[^=]*)?\+?=(.*)", re.DOTALL | re.ASCII)
_SYSTEM = re.compile(r"/(?:bin|boot|dev|etc|lib\w*|opt|proc|root|run|sbin|srv|sys|usr)(?:/.*)?")
_PRIVATE = re.compile(r"(?:.*/)?(?:api\.token|state\.db(?:-wal|-shm|-journal)?)")
_OTHERS = re.compile(
    r"/proc/(?!self/|thread-self/)[^/]+/(?:task/[^/]+/)?(?:environ|mem|maps|fd|cwd|root)(?:/.*)?"
)
_DEVICE = re.compile(
    r"/dev(?:/(?!null$|zero$|full$|stdout$|stderr$|stdin$|tty$|u?random$|fd/|shm/).*)?"
)


def problem(argv: Sequence[str], depth: int = 0, *, from_input: bool = False) -> str | None:
    """Why a command of these words is refused, or None. ``from_input``: more words follow that
    nobody knows yet."""
    words = list(argv)
    if not words or not words[0]:
        return "there is no command"
    if depth > _MAX_DEPTH:
        return "commands within commands are nested too deep to be judged"
    if any("\0" in word for word in words):
        return "a word of a command can't hold a NUL character"
    if words[0].startswith(("-", "+")) or UNKNOWN in words[0] or WILD in words[0]:
        return f"what {_shown(words[0])} would run can't be known before it runs"
    program = _name(words[0])
    if (why := shell_outside.problem(program, words[1:])) is not None:
        return why
    if program in _WHY:
        return f"{program} is refused: it is about {_WHY[program]}"
    if _SHELL.fullmatch(program):
        return _shell_problem(words, depth, from_input=from_input)
    if program in _STRANGE_SHELLS and any(word.startswith("-") for word in words[1:]):
        return f"what {program} would run can't be judged"
    try:
        inner = started_by(program, words[1:])
        starts = inner is not None
        found = inner or []
    except Refused as refused:
        return str(refused)
    for each in found:
        if (why := _found_problem(each, depth, from_input=from_input)) is not None:
            return why
    if starts and not found and from_input:
        return f"what {program} would run can't be known before it runs"
    if program == "find":
        return _find_problem(words, found)
    return None if starts else _own_problem(program, words[1:], from_input=from_input)


def script_problem(script: str, depth: int = 0) -> str | None:
    """Why a shell script is refused, or None: each command in it is judged."""
    if depth > _MAX_DEPTH:
        return "commands within commands are nested too deep to be judged"
    try:
        commands = commands_of(script)
    except Unreadable as error:
        return f"the script can't be judged: {error}"
    is_away = False
    for command in commands:
        if (found := _command_problem(command, depth, is_away=is_away)) is not None:
            return found
        is_away |= command[0] in ("cd", "pushd", "chdir", "z") and _leads_away(command[1:])
    return None


def _name(word: str) -> str:
    """A program's name as a person reads it, so that none only looks like another."""
    folded = normal_form(word.rstrip("/").rsplit("/", 1)[-1][:_NAME_CHARS], "NFKC")
    name = "".join(c for c in folded if unicodedata.category(c)[0] not in "CZ").casefold()
    return "mkfs" if name.startswith("mkfs.") else name


def _shown(word: str) -> str:
    return repr(word.replace(UNKNOWN + "{", "{").replace(UNKNOWN, "$").replace(WILD, "*"))


# -- programs that start others --------------------------------------------------------------------


def _found_problem(found: Found, depth: int, *, from_input: bool) -> str | None:
    if isinstance(found, Started):
        return problem(found.words, depth + 1, from_input=from_input or found.from_input)
    return script_problem(found.text, depth + 1)


def _find_problem(words: list[str], found: list[Found]) -> str | None:
    starts: list[str] = []
    for word in words[1:]:
        if word.startswith(("-", "(", "!")) and word not in ("-H", "-L", "-P"):
            break
        starts.append(word)
    is_destroying = "-delete" in words or any(
        isinstance(each, Started) and _name(each.words[0]) in _DESTROYING for each in found
    )
    if is_destroying and any(_is_system(each) for each in starts):
        return "find that deletes outside the workspace is refused"
    return _touching_problem("find", words[1:])


def _shell_problem(words: list[str], depth: int, *, from_input: bool) -> str | None:
    """A shell: its script, wherever among its options the letter stands."""
    rest = words[1:]
    while rest:
        word = rest.pop(0)
        name, has_value, value = word.partition("=")
        if UNKNOWN in word or WILD in word:
            break
        if name in _SHELL_SCRIPTS and (word != "-C" or _name(words[0]) == "fish"):
            script = value if has_value else "".join(rest[:1])
            return script_problem(script, depth + 1)
        if word in _SHELL_TAKING:
            rest = rest[1:]
        elif word.startswith("--") and word != "--":
            continue
        elif word.startswith(("-", "+")) and len(word) > 1 and word != "--":
            if "c" in word[1:]:
                scripts = [each for each in rest if not each.startswith("-")]
                return script_problem(scripts[0], depth + 1) if scripts else _UNTOLD
            if set(word[1:]) & set("si"):
                return _UNTOLD
        else:
            file = rest[0] if word == "--" and rest else word
            if file == "--" or _INPUTS.fullmatch(file) or WILD in file or UNKNOWN in file:
                return _UNTOLD
            return None  # a script file: it is judged as the program it is, by a person
    return _UNTOLD


_UNTOLD = "a shell that is told only later what to run can't be judged"


# -- programs that destroy -------------------------------------------------------------------------


def _own_problem(program: str, rest: list[str], *, from_input: bool = False) -> str | None:
    options = [word for word in rest if word.startswith("-") and word != "--"]
    others = [word for word in rest if word not in options]
    is_recursive = program in ("shred", "mv") or any(
        (len(word) > 3 and "--recursive".startswith(word))
        or (len(word) > 4 and "--no-preserve-root".startswith(word))
        or (not word.startswith("--") and re.search("[rR]", word))
        for word in options
    )
    if program == "rsync":
        is_recursive = any(word.startswith("--del") for word in options)
    if program in _DESTROYING:
        if from_input and is_recursive and program in _RECURSIVE:
            return f"what {program} would be about can't be known before it runs"
        # Without quotation marks, more words and options may come out of one.
        opens = [word for word in others if word.startswith(UNKNOWN)]
        judged = [w for w in others if is_recursive or w not in opens or w[1:2] == "{"]
        found = next((word for word in judged if _is_system(word)), None)
        if found is not None and (is_recursive or opens):
            return (
                f"{program} of {_shown(found)} as a whole is refused: it is not for certain in the "
                "workspace"
            )
    if program == "fuser" and any(re.match("-[a-zA-Z]*k|--k", word) for word in options):
        return f"{program} is refused: it is about {_WHY['kill']}"
    return _touching_problem(program, rest)


def _is_system(word: str) -> bool:
    """The root, what belongs to the system, a home, what is above the workspace, or unknown."""
    if word.startswith((UNKNOWN, "~")):
        return True
    known = re.split(f"[{UNKNOWN}{WILD}]", word, maxsplit=1)[0]
    if ".." in word.split("/") and known != word:
        return True
    clean = posixpath.normpath(re.sub("/{2,}", "/", word)) if word else ""
    if not clean.startswith("/"):
        return clean == ".." or clean.startswith("../")
    parts = clean.strip("/").split("/")
    if known != word:
        parts = known.strip("/").split("/") if known.endswith("/") else known.split("/")[1:-1]
    is_temporary = clean.startswith(("/tmp/", "/var/tmp/"))  # noqa: S108 - a word, not a file
    return bool(_SYSTEM.fullmatch(clean)) or (len(parts) < 3 and not is_temporary)


def _leads_away(words: list[str]) -> bool:
    """Whether a change of directory may leave the workspace."""
    targets = [word for word in words if not word.startswith("-") or word == "-"]
    return not targets or targets[0] == "-" or UNKNOWN in targets[0] or _is_system(targets[0])


def _touching_problem(program: str, rest: list[str]) -> str | None:
    for word in rest:
        bare = word.rpartition("=")[2]
        if bare[:1] == "-" and "/" in bare:
            bare = bare[bare.index("/") :]
        target = posixpath.normpath(re.sub("/{2,}", "/", bare)) if "/" in bare else bare
        if _DEVICE.fullmatch(target):
            return f"{program} on the device {target} is refused"
        if _PRIVATE.fullmatch(target) or _OTHERS.fullmatch(target):
            return f"{target} holds secrets that are not an agent's to read"
    return None


# -- scripts ---------------------------------------------------------------------------------------


def _command_problem(words: list[str], depth: int, *, is_away: bool) -> str | None:
    """One simple command of a script."""
    command = list(words)
    while command:
        word = command[0]
        if word == "time":
            command = command[1:]
            while command and command[0].startswith("-"):
                command = command[1:]
        elif word in ("function", "for", "select", "case"):
            # A name, and what it goes through or the pattern it is compared with.
            command = [] if command[2:3] == ["in"] else command[2:]
        elif word in _KEYWORDS or _ASSIGNMENT.fullmatch(word) is not None:
            command = command[1:]
        else:
            break
    if not command:
        return None
    first = command[0]
    if first.startswith(("=", "~")) or UNKNOWN in first or WILD in first:
        return f"what {_shown(first)} would run can't be known before it runs"
    if first in _BUILTINS or (first in ("mapfile", "readarray") and "-C" in command):
        return f"{first} in a script can't be judged"
    if first in _DECLARING:
        return _command_problem([w for w in command[1:] if w[:1] not in "-+"], depth, is_away=False)
    if first in ("command", "exec", "builtin"):
        try:
            inner = started_by(first, command[1:]) or []
        except Refused:
            return None if command[1:2] in (["-v"], ["-V"]) else f"{first} can't be judged"
        started = [each.words for each in inner if isinstance(each, Started)]
        return next(
            (
                why
                for each in started
                if (why := _command_problem(list(each), depth + 1, is_away=is_away))
            ),
            None,
        )
    if is_away and _name(first) in _RECURSIVE and any(re.match("-.*[rR]", w) for w in command[1:]):
        return f"{first} after leaving the workspace can't be judged"
    return problem(command, depth)
