"""The command lines that a call runs, word by word, for grants by pattern. Pure.

Nothing is told of a call that may run more than its words say: by a shell that reads it in several
ways, by a program that starts another one, by an option that names a command.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentsup.agents.tools.shell_options import started_in
from agentsup.agents.tools.shell_reader import UNKNOWN, WILD, Unreadable, commands_of
from agentsup.agents.tools.shell_starters import Refused, started_by

Lines = tuple[tuple[str, ...], ...]

_KEYS = frozenset(["argv", "command", "cmd"])
_OTHER_KEYS = frozenset(["timeout", "description", "justification", "title", "run_in_background"])
_SHELLS = frozenset(["sh", "bash", "dash", "zsh"])
_OF_SHELLS = frozenset(
    [
        ".",
        ":",
        "[",
        "alias",
        "bg",
        "bind",
        "break",
        "builtin",
        "caller",
        "case",
        "cd",
        "command",
        "compgen",
        "complete",
        "continue",
        "coproc",
        "declare",
        "dirs",
        "do",
        "done",
        "elif",
        "else",
        "enable",
        "esac",
        "eval",
        "exec",
        "exit",
        "export",
        "fc",
        "fg",
        "fi",
        "for",
        "function",
        "getopts",
        "hash",
        "history",
        "if",
        "in",
        "jobs",
        "let",
        "local",
        "logout",
        "mapfile",
        "popd",
        "pushd",
        "read",
        "readarray",
        "readonly",
        "return",
        "select",
        "set",
        "shift",
        "shopt",
        "source",
        "suspend",
        "test",
        "then",
        "time",
        "times",
        "trap",
        "type",
        "typeset",
        "ulimit",
        "umask",
        "unalias",
        "unset",
        "until",
        "wait",
        "while",
        "{",
        "}",
        "!",
        "[[",
        "((",
    ]
)
_BY_ASSIGNMENT = frozenset(["make", "gmake"])
"""Programs that take variables on their command line, and run what is in them."""


def of_words(words: Sequence[str]) -> Lines:
    """Those of a program and its arguments, of the script in them where it is a shell; empty where
    they can't be told."""
    if not words or any(UNKNOWN in word or WILD in word or "\0" in word for word in words):
        return ()
    program = words[0]
    if program in _SHELLS:
        is_script = len(words) == 3 and words[1] in ("-c", "-lc")
        return of_script(words[2]) if is_script else ()
    if "=" in program or program in _OF_SHELLS:
        return ()
    if program in _BY_ASSIGNMENT and any("=" in word or word == "-" for word in words[1:]):
        return ()
    try:
        if started_by(program, words[1:]) is not None or started_in(program, words[1:]):
            return ()
    except Refused:
        return ()
    return (tuple(words),)


def of_script(script: str) -> Lines:
    """Those of a shell's script; empty where one of them, or how they go together, can't be told."""
    if "<<" in script:
        return ()
    try:
        commands = commands_of(script)
    except Unreadable:
        return ()
    found: list[tuple[str, ...]] = []
    for words in commands:
        if words[0] in _SHELLS or not (lines := of_words(words)):
            return ()
        found += lines
    return tuple(found)


def of_own_call(args: Mapping[str, Any]) -> Lines:
    """Those of a coding CLI's call of its shell; empty where an argument is not known here, such as
    another directory."""
    given = [key for key in args if key in _KEYS]
    if len(given) != 1 or not set(args) <= _KEYS | _OTHER_KEYS:
        return ()
    command = args[given[0]]
    if isinstance(command, str):
        return of_script(command)
    if isinstance(command, list) and all(isinstance(word, str) for word in command):
        return of_words(command)
    return ()
