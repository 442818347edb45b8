"""The file ``environment`` of the home: variables such as keys of models that outlive a shell.

``KEY=VALUE`` lines, read as systemd reads an ``EnvironmentFile``. They are where ``env:NAME`` looks
beside the process's own environment, which wins. They do not become the process's environment, so
no program gets one that it would not be given by name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from agentsup.config.files import timed_reads
from agentsup.config.findings import ConfigFinding, Severity, is_secret_name
from agentsup.config.home import Home
from agentsup.kit.planted import read_plain

MAX_BYTES: Final = 64 * 1024
LIMIT_S: Final = 5.0
_MOST_FINDINGS: Final = 20
_MOST_LINES: Final = 50
"""The most lines of one value."""
_OURS: Final = "AGENTSUP_"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_QUOTED_ESCAPES: Final = '"\\$`'


@dataclass(frozen=True, slots=True)
class HomeEnvironment:
    """The variables of the file. Immutable."""

    values: Mapping[str, str]
    findings: tuple[ConfigFinding, ...] = ()
    """Warnings about lines that are not used."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values whose names sound like secrets, for redaction in the log."""
        return tuple(value for name, value in self.values.items() if is_secret_name(name))

    def beside(self, process: Mapping[str, str]) -> dict[str, str]:
        """The variables of both. The process's own win; one that is empty there counts as unset."""
        return {**process, **{k: v for k, v in self.values.items() if not process.get(k)}}


def read_environment(home: Home) -> HomeEnvironment:
    """Read ``environment`` of ``home``; nothing if there is no such file. Blocks on the disk.

    A file that can't be used is a warning, as a daemon without it still does what it can.
    """
    path = home.environment
    try:
        read = partial(read_plain, path, MAX_BYTES + 1)
        data = timed_reads().run(read, LIMIT_S, key=f"{path}")
    except FileNotFoundError:
        return HomeEnvironment({})
    except OSError as error:
        return _unused(path.name, f"can't be read: {error.strerror or error}")
    if len(data) > MAX_BYTES:
        return _unused(path.name, f"is larger than {MAX_BYTES:,} bytes")
    try:
        return parse_environment(data.decode("utf-8-sig"), path.name)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return _unused(path.name, "is not UTF-8 text", line)


def environment_of(home: Home, process: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that a daemon of ``home`` would know if it had the environment ``process``
    (by default ours). Blocks on the disk."""
    return read_environment(home).beside(os.environ if process is None else process)


def _unused(name: str, why: str, line: int | None = None) -> HomeEnvironment:
    found = ConfigFinding(
        Severity.WARNING, f"the file {why}; none of its lines is used", name, line
    )
    return HomeEnvironment({}, (found,))


def parse_environment(text: str, name: str) -> HomeEnvironment:
    """The variables in ``text``; ``name`` is the file's name in findings.

    The last of several lines with the same name counts. A finding never shows a value.
    """
    values: dict[str, str] = {}
    findings: list[ConfigFinding] = []
    for line, written in _assignments(text):
        key, value, problem, hint = _read(written)
        if not problem and key.startswith(_OURS):
            problem = f"{key} is not read from this file"
            hint = "write settings into config.toml, or set it where the daemon is started"
        if not problem:
            values[key] = value
        elif len(findings) < _MOST_FINDINGS:
            message = f"{problem}; the line is not used"
            findings.append(ConfigFinding(Severity.WARNING, message, name, line, hint=hint))
    return HomeEnvironment(values, tuple(findings))


def _assignments(text: str) -> Iterator[tuple[int, str]]:
    """Each assignment with the number of its first line. A value goes on in the next line after a
    backslash at the end of a line, and inside quotes."""
    lines = text.replace("\r\n", "\n").split("\n")
    at = 0
    while at < len(lines):
        first, whole = at, lines[at]
        at += 1
        if not whole.strip() or whole.lstrip()[0] in "#;":
            continue
        while at < min(len(lines), first + _MOST_LINES) and _goes_on(whole):
            whole = f"{whole}\n{lines[at]}"
            at += 1
        if _goes_on(whole) and first + 1 < at:
            # A quote without its end would hide all lines after it.
            whole, at = lines[first], first + 1
        yield first + 1, whole


def _goes_on(written: str) -> bool:
    _, _, state = _value(written.partition("=")[2])
    return state != ""


def _read(written: str) -> tuple[str, str, str, str | None]:
    """Name, value, and what is wrong (or empty) with a hint."""
    key, equals, rest = written.partition("=")
    key = key.strip()
    if not equals:
        return "", "", "this is not KEY=VALUE", "write NAME=value"
    if key.startswith("export ") and _NAME.fullmatch(key[7:].strip()):
        return "", "", "'export' belongs to a shell", f"write {key[7:].strip()}=…"
    if not _NAME.fullmatch(key):
        is_shown = len(key) <= 40 and key.isprintable()
        what = f"{key!r} is" if is_shown else "what stands before = is"
        return "", "", f"{what} no name of a variable", "use letters, digits and _"
    value, is_bad, state = _value(rest)
    if state == "\\":
        state = ""  # at the end of the file
    if state:
        return "", "", f"the value of {key} has no closing {state}", None
    if is_bad:
        return "", "", f"the value of {key} has a control character", None
    return key, value, "", None


def _value(rest: str) -> tuple[str, bool, str]:
    """The value of what follows ``=``, whether it has control characters, and what is still open
    at its end: a quote, a backslash, or nothing."""
    made: list[str] = []
    used = 0
    quote = ""
    chars = iter(rest.lstrip(" \t"))
    for char in chars:
        if char == quote:
            quote, used = "", len(made)
        elif not quote and char in "\"'" and not made:
            quote = char
        elif char == "\\" and quote != "'":
            following = next(chars, "")
            if not following:
                return "".join(made), False, quote or "\\"
            if following == "\n":
                continue
            made.append(
                following if not quote or following in _QUOTED_ESCAPES else f"\\{following}"
            )
            used = len(made)
        else:
            made.append(char)
            used = len(made) if quote or not char.isspace() else used
    value = "".join(made[:used])
    return value, any(ord(char) < 32 and char not in "\t\n" for char in value), quote
