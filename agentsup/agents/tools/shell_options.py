"""Options, settings and little languages of ordinary programs that name a further program. Pure.

A grant by pattern does not cover such a command line: it is asked about. Nothing is refused for it,
since any script file says the same unread.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence

from agentsup.agents.tools.shell_reader import UNKNOWN
from agentsup.agents.tools.shell_starters import Found, Refused, Script

# For each program the options whose value is a command line; long ones may be shortened.
_COMMANDS: dict[str, tuple[str, ...]] = {
    "rsync": ("-e", "--rsh", "--rsync-path"),
    "man": ("-P", "-H", "--pager", "--html"),
    "sort": ("--compress-program",),
    "split": ("--filter",),
    "zip": ("-TT", "--unzip-command"),
    "wget": ("--use-askpass",),
}
_TAR = (
    *("-I", "-F", "--to-command", "--use-compress-program", "--info-script", "--rsh-command"),
    *("--new-volume-script", "--rmt-command", "--checkpoint-action"),
)
_GIT_KEYS = re.compile(
    r"alias\.|pager\.|core\.(?:pager|editor|sshcommand|askpass|fsmonitor|gitproxy)|sequence\.editor"
    r"|diff\.|.*\.(?:textconv|driver|command|cmd|path|program|clean|smudge|process|helper)$"
    r"|.*\.(?:uploadpack|receivepack)$|interactive\.difffilter|browser\.|man\.|uploadpack\.",
    re.IGNORECASE,
)
_GIT_ELSEWHERE = re.compile(
    r"include|core\.(?:hookspath|worktree|attributesfile)|protocol\.|init\.templatedir",
    re.IGNORECASE,
)
_GIT_TAKING = ("-C", "--git-dir", "--work-tree", "--namespace", "--super-prefix")
_GIT_OPTIONS: dict[str, tuple[str, ...]] = {
    "clone": ("-u", "--upload-pack", "--template"),
    "fetch": ("--upload-pack",),
    "fetch-pack": ("--upload-pack", "--exec"),
    "pull": ("--upload-pack",),
    "ls-remote": ("--upload-pack", "--exec"),
    "push": ("--receive-pack", "--exec"),
    "send-pack": ("--receive-pack", "--exec"),
    "archive": ("--exec",),
    "rebase": ("-x", "--exec"),
    "grep": ("-O", "--open-files-in-pager"),
    "difftool": ("-x", "--extcmd"),
    "filter-branch": (
        *("--setup", "--env-filter", "--tree-filter", "--index-filter", "--parent-filter"),
        *("--msg-filter", "--commit-filter", "--tag-name-filter"),
    ),
}
_EDITORS = frozenset(
    [
        "vi",
        "vim",
        "nvim",
        "view",
        "ex",
        "ed",
        "emacs",
        "less",
        "more",
        "most",
        "nano",
        "gvim",
        "rvim",
        "vimdiff",
    ]
)
_AWKS = frozenset(["awk", "gawk", "mawk", "nawk", "original-awk"])
_TEXT = re.compile(r'"(?:\\.|[^"\\])*"')
_AWK = re.compile(r'\bsystem\s*\(|\|\s*(?:&|getline\b|")|\bprintf?\b[^|;}\n]*\|(?!\|)|@\w+\s*\(')
_SED = re.compile(
    r"(?:^|[;{}\n!\d/$,])\s*e(?:\s|$)|([/|#,:@!])[gpiImM\d]*e[gpiImMw\d]*\s*(?:$|[;}\n])"
)
_SSH = re.compile(
    r"(?:proxycommand|localcommand|knownhostscommand)\s*[= ]\s*(.*)", re.IGNORECASE | re.DOTALL
)


def started_in(program: str, rest: Sequence[str]) -> list[Found]:
    """The scripts that the words of ``program`` hold. Raises ``Refused``."""
    special = _SPECIAL.get(program)
    if special is not None:
        return special(list(rest))
    options = _COMMANDS.get(program)
    return [Script(_bare(value)) for value in _values(rest, options)] if options else []


def _bare(value: str) -> str:
    return value.removeprefix("exec=").lstrip("!|")


def _values(rest: Sequence[str], options: Sequence[str]) -> list[str]:
    """What is given for any of the options, attached or as the next word, shortened or not."""
    found = []
    for at, word in enumerate(rest):
        following = rest[at + 1] if at + 1 < len(rest) else ""
        name, has_value, value = word.partition("=")
        for option in options:
            if option.startswith("--"):
                if len(name) > 3 and option.startswith(name) and name.startswith("--"):
                    found.append(value if has_value else following)
            elif word.startswith("-") and not word.startswith("--") and option[1:] in word[1:]:
                attached = word.partition(option[1:])[2]
                found.append(attached or following)
    return [value for value in found if value]


def _git(rest: list[str]) -> list[Found]:
    found: list[Found] = []
    words = list(rest)
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if word == "-c" or word.startswith("--config-env"):
            found += _git_setting(words.pop(0) if word == "-c" and words else UNKNOWN)
        elif word.startswith("--exec-path="):
            raise Refused("git --exec-path makes it run other programs")
        elif word in _GIT_TAKING and words:
            words.pop(0)
    verb, below = (words[0], words[1:]) if words else ("", [])
    if verb in ("bisect", "submodule") and below[:1] in (["run"], ["foreach"]):
        found.append(Script(" ".join(word for word in below[1:] if word != "--recursive")))
    if verb == "config":
        for key, value in itertools.pairwise(below):
            if _GIT_ELSEWHERE.match(key) or _GIT_KEYS.match(key):
                found += _git_setting(f"{key}={value}")
    if any("ext::" in word for word in below):
        raise Refused("git ext:: runs a program instead of a connection")
    if verb in ("clone", "init"):
        for setting in _values(below, ("-c", "--config")):
            found += _git_setting(setting)
    return found + [Script(_bare(value)) for value in _values(below, _GIT_OPTIONS.get(verb, ()))]


def _git_setting(setting: str) -> list[Found]:
    key, _, value = setting.partition("=")
    if UNKNOWN in key or _GIT_ELSEWHERE.match(key):
        raise Refused(f"git with the setting {key.replace(UNKNOWN, '$')[:60]} can't be judged")
    return [Script(_bare(value))] if _GIT_KEYS.match(key) else []


def _awk(rest: list[str]) -> list[Found]:
    if any(_AWK.search(_TEXT.sub('""', word)) for word in rest):
        raise Refused("an awk program that starts others can't be judged")
    return []


def _sed(rest: list[str]) -> list[Found]:
    texts = [word for word in rest if not word.startswith("-") or len(word) > 3]
    if any(_SED.search(word) for word in texts[:1]) or any(
        _SED.search(rest[at + 1]) for at, word in enumerate(rest[:-1]) if word == "-e"
    ):
        raise Refused("a sed script that runs what it has edited can't be judged")
    return []


def _ssh(rest: list[str]) -> list[Found]:
    found: list[Found] = []
    for word in rest:
        given = _SSH.match(word.removeprefix("-o").lstrip())
        if given is not None:
            found.append(Script(given[1]))
    return found


def _copy(rest: list[str]) -> list[Found]:
    return _ssh(rest) + [Script(value) for value in _values(rest, ("-S",))]


def _tar(rest: list[str]) -> list[Found]:
    if rest and not rest[0].startswith("-") and set(rest[0]) & set("IF"):
        raise Refused(
            "tar with a program of its own can't be judged; write its options with a dash"
        )
    return [Script(_bare(value)) for value in _values(rest, _TAR)]


def _make(rest: list[str]) -> list[Found]:
    if any(word.startswith(("SHELL=", "--eval", "-E")) for word in rest):
        raise Refused("make with a shell or rules of its own can't be judged")
    if any(word in ("-f-", "--file=-", "--makefile=-") for word in rest) or "-" in rest:
        raise Refused("make that reads its rules from its input can't be judged")
    return []


def _editor(rest: list[str]) -> list[Found]:
    for before, word in itertools.pairwise(["", *rest]):
        is_command = before in ("-c", "--cmd", "-S", "-s", "--eval", "-e", "-E", "-P")
        if not is_command and not word.startswith(("+", "--eval", "--cmd", "-c")):
            continue
        if not re.search(r"!|\bsystem\s*\(|\bpython|\blua\b|shell-command", word):
            continue
        raise Refused("an editor's command that starts a program can't be judged")
    return []


def _socket(rest: list[str]) -> list[Found]:
    for word in rest:
        if re.search(r"(?i)(?:exec|system|shell):", word):
            raise Refused("a connection that starts a program can't be judged")
        if re.fullmatch(r"-[a-zA-Z]*[ec]|--(?:exec|sh-exec|lua-exec)(?:=.*)?", word):
            raise Refused("a connection that starts a program can't be judged")
    return []


_SPECIAL: dict[str, Callable[[list[str]], list[Found]]] = {
    "git": _git,
    "ssh": _ssh,
    **dict.fromkeys(("scp", "sftp"), _copy),
    **dict.fromkeys(("tar", "gtar", "bsdtar"), _tar),
    "make": _make,
    "gmake": _make,
    "sed": _sed,
    "gsed": _sed,
    **dict.fromkeys(_AWKS, _awk),
    **dict.fromkeys(_EDITORS, _editor),
    **dict.fromkeys(("socat", "nc", "ncat", "netcat", "nc.traditional"), _socket),
}
