"""Command lines that a grant covers. Pure.

A pattern is compared with the words that a program gets, never with text: ``git status *`` covers
``git status``, ``git status -s`` and nothing else that runs. Only programs that start no other one,
whatever their arguments say, get a pattern with ``*``; of any other one it is the exact command line.
Who reads the words of a call gives none where a command line starts other programs or can't be told
before it runs.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

Commands = Sequence[Sequence[str]]

MAX_CHARS = 40
"""The longest pattern that is offered: a button shows all of it."""
_PROGRAM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
_EVERY = " *"
_ALONE_TEXT = """
b2sum base32 base64 basename cal cat chgrp chmod chown cksum cmp column comm cp cut date
dd df diff dig dirname du echo egrep expand expr factor false fgrep file fmt fold free grep
groups head hexdump host hostid id join jq kill link ln logname look ls lscpu md5sum mkdir
mkfifo mktemp mv nl nproc numfmt od paste pathchk pgrep ping pr printenv printf ps ptx pwd
readlink realpath rev rm rmdir seq sha1sum sha224sum sha256sum sha384sum sha512sum shred shuf
sleep stat sum sync tac tail tee touch tr true truncate tsort tty uname unexpand uniq unlink
uptime users vmstat wc who whoami xxd zcat gzip gunzip bzip2 bunzip2 xz unxz
"""
_ALONE = frozenset(_ALONE_TEXT.split())
"""Programs that start no other one that is named by an argument. A program belongs here once its
manual has been read for options that name a program, a library or a script."""
_GIT_TEXT = """
add blame branch cat-file check-ignore checkout cherry commit count-objects describe diff
diff-tree for-each-ref log ls-files ls-tree merge-base mv name-rev reflog reset restore
rev-list rev-parse rm shortlog show show-ref stash status switch tag
"""
_VERBS = {"git": frozenset(_GIT_TEXT.split())}
"""Programs whose first word says what they do, and those of these words that are as good as the
programs above. What the repository's own settings and hooks start is not among the arguments."""


def offered(commands: Commands) -> str:
    """The pattern to offer for the command lines of a call, or empty: they have none in common, or
    none that a button can show."""
    found = {_pattern(words) for words in commands}
    pattern = found.pop() if len(found) == 1 else ""
    is_shown = len(pattern) <= MAX_CHARS and pattern.isascii() and pattern.isprintable()
    return pattern if is_shown else ""


def covers(pattern: str, commands: Commands) -> bool:
    """Whether the pattern is of every one of the command lines. One that would not be offered any
    more covers nothing."""
    return bool(pattern and commands) and all(_covers(pattern, words) for words in commands)


def holds(pattern: str) -> bool:
    """Whether the pattern covers anything: false for one of a time when more programs had a ``*``."""
    return not pattern.endswith(_EVERY) or _is_alone(pattern.removesuffix(_EVERY).split(" "))


def _covers(pattern: str, words: Sequence[str]) -> bool:
    return pattern in (shlex.join(words), _pattern(words))


def _pattern(words: Sequence[str]) -> str:
    if not _PROGRAM.fullmatch(words[0]):
        return ""
    for prefix in (words[:1], words[:2]):
        if _is_alone(prefix):
            return " ".join(prefix) + _EVERY
    return shlex.join(words)


def _is_alone(prefix: Sequence[str]) -> bool:
    if len(prefix) == 1:
        return prefix[0] in _ALONE
    return len(prefix) == 2 and prefix[1] in _VERBS.get(prefix[0], ())
