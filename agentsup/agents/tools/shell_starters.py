"""Programs that start another one, and where in their words it stands. Pure.

Options are read as the programs read them; one that isn't known here is refused, since the program
that would be started can't be told then. What a word of a script holds only at its run
(``UNKNOWN``) is as good as not known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agentsup.agents.tools.shell_reader import UNKNOWN, WILD


@dataclass(frozen=True, slots=True)
class Started:
    """``words`` are a program and its arguments; ``from_input`` says that more of them come from
    what it reads."""

    words: tuple[str, ...]
    from_input: bool = False


@dataclass(frozen=True, slots=True)
class Script:
    """A text that a shell will read."""

    text: str


class Refused(Exception):
    """The words can't be judged; the text says why."""


Found = Started | Script


@dataclass(frozen=True, slots=True)
class _Options:
    """One-letter options that stand alone, those that take a word, and the same by their names.
    ``operands`` come before the program."""

    alone: str = ""
    taking: str = ""
    long_alone: str = ""
    long_taking: str = ""
    operands: int = 0
    is_numeric: bool = False


_STARTERS: dict[str, _Options] = {
    "nice": _Options("", "n", "", "adjustment", is_numeric=True),
    "ionice": _Options("t", "cnpPu", "ignore", "class classdata"),
    "timeout": _Options("fpv", "ks", "foreground preserve-status verbose", "kill-after signal", 1),
    "nohup": _Options(),
    "setsid": _Options("cfw", "", "ctty fork wait"),
    "stdbuf": _Options("", "ioe", "", "input output error"),
    "time": _Options("apqvl", "of", "append portability quiet verbose", "output format"),
    "taskset": _Options("ac", "", "all-tasks cpu-list", "", 1),
    "chrt": _Options("abdfiorRvm", "TPD", "batch fifo idle other rr deadline", "", 1),
    "unbuffer": _Options("p"),
    "caffeinate": _Options("dimsu", "tw"),
    "chronic": _Options("ve"),
    "choom": _Options("", "n", "", "adjust"),
    "numactl": _Options("al", "NmCip", "all localalloc", "cpunodebind membind physcpubind"),
    "fakeroot": _Options("u", "lfisb", "unknown-is-real", "lib faked"),
    "dbus-run-session": _Options("", "", "", "config-file"),
    "xvfb-run": _Options("al", "enfps", "auto-servernum listen-tcp", "server-args error-file"),
    "rlwrap": _Options("acimnNrRsSw", "fHb"),
    "command": _Options("p"),
    "exec": _Options("cl", "a"),
    "builtin": _Options(),
}
_ENV = _Options(
    "i0v",
    "uCSa",
    "ignore-environment null debug block-signal default-signal ignore-signal list-signal-handling",
    "unset chdir split-string argv0",
)
_XARGS = _Options(
    "0rtpxo",
    "InPLdEsaJRS",
    "null no-run-if-empty verbose interactive exit open-tty show-limits",
    "max-args max-procs max-lines delimiter arg-file replace max-chars process-slot-var eof",
)
_FLOCK = _Options(
    "sxenuFov",
    "wEc",
    "shared exclusive nonblock no-fork close verbose unlock nb",
    "timeout wait conflict-exit-code command",
)
_WATCH = _Options(
    "bcCdegptvwxr",
    "nqs",
    "beep color no-color differences errexit chgexit precise no-title no-wrap exec",
    "interval equexit shotsdir",
)
_OPAQUE = frozenset(
    [
        "parallel",
        "entr",
        "hyperfine",
        "ltrace",
        "prlimit",
        "cgexec",
        "firejail",
        "bwrap",
        "proot",
        "faketime",
        "ssh-agent",
        "expect",
        "run-parts",
        "start-stop-daemon",
        "catchsegv",
        "uclampset",
        "linux32",
        "linux64",
        "setarch",
        "personality",
        "ld.so",
        "daemonize",
        "torsocks",
        "proxychains",
        "proxychains4",
        "eatmydata",
        "script",
        "strace-log-merge",
        "cpulimit",
        "perf",
        "valgrind",
        "rr",
        "gdbserver",
    ]
)
"""Programs that start others in ways of their own: what would start is not read out of their words."""
_LOADER = re.compile(r"ld(?:-linux.*|-musl.*|-\d.*)?\.so(?:\.\d+)*")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=(.*)", re.DOTALL | re.ASCII)


def started_by(program: str, rest: Sequence[str]) -> list[Found] | None:
    """What ``program`` with the words ``rest`` starts; None if it isn't one that only starts others.

    Raises ``Refused``.
    """
    special = _SPECIAL.get(program)
    if special is not None:
        return special(list(rest))
    options = _STARTERS.get(program)
    if options is not None:
        _, inner = _read(program, rest, options)
        return _program(inner[options.operands :])
    if program in _OPAQUE or _LOADER.fullmatch(program):
        raise Refused(f"what {program} would start can't be judged; name that program itself")
    return None


def _read(
    program: str, rest: Sequence[str], options: _Options
) -> tuple[list[tuple[str, str]], list[str]]:
    """Options with their values, and what follows them. Raises ``Refused`` for an unknown one."""
    known = {**dict.fromkeys(options.long_alone.split(), False)}
    known |= dict.fromkeys(options.long_taking.split(), True)
    found: list[tuple[str, str]] = []
    words = list(rest)
    while words:
        word = words.pop(0)
        if word == "--":
            break
        if not word.startswith("-") or (word == "-" and program != "env"):
            words.insert(0, word)
            break
        if word == "-":
            continue
        if UNKNOWN in word.partition("=")[0][:2]:
            raise Refused(f"an option of {program} can't be known before it runs")
        if word.startswith("--"):
            name, has_value, value = word[2:].partition("=")
            if name not in known:
                raise Refused(f"{program} with the option --{name[:40]} can't be judged")
            if known[name] and not has_value:
                value = words.pop(0) if words else ""
            found.append((name, value))
        elif options.is_numeric and word[1:].lstrip("-").isdigit():
            continue
        else:
            found += _letters(program, word[1:], words, options)
    return found, words


def _letters(
    program: str, cluster: str, words: list[str], options: _Options
) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    while cluster:
        letter, cluster = cluster[0], cluster[1:]
        if letter in options.taking:
            value = cluster or (words.pop(0) if words else "")
            return [*found, (letter, value)]
        if letter not in options.alone:
            raise Refused(f"{program} with the option -{letter} can't be judged")
        found.append((letter, ""))
    return found


def _program(inner: Sequence[str], *, from_input: bool = False) -> list[Found]:
    return [Started(tuple(inner), from_input)] if inner else []


# -- programs with ways of their own ---------------------------------------------------------------


def _env(rest: list[str]) -> list[Found]:
    found, inner = _read("env", rest, _ENV)
    while inner and _ASSIGNMENT.fullmatch(inner[0]) is not None:
        inner = inner[1:]
    for name, value in found:
        if name in ("S", "split-string"):
            # Its words come before the others, and are options again.
            raise Refused("env -S splits a text by rules of its own; name the program itself")
        if name in ("C", "chdir") and value.startswith(("/", "..", "~", UNKNOWN)):
            raise Refused("a program that env starts elsewhere can't be judged")
    return _program(inner)


def _xargs(rest: list[str]) -> list[Found]:
    at = next((n for n, word in enumerate(rest) if word in ("-i", "-l", "-e")), None)
    words = rest if at is None else [*rest[:at], *rest[at + 1 :]]
    found, inner = _read("xargs", words, _XARGS)
    named = [value for name, value in found if name in ("I", "J", "replace") and value]
    for sign in {*named, "{}"}:
        inner = [word.replace(sign, UNKNOWN) for word in inner]
    return _program(inner, from_input=True)


def _flock(rest: list[str]) -> list[Found]:
    _, inner = _read("flock", rest, _FLOCK)
    if inner[1:2] in (["-c"], ["--command"]):
        return [Script(" ".join(inner[2:]))]
    return _program(inner[1:])


def _watch(rest: list[str]) -> list[Found]:
    found, inner = _read("watch", rest, _WATCH)
    if any(name in ("x", "exec") for name, _ in found):
        return _program(inner)
    return [Script(" ".join(inner))]


def _find(rest: list[str]) -> list[Found]:
    found: list[Found] = []
    for at, word in enumerate(rest):
        if UNKNOWN in word and word.startswith((UNKNOWN, "-")) and at:
            raise Refused("a word of find can't be known before it runs")
        if word in ("-exec", "-execdir", "-ok", "-okdir"):
            inner = rest[at + 1 :]
            ends = [n for n, each in enumerate(inner) if each in (";", "+")]
            # What is found is below where it begins.
            inner = [each.replace("{}", WILD) for each in (inner[: ends[0]] if ends else inner)]
            found += _program(inner)
    return found


def _busybox(rest: list[str]) -> list[Found]:
    if rest[:1] and rest[0].startswith("-") and rest[0] not in ("--list", "--list-full", "--help"):
        raise Refused(f"busybox {rest[0][:40]} can't be judged")
    return _program(rest) if rest and not rest[0].startswith("--") else []


_SPECIAL: dict[str, Callable[[list[str]], list[Found]]] = {
    "env": _env,
    "xargs": _xargs,
    "flock": _flock,
    "watch": _watch,
    "find": _find,
    "busybox": _busybox,
    "toybox": _busybox,
}
