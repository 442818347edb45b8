"""Command lines that a grant covers. Pure.

A pattern is compared with the words that a program gets, never with text. It is one of three:

- the exact command line: ``git push origin main``;
- a program that starts no other program, whatever its arguments are: ``git status *``;
- a program that runs what the workspace defines, with plain words behind it: ``make *`` covers
  ``make test``, but no option and no assignment (``make -f x``, ``make SHELL=x``).

A ``*`` stands for words that stay in the workspace. The caller gives no words for a command line
that starts other programs, or whose words are not known before it runs (0067).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

Commands = Sequence[Sequence[str]]

MAX_CHARS = 40
"""The longest pattern that is offered, because a button must show all of it."""
_PROGRAM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
_PLAIN = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.,:/-]*")
_PARTS = re.compile(r"[/=:,]")
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
"""Programs that start no program named by an argument. Before one is added, its manual must be
checked for options that name a program, a library or a script."""
_GIT_TEXT = """
add blame branch cat-file check-ignore checkout cherry commit count-objects describe diff
diff-tree for-each-ref log ls-files ls-tree merge-base mv name-rev reflog reset restore
rev-list rev-parse rm shortlog show show-ref stash status switch tag
"""
_VERBS = {"git": frozenset(_GIT_TEXT.split())}
"""Programs whose first argument is a subcommand, and those subcommands that are as safe as the
programs above. Programs that a repository's settings and hooks start are not in the arguments."""


_BUILDS_TEXT = """
eslint|make|mypy|ninja|prettier|pytest|tsc|npm run|npm test|cargo bench|cargo build|cargo check
cargo clippy|cargo doc|cargo fmt|cargo test|go build|go fmt|go test|go vet|ruff check|ruff format
"""
_BUILDS = frozenset(
    tuple(one.split()) for one in _BUILDS_TEXT.strip().replace("\n", "|").split("|")
)
"""Programs, some with their subcommand, that run what files of the workspace define. Before one is
added, its manual must be checked for plain words that name a program, a directory or an address."""


def offered(commands: Commands, workspace: str = "") -> tuple[str, ...]:
    """The patterns to offer for the command lines of a call, the narrowest first.

    There are none if the lines have none in common, or none that a button can show.
    """
    if not commands:
        return ()
    found = [one for one in _patterns(commands[0], workspace) if covers(one, commands, workspace)]
    return tuple(
        one for one in found if len(one) <= MAX_CHARS and one.isascii() and one.isprintable()
    )


def covers(pattern: str, commands: Commands, workspace: str = "") -> bool:
    """Whether the pattern covers every one of the command lines, run in ``workspace``.

    A pattern that would not be offered any more covers nothing.
    """
    return bool(pattern and commands) and all(
        pattern == shlex.join(words) or pattern in _patterns(words, workspace) for words in commands
    )


def holds(pattern: str) -> bool:
    """Whether the pattern is valid: False for a ``*`` that is not offered any more."""
    if not pattern.endswith(_EVERY):
        return True
    prefix = pattern.removesuffix(_EVERY).split(" ")
    return _is_alone(prefix) or tuple(prefix) in _BUILDS


def _patterns(words: Sequence[str], workspace: str) -> tuple[str, ...]:
    """The patterns of a command line; one with an open end takes the place of the exact line where
    no argument of its program can start another."""
    if not _PROGRAM.fullmatch(words[0]):
        return ()
    for prefix in (words[:1], words[:2]):
        rest = [_inside(word, workspace) for word in words[len(prefix) :]]
        stays = [word for word in rest if word is not None]
        if len(stays) < len(rest):
            continue
        if _is_alone(prefix):
            return (" ".join(prefix) + _EVERY,)
        if tuple(prefix) in _BUILDS and all(map(_PLAIN.fullmatch, stays)):
            return (shlex.join(words), " ".join(prefix) + _EVERY)
    return (shlex.join(words),)


def _inside(word: str, workspace: str) -> str | None:
    """A word as seen from the workspace; None if it may name something outside."""
    if workspace and word.startswith(f"{workspace}/"):
        word = word.removeprefix(f"{workspace}/")
    if word.startswith(("/", "~")) or ":/" in word or ".." in _PARTS.split(word):
        return None
    if (word.startswith("-") or "=" in word) and ("/" in word or ".." in word):
        return None
    return word


def _is_alone(prefix: Sequence[str]) -> bool:
    if len(prefix) == 1:
        return prefix[0] in _ALONE
    return len(prefix) == 2 and prefix[1] in _VERBS.get(prefix[0], ())
