"""The service's file, as text: what ``install`` writes, and what a file on the disk is to it. Pure."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from agentsup.cli.connect.failure import CommandFailed

MARK: Final = "# Written by `agentsup service install`, sha256 "
"""Begins the first line of a unit; the sum of all other lines follows."""
PLIST_MARK: Final = "<!-- Written by `agentsup service install`, sha256 "
_EXEC: Final = "%h/.local/bin/agentsup run"
_ENVIRONMENT: Final = "EnvironmentFile=-%h/.config/agentsup/environment\n"
_WANTED: Final = "WantedBy=default.target"


@dataclass(frozen=True, slots=True)
class Service:
    """The command and settings of a service."""

    program: tuple[str, ...]
    """The start of the command line; the home and ``run`` follow."""
    home: Path
    user: str = ""
    """The person as whom a unit of the whole machine runs; empty for a unit of a person."""

    @property
    def argv(self) -> tuple[str, ...]:
        """The whole command line."""
        return (*self.program, "--home", str(self.home), "run")


class UnitState(Enum):
    """The state of the service's file."""

    NOTHING = "nothing"
    SAME = "same"
    """The text that would be written now."""
    OURS = "ours"
    """Written by us, for something else or by another version."""
    FOREIGN = "foreign"
    """Written or changed by somebody else."""


def name_of(home: Path, default_home: Path) -> str:
    """The name of the unit of ``home``: one for each home, the same at each call."""
    if home == default_home:
        return "agentsup"
    word = re.sub(r"[^A-Za-z0-9]+", "-", home.name).strip("-")[:32] or "home"
    return f"agentsup-{word}-{zlib.crc32(str(home).encode()):08x}"


def unit_of(service: Service, template: str) -> str:
    """The whole unit file. Raises ``CommandFailed`` for a path that can't be written into one."""
    text = template.replace(_EXEC, " ".join(map(quoted, service.argv)))
    if service.user:
        section = f"[Service]\nUser={service.user}\nCapabilityBoundingSet=\nProtectSystem=full"
        text = (
            text.replace(_ENVIRONMENT, "")
            .replace("[Service]", section, 1)
            .replace(_WANTED, "WantedBy=multi-user.target")
        )
    return f"{MARK}{_sum(text)}\n{text}"


def plist_of(service: Service, label: str) -> str:
    """The whole launchd file."""
    import plistlib

    log = str(service.home / "logs" / "daemon.out")
    document = {
        "Label": label,
        "ProgramArguments": list(service.argv),
        "RunAtLoad": True,
        # Any end but a wanted one, 42 too.
        "KeepAlive": {"SuccessfulExit": False},
        "ExitTimeOut": 60,
        "Umask": 0o077,
        "StandardOutPath": log,
        "StandardErrorPath": log,
    }
    text = plistlib.dumps(document).decode()
    first, _, rest = text.partition("\n")
    return f"{first}\n{PLIST_MARK}{_sum(rest)} -->\n{rest}"


def judged(content: str | None, wanted: str) -> UnitState:
    """Compare the ``content`` of a file (None: there is none) with the text that would be
    written."""
    if content is None:
        return UnitState.NOTHING
    if content == wanted:
        return UnitState.SAME
    return UnitState.OURS if is_ours(content) else UnitState.FOREIGN


def is_ours(content: str) -> bool:
    """Whether the file is as ``install`` wrote it: its first lines tell the sum of the others."""
    if content.startswith(MARK):
        first, _, rest = content.partition("\n")
        return first == f"{MARK}{_sum(rest)}"
    _, _, tail = content.partition("\n")
    first, _, rest = tail.partition("\n")
    return first == f"{PLIST_MARK}{_sum(rest)} -->"


def argv_in(content: str) -> tuple[str, ...]:
    """The command line of a unit that we wrote; empty if it names none."""
    for line in content.split("\n"):
        if line.startswith("ExecStart="):
            return tuple(unquoted(line.removeprefix("ExecStart=")))
    if PLIST_MARK in content:
        import plistlib

        try:
            return tuple(map(str, plistlib.loads(content.encode())["ProgramArguments"]))
        except (KeyError, ValueError, plistlib.InvalidFileException):
            return ()
    return ()


def quoted(word: str) -> str:
    """One word of a command line in a unit (systemd.syntax(7), systemd.service(5)).

    Raises ``CommandFailed`` for a word with a line end or another control character.
    """
    if any(ord(char) < 32 or ord(char) == 127 for char in word):
        raise CommandFailed(f"the path {word!r} has a control character; a unit can't name it")
    plain = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return plain if re.fullmatch(r"[A-Za-z0-9_@/.,:=+%$-]+", word) else f'"{plain}"'


def unquoted(line: str) -> Sequence[str]:
    """The words that ``quoted`` wrote, one after the other."""
    found = re.findall(r'"((?:[^"\\]|\\.)*)"|(\S+)', line)
    words = [re.sub(r"\\(.)", r"\1", inside) if inside else plain for inside, plain in found]
    return [word.replace("%%", "%").replace("$$", "$") for word in words]


def complaints(argv: Sequence[str], service: Service, exists: bool) -> list[str]:
    """Problems of an installed service's command line, for this home and program.

    ``exists``: whether its program is there and may be executed.
    """
    if not argv:
        return ["the unit names no program"]
    found = []
    if not exists:
        found.append(f"its program {argv[0]} is gone")
    elif tuple(argv[: len(service.program)]) != service.program:
        found.append(f"it starts {argv[0]}, and this command is {service.program[0]}")
    home = argv[argv.index("--home") + 1] if "--home" in argv[:-1] else ""
    if home != str(service.home):
        found.append(f"it runs the home {home or 'of its environment'}, not {service.home}")
    return found


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
