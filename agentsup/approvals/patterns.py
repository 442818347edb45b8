"""Command lines that a grant covers: a program, with its first words, and whatever follows. Pure.

A pattern is compared with the words that a program gets, never with text: ``make *`` covers
``make``, ``make -j4 test`` and nothing else that runs. Who reads the words of a call gives none
where a command line starts other programs or can't be told before it runs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

Commands = Sequence[Sequence[str]]

MAX_CHARS = 40
"""The longest pattern that is offered: a button shows all of it."""
_PROGRAM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+-]*")
_VERB = re.compile(r"[a-z][a-z0-9-]*")
_BY_VERB = frozenset(
    [
        "apt",
        "apt-get",
        "brew",
        "bundle",
        "cargo",
        "conda",
        "dotnet",
        "gem",
        "git",
        "go",
        "gradle",
        "helm",
        "kubectl",
        "mvn",
        "npm",
        "pip",
        "pip3",
        "pipx",
        "pnpm",
        "poetry",
        "rustup",
        "terraform",
        "uv",
        "yarn",
    ]
)
"""Programs whose first word says what they do; leave for all of what they do is too much."""
_RUNS = frozenset(["dlx", "exec", "run", "run-script", "x"])
"""Words behind which another program, or a script of the project, is named."""
_BY_SCRIPT = frozenset(
    [
        "bun",
        "deno",
        "lua",
        "node",
        "perl",
        "php",
        "python",
        "python2",
        "python3",
        "ruby",
        "Rscript",
        "tsx",
        "ts-node",
    ]
)
"""Interpreters: the script is what is allowed."""
_STARTS = frozenset(
    [
        "ash",
        "awk",
        "bash",
        "bunx",
        "busybox",
        "csh",
        "dash",
        "docker",
        "ed",
        "emacs",
        "ex",
        "fish",
        "gawk",
        "ksh",
        "mawk",
        "nawk",
        "nerdctl",
        "npx",
        "nu",
        "osascript",
        "podman",
        "powershell",
        "pwsh",
        "scp",
        "sed",
        "sh",
        "ssh",
        "tclsh",
        "tcsh",
        "toybox",
        "uvx",
        "vi",
        "view",
        "vim",
        "nvim",
        "xonsh",
        "zsh",
    ]
)
"""Programs that run whatever their words say: a pattern of them would say nothing."""


def offered(commands: Commands) -> str:
    """The pattern to offer for the command lines of a call, or empty: they have none in common, or
    none that says enough."""
    found = {_prefix(words) for words in commands}
    prefix = found.pop() if len(found) == 1 else ()
    pattern = " ".join((*prefix, "*"))
    return pattern if prefix and len(pattern) <= MAX_CHARS else ""


def covers(pattern: str, commands: Commands) -> bool:
    """Whether every one of the command lines begins with the pattern's words."""
    *prefix, star = pattern.split(" ")
    if star != "*" or not prefix or not commands:
        return False
    return all(list(words[: len(prefix)]) == prefix for words in commands)


def _prefix(words: Sequence[str]) -> tuple[str, ...]:
    program, first = words[0], words[1] if len(words) > 1 else ""
    if not _PROGRAM.fullmatch(program) or program in _STARTS:
        return ()
    if program in _BY_VERB:
        if not _VERB.fullmatch(first):
            return ()
        if first not in _RUNS:
            return (program, first)
        rest = _prefix(words[2:]) if len(words) > 2 else ()
        return (program, first, *rest) if rest else ()
    if program in _BY_SCRIPT or re.fullmatch(r"python[\d.]+", program):
        return (program, first) if _PLAIN.fullmatch(first) and "." in first else ()
    return (program,)
