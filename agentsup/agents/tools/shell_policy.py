"""Which commands are out of the question, decided on their words and never on their spelling. Pure.

The rules see a program's argument list as the kernel will, so quoting changes nothing. Programs
that only start another one (``env``, ``timeout``, ``nice`` …) are looked through, and so is the
script of a shell; a script whose commands can't be known before it runs is refused.

These rules stop accidents and plain attacks. They are no sandbox: a program that is let in can do
whatever its user can, which is why running one is dangerous and asked about.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Sequence

_DENIED = {
    "another user's rights": "sudo su doas pkexec runuser setpriv newgrp sg gosu chroot",
    "other namespaces": "nsenter unshare systemd-run machinectl",
    "the machine's power": "shutdown reboot halt poweroff kexec init telinit",
    "disks and mounts": "mount umount losetup mkswap swapon swapoff fdisk parted sgdisk wipefs"
    " cryptsetup dd mkfs",
    "the kernel": "insmod rmmod modprobe sysctl",
    "other processes": "killall pkill kill gdb strace ptrace",
    "accounts and schedules": "passwd chpasswd useradd usermod userdel visudo crontab at batch",
    "the firewall": "iptables ip6tables nft ufw",
}
_WHY = {program: what for what, names in _DENIED.items() for program in names.split()}
_SHELLS = frozenset(["sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "rbash"])
_MULTI = frozenset(("busybox", "toybox"))
_RECURSIVE = frozenset(["rm", "chmod", "chown", "chgrp", "shred"])
_BUILTINS = frozenset(["eval", "source", ".", "exec", "trap", "alias", "command", "builtin"])

# Programs that start another: which of their options take a word of their own.
_STARTERS: dict[str, str] = {
    "env": "-u --unset -C --chdir -S --split-string",
    "nice": "-n --adjustment",
    "ionice": "-c -n -p --class --classdata",
    "timeout": "-k --kill-after -s --signal",
    "nohup": "",
    "setsid": "",
    "stdbuf": "-i -o -e --input --output --error",
    "xargs": "-I -n -P -L -d -E -s -a --max-args --max-procs --delimiter --arg-file --replace",
    "time": "-o -f --output --format",
    "watch": "-n --interval",
    "taskset": "",
    "chrt": "",
    "flock": "-w --timeout -E",
    "unbuffer": "",
    "caffeinate": "",
    "script": "",
}
_OPERANDS = {"timeout": 1, "taskset": 1, "chrt": 1, "flock": 1}
_MAX_DEPTH = 8
_OPERATOR = re.compile(r"[();<>|&\n]+")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=.*", re.DOTALL)
_WORDS = frozenset(
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
        "{",
        "}",
        "!",
        "time",
    ]
)
_SYSTEM = re.compile(
    r"/(?:bin|boot|dev|etc|lib\w*|opt|proc|root|run|sbin|srv|sys|usr|var|home)?/?\*?"
)


def problem(argv: Sequence[str], depth: int = 0) -> str | None:
    """Why a command of these words is refused, or None."""
    words = list(argv)
    if not words or not words[0]:
        return "there is no command"
    if depth > _MAX_DEPTH:
        return "commands within commands are nested too deep to be judged"
    if any("\0" in word for word in words):
        return "a word of a command can't hold a NUL character"
    program = words[0].rsplit("/", 1)[-1].casefold()
    if program in _MULTI:
        return problem(words[1:], depth + 1) if len(words) > 1 else None
    if program.startswith("mkfs."):
        program = "mkfs"
    if program in _WHY:
        return f"{program} is refused: it is about {_WHY[program]}"
    if program in _SHELLS:
        return _shell_problem(words, depth)
    if program in _STARTERS:
        return _started_problem(program, words[1:], depth)
    if program == "find":
        return _find_problem(words, depth)
    if program in _RECURSIVE:
        return _recursive_problem(program, words[1:])
    return _device_problem(program, words[1:])


def script_problem(script: str, depth: int = 0) -> str | None:
    """Why a shell script is refused, or None: each command in it is judged."""
    if depth > _MAX_DEPTH:
        return "commands within commands are nested too deep to be judged"
    if "\0" in script:
        return "a script can't hold a NUL character"
    for inner in _substitutions(script):
        if (found := script_problem(inner, depth + 1)) is not None:
            return found
    try:
        commands = _commands(script)
    except ValueError as error:
        return f"the script can't be read: {error}"
    for command, raw in commands:
        found = _command_problem(command, raw, depth)
        if found is not None:
            return found
    return None


# -- programs that start others --------------------------------------------------------------------


def _started_problem(program: str, rest: list[str], depth: int) -> str | None:
    takes = set(_STARTERS[program].split())
    operands = _OPERANDS.get(program, 0)
    position = 0
    while position < len(rest):
        word = rest[position]
        position += 1
        if word == "--":
            break
        if program == "env" and word.partition("=")[0] in ("-S", "--split-string"):
            text = word.partition("=")[2] or " ".join(rest[position : position + 1])
            return script_problem(text, depth + 1)
        if program == "env" and word.startswith("-S"):
            return script_problem(word[2:], depth + 1)
        if word.startswith("-") and len(word) > 1:
            position += word in takes
        elif program == "env" and _ASSIGNMENT.fullmatch(word):
            if word.startswith(("LD_", "BASH_ENV=", "ENV=", "PYTHONSTARTUP=", "PROMPT_COMMAND=")):
                return f"{word.partition('=')[0]} makes programs run other code"
        elif operands:
            operands -= 1
        else:
            position -= 1
            break
    inner = rest[position:]
    if program == "flock" and inner[:1] == ["-c"]:
        return script_problem(" ".join(inner[1:]), depth + 1)
    return problem(inner, depth + 1) if inner else None


def _find_problem(words: list[str], depth: int) -> str | None:
    for position, word in enumerate(words):
        if word in ("-exec", "-execdir", "-ok", "-okdir"):
            inner = words[position + 1 :]
            if inner and (found := problem(inner, depth + 1)) is not None:
                return found
        if word == "-delete" and any(_is_system(each) for each in words[1:position]):
            return "find -delete outside the workspace is refused"
    return None


def _shell_problem(words: list[str], depth: int) -> str | None:
    """A shell: its ``-c`` script, wherever among its options the letter stands."""
    for position, word in enumerate(words[1:], 1):
        if word.startswith(("-", "+")) and not word.startswith("--"):
            if "c" in word[1:]:
                scripts = [each for each in words[position + 1 :] if not each.startswith("-")]
                return script_problem(scripts[0], depth + 1) if scripts else None
            if "s" in word[1:]:
                return "a shell that reads its commands from its input can't be judged"
        elif word.startswith("--"):
            continue
        else:
            return None  # a script file: it is judged as the program it is, by a person
    return "a shell that reads its commands from its input can't be judged"


# -- programs that destroy -------------------------------------------------------------------------


def _recursive_problem(program: str, rest: list[str]) -> str | None:
    options = [word for word in rest if word.startswith("-") and word != "--"]
    is_recursive = any(
        word.startswith("--recursive") or (not word.startswith("--") and re.search("[rR]", word))
        for word in options
    )
    if program == "shred" or is_recursive or "--no-preserve-root" in options:
        for word in rest:
            if word not in options and _is_system(word):
                return f"{program} of {word} as a whole is refused: it is not in the workspace"
    return _device_problem(program, rest)


def _is_system(word: str) -> bool:
    """The root, a directory of the system, a home, or whatever is above the workspace."""
    clean = re.sub(r"/(?:\./)+|//+", "/", word)
    if clean.startswith("~") or clean in ("$HOME", "${HOME}", "$HOME/", "..", "../"):
        return True
    if clean.startswith("/") and ".." in clean.split("/"):
        return True
    return bool(_SYSTEM.fullmatch(clean)) or clean.startswith("../")


def _device_problem(program: str, rest: list[str]) -> str | None:
    for word in rest:
        target = word.rpartition("=")[2]
        if re.match(r"/dev/(?!null$|zero$|stdout$|stderr$|stdin$|u?random$|fd/)", target):
            return f"{program} on the device {target} is refused"
    return None


# -- scripts ---------------------------------------------------------------------------------------


def _command_problem(command: list[str], raw: list[str], depth: int) -> str | None:
    """One simple command of a script; ``raw`` are its words as written."""
    while command and (command[0] in _WORDS or _ASSIGNMENT.fullmatch(command[0])):
        if command[0].startswith(("LD_", "BASH_ENV=", "ENV=")):
            return f"{command[0].partition('=')[0]} makes programs run other code"
        command, raw = command[1:], raw[1:]
    if not command:
        return None
    if re.search(r"[$`*?\[{]", raw[0]) or "\\" in raw[0]:
        return f"what {raw[0]!r} would run can't be known before it runs"
    if command[0] in _BUILTINS:
        if command[0] in ("command", "exec", "builtin") and len(command) > 1:
            return problem(command[1:], depth + 1)
        return f"{command[0]} in a script can't be judged"
    return problem(command, depth + 1)


def _commands(script: str) -> list[tuple[list[str], list[str]]]:
    """Simple commands with their words, unquoted and as written; a redirection counts as one that
    touches its target. Raises ``ValueError``."""
    found: list[tuple[list[str], list[str]]] = []
    words: list[str] = []
    raw: list[str] = []
    is_target = False
    for token in _tokens(script.replace("\\\n", "")):
        if _OPERATOR.fullmatch(token):
            is_target = bool(re.search("[<>]", token))
            if not is_target:
                found.append((words, raw))
                words, raw = [], []
        elif is_target:
            found.append((["tee", _unquoted(token)], ["tee", token]))
            is_target = False
        else:
            words.append(_unquoted(token))
            raw.append(token)
    return [pair for pair in [*found, (words, raw)] if pair[0]]


def _tokens(script: str) -> list[str]:
    """Operators, and words as they are written: quoted and bare parts of one stay together. The
    bodies of here-documents are no commands and are left out. Raises ``ValueError``."""
    tokens: list[str] = []
    word, quote, position = "", "", 0
    while position < len(script):
        character = script[position]
        pair = script[position : position + 2]
        if quote:
            taken = pair if character == "\\" and quote == '"' else character
            quote = "" if taken == quote else quote
        elif character in " \t\r" or _OPERATOR.match(character):
            # The digit of "2>" is no word of the command.
            if word and not (word.isdigit() and character in "<>"):
                tokens.append(word)
            word = ""
            operator = _OPERATOR.match(script, position)
            taken = operator[0].partition("\n")[0] or "\n" if operator else character
            if operator:
                tokens.append(taken)
            position += len(taken)
            if taken == "\n":
                position = _after_documents(script, position, tokens)
            continue
        elif character == "#" and not word:
            line_end = script.find("\n", position)
            position = len(script) if line_end < 0 else line_end
            continue
        else:
            taken = pair if character == "\\" else character
            quote = character if character in "'\"" else ""
        word += taken
        position += len(taken)
    if quote:
        raise ValueError("a quotation is not closed")
    return [*tokens, word] if word else tokens


def _after_documents(script: str, position: int, tokens: list[str]) -> int:
    """Where the script goes on after the here-documents that the line before has opened."""
    line_began = len(tokens) - 1
    while line_began > 0 and tokens[line_began - 1] != "\n":
        line_began -= 1
    line = tokens[line_began:-1]
    for operator, name in itertools.pairwise(line):
        if operator != "<<":
            continue
        end = _unquoted(name.removeprefix("-"))
        found = re.compile(rf"^\t*{re.escape(end)}$", re.MULTILINE).search(script, position)
        if found is None:
            raise ValueError("a here-document is not closed")
        position = found.end()
    return position


def _unquoted(token: str) -> str:
    """A word as the program will get it, but for expansions. Raises ``ValueError``."""
    if "$'" in token:
        raise ValueError("$'…' hides what is said")
    return "".join(shlex.split(token, posix=True)) if token.strip("'\"") else ""


def _substitutions(script: str) -> list[str]:
    """The scripts in ``$( )``, `` ` ` `` and ``<( )``; the outermost. Quotation is not looked at:
    here-documents have their own, and a script in a quoted text is judged once too often at worst."""
    found: list[str] = []
    position = 0
    while position < len(script):
        if script[position] == "\\":
            position += 2
            continue
        end = position
        if script[position] == "`":
            end = script.find("`", position + 1)
            end = len(script) if end < 0 else end
            found.append(script[position + 1 : end])
        elif script.startswith(("$(", "<(", ">("), position):
            end = _closing(script, position + 2)
            found.append(script[position + 2 : end])
        position = end + 1
    return found


def _closing(script: str, position: int) -> int:
    depth = 1
    while position < len(script):
        depth += (script[position] == "(") - (script[position] == ")")
        if depth == 0:
            return position
        position += 1
    return position
