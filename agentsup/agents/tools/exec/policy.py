"""Refused commands, decided on their words. Pure.

Each call that runs a program needs an approval of a person who sees all of it, and the program fence
of the kernel (``kit.fence``) holds what it starts. These rules refuse what neither of them stops:
programs that ask another one, which no fence holds, to work for them, and acts on the machine or on
the user's own session. They also stop accidents.

The usual wrappers (``env``, ``timeout``, ``xargs`` …) are looked through. In a script the commands
that stand there in plain words are judged, no more: a script counts as dangerous as a whole.

The rules are no sandbox. A program, a script file or a script in other words can do what they refuse.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator, Sequence

from agentsup.agents.tools.exec import outside

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
SHELLS = frozenset(["sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "rbash", "fish"])
WRAPPERS = {
    "env": "uCSa",
    "nice": "n",
    "ionice": "cnpPu",
    "timeout": "ks",
    "nohup": "",
    "setsid": "",
    "stdbuf": "ioe",
    "time": "fo",
    "xargs": "aEIJLnPRsSd",
    "busybox": "",
    "command": "",
    "exec": "a",
    "builtin": "",
}
"""Programs, and words of shells, that only start another program, with their options whose value may
be the next word."""
_RECURSIVE = frozenset(["rm", "chmod", "chown", "chgrp", "shred"])
_ALWAYS_WHOLE = frozenset(["mv", "shred"])
_DESTROYING = _RECURSIVE | {"mv", "unlink", "rmdir", "truncate", "rsync"}
_KEYWORDS = frozenset(["if", "then", "elif", "else", "while", "until", "do", "{", "}", "!"])
_OPERATORS = frozenset("();<>|&\n")
_MAX_LINE_CHARS = 20_000
"""A longer line is not split: ``shlex`` takes a minute for a million characters."""
_MAX_DEPTH = 4
_MAX_STARTED = 32
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=.*", re.DOTALL | re.ASCII)
_AMOUNT = re.compile(r"(?:0x)?[\da-fA-F,.-]*\d[smhd]?")
_SPLITS = re.compile(r"-[a-zA-Z0-9]*S|--s")
_SCRIPT_OPTION = re.compile(r"-[a-zA-Z]*c[a-zA-Z]*")
_EXPANDED = re.compile(r"[*?\[{$`]")
_SYSTEM = re.compile(r"/(?:bin|boot|dev|etc|lib\w*|opt|proc|root|run|sbin|srv|sys|usr)(?:/.*)?")
_PRIVATE = re.compile(r"(?:.*/)?(?:api\.token|state\.db(?:-wal|-shm|-journal)?)")
_OTHERS = re.compile(
    r"/proc/(?!self/|thread-self/)[^/]+/(?:task/[^/]+/)?(?:environ|mem|maps|fd|cwd|root)(?:/.*)?"
)
_DEVICE = re.compile(
    r"/dev(?:/(?!null$|zero$|full$|stdout$|stderr$|stdin$|tty$|u?random$|fd/|shm/).*)?"
)


def problem(argv: Sequence[str], depth: int = 0) -> str | None:
    """Why a command of these words is refused, or None."""
    words = list(argv)
    if not words or not words[0]:
        return "there is no command"
    if any("\0" in word for word in words):
        return "a word of a command can't hold a NUL character"
    if words[0].startswith("-"):
        return f"what {words[0]!r} would run can't be known before it runs"
    commands = _started(words)
    if depth > _MAX_DEPTH or len(commands) > _MAX_STARTED:
        return "commands within commands are nested too deep to be judged"
    for command in commands:
        if (why := _command_problem(program_name(command[0]), command[1:])) is not None:
            return why
    scripts = {_script_of(command) for command in commands if program_name(command[0]) in SHELLS}
    for script in scripts - {None}:
        if script is not None and (why := script_problem(script, depth + 1)) is not None:
            return why
    return _touching_problem(program_name(words[0]), words[1:])


def script_problem(script: str, depth: int = 0) -> str | None:
    """Why a shell script is refused, or None: each command that is in it in plain words is judged.

    A script that can't be split without a shell's own rules is not refused for that; like each
    script it needs an approval.
    """
    if "<<" in script:
        return None
    try:
        tokens = split_at_operators(script)
    except ValueError:
        return None
    problems = (problem(command, depth) for command in _commands_of(tokens))
    return next((why for why in problems if why is not None), None)


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


def _commands_of(tokens: list[str]) -> Iterator[list[str]]:
    """The commands in a script. A redirection counts as a command that writes its target."""
    found: list[list[str]] = []
    command: list[str] = []
    outer: list[list[str]] = []
    is_target = False
    for token in tokens:
        if not is_operator(token):
            if is_target:
                found.append(["tee", token])
            elif command or not (token in _KEYWORDS or _ASSIGNMENT.fullmatch(token)):
                command.append(token)
            is_target = False
            continue
        for sign in token:
            is_target = sign in "<>" or (is_target and sign in "&|")
            if sign == "(" and command and command[-1].endswith("$"):
                outer.append(command)  # the words behind a substitution belong to its command
                command = []
            elif sign not in "<>":
                found.append(command)
                command = outer.pop() if sign == ")" and outer else []
                if sign == "(":
                    outer.append([])
    return (each for each in (*found, command, *outer) if each and each[0][:1] not in ("", "-"))


def is_operator(token: str) -> bool:
    """Whether a word of ``split_at_operators`` is an operator, or looks like one in quotes."""
    return bool(token) and set(token) <= _OPERATORS


def program_name(word: str) -> str:
    """The name of a program without its directory, in lower case."""
    name = word.rstrip("/").rsplit("/", 1)[-1].casefold()
    return "mkfs" if name.startswith("mkfs.") else name


# -- programs that start others --------------------------------------------------------------------


def _started(words: list[str]) -> list[list[str]]:
    """The command itself, and those that it starts as a wrapper or as ``find``.

    The list may be cut behind ``_MAX_STARTED``.
    """
    found: list[list[str]] = []
    spans, seen = [(0, len(words))], set[int]()
    while spans and len(found) <= _MAX_STARTED:
        start, end = spans.pop()
        if start in seen or start >= end:
            continue
        seen.add(start)
        found.append(words[start:end])
        program = program_name(words[start])
        if program in WRAPPERS:
            spans += [(at, end) for at in _wrapped_at(words, start + 1, end)]
        elif program == "find":
            spans += _executed_at(words, start + 1, end)
    return found


def _wrapped_at(words: list[str], start: int, end: int) -> Iterator[int]:
    """The possible starts of the command that a wrapper runs.

    The word behind a long option may be the value of the option or the program. It counts as a
    program, and so do the words after it.
    """
    taking = WRAPPERS[program_name(words[start - 1])]
    is_value = is_uncertain = False
    for at in range(start, end):
        word = words[at]
        if is_value:
            is_value = False
        elif word.startswith("-"):
            is_uncertain = word.startswith("--") and len(word) > 2 and "=" not in word
            first = next((n for n, option in enumerate(word) if option in taking), 0)
            is_value = not word.startswith("--") and 0 < first == len(word) - 1
        elif word and not (_ASSIGNMENT.fullmatch(word) or _AMOUNT.fullmatch(word)):
            yield at
            if not is_uncertain:
                return
            is_uncertain = False


def _executed_at(words: list[str], start: int, end: int) -> Iterator[tuple[int, int]]:
    """The spans of the commands that ``find`` runs."""
    until = start
    for at in range(start, end):
        if at >= until and words[at] in ("-exec", "-execdir", "-ok", "-okdir"):
            later = range(at + 1, end)
            until = next((n for n in later if words[n] in (";", "+")), end)
            yield at + 1, until


def _script_of(command: list[str]) -> str | None:
    """The script that a shell is given by ``-c``, or None."""
    for at, word in enumerate(command[1:], 2):
        if _SCRIPT_OPTION.fullmatch(word):
            return next((each for each in command[at:] if each[:1] not in ("-", "+")), None)
    return None


def _command_problem(program: str, rest: list[str]) -> str | None:
    if program == "env" and any(_SPLITS.match(word) for word in rest):
        return "env -S splits a text by rules of its own; name the program itself"
    if program == "find":
        return _find_problem(rest)
    if program in _WHY:
        return f"{program} is refused: it is about {_WHY[program]}"
    return outside.problem(program, rest) or _own_problem(program, rest)


def _find_problem(rest: list[str]) -> str | None:
    starts: list[str] = []
    for word in rest:
        if word.startswith(("-", "(", "!")) and word not in ("-H", "-L", "-P"):
            break
        starts.append(word)
    is_destroying = "-delete" in rest or any(
        program_name(rest[at]) in _DESTROYING
        for at, end in _executed_at(rest, 0, len(rest))
        if at < end
    )
    if is_destroying and any(_is_system(each) for each in starts):
        return "find that deletes outside the workspace is refused"
    return None


# -- programs that destroy -------------------------------------------------------------------------


def _own_problem(program: str, rest: list[str]) -> str | None:
    options = [word for word in rest if word.startswith("-") and word != "--"]
    others = [word for word in rest if not word.startswith("-")]
    if program == "rsync":
        is_whole = any(word.startswith("--del") for word in options)
    else:
        is_whole = program in _ALWAYS_WHOLE or any(
            re.match(r"--rec|--no-pres|-[a-zA-Z]*[rR]", word) for word in options
        )
    if program in _DESTROYING and is_whole:
        found = next((word for word in others if _is_system(word)), None)
        if found is not None:
            return (
                f"{program} of {found!r} as a whole is refused: it is not for certain in the "
                "workspace"
            )
    if program == "fuser" and any(re.match("-[a-zA-Z]*k|--k", word) for word in options):
        return f"{program} is refused: it is about {_WHY['kill']}"
    return None


def _is_system(word: str) -> bool:
    """Whether a path is the root, the system's, a home, above the workspace, or a variable."""
    if word.startswith(("~", "$", "`")):
        return True
    known = _EXPANDED.split(word, maxsplit=1)[0]
    if known != word and ".." in word.split("/"):
        return True
    clean = posixpath.normpath(re.sub("/{2,}", "/", word)) if word else ""
    if not clean.startswith("/"):
        return clean == ".." or clean.startswith("../")
    parts = clean.strip("/").split("/")
    if known != word:
        parts = known.strip("/").split("/") if known.endswith("/") else known.split("/")[1:-1]
    is_temporary = clean.startswith(("/tmp/", "/var/tmp/"))  # noqa: S108 - a word, not a file
    return bool(_SYSTEM.fullmatch(clean)) or (len(parts) < 3 and not is_temporary)


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
