"""The file of a service: the text that ``install`` writes, its path, and what a file there is to it."""

from __future__ import annotations

import hashlib
import os
import pwd
import re
import sys
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from importlib.resources import files
from pathlib import Path
from typing import Final

from agentsup.cli.connect.failure import CommandFailed, failing_as
from agentsup.cli.connect.locate import DaemonLocation
from agentsup.cli.service.systemd import is_macos
from agentsup.config import Home

MARK: Final = "# Written by `agentsup service install`, sha256 "
"""Begins the first line of a unit; the sum of all other lines follows."""
PLIST_MARK: Final = "<!-- Written by `agentsup service install`, sha256 "
_EXEC: Final = "%h/.local/bin/agentsup run"
_ENVIRONMENT: Final = "EnvironmentFile=-%h/.config/agentsup/environment\n"
_WANTED: Final = "WantedBy=default.target"
_SYSTEM_UNITS = Path("/etc/systemd/system")


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


@dataclass(frozen=True, slots=True)
class ServiceFile:
    """The file of one home's service."""

    service: Service
    name: str
    path: Path
    wanted: str
    """The text that ``install`` writes."""
    is_system: bool

    @property
    def unit(self) -> str:
        """The unit's name for systemd."""
        return f"{self.name}.service"

    def content(self) -> str | None:
        """The content of the file; None if there is none. Raises ``CommandFailed``."""
        with failing_as(f"{self.path} can't be read"), suppress(FileNotFoundError):
            return self.path.read_text(encoding="utf-8", errors="replace")
        return None

    def found(self) -> UnitState:
        """The state of the file now."""
        return judged(self.content(), self.wanted)


def file_of(
    location: DaemonLocation, *, is_system: bool, user: str | None, is_home_given: bool
) -> ServiceFile:
    """The service's file for a home. Raises ``CommandFailed``."""
    root, runs_as = location.home.root, ""
    default = Home.resolve(None, {}).root
    if is_system:
        runs_as = user or os.environ.get("SUDO_USER", "")
        try:
            entry = pwd.getpwnam(runs_as)
        except KeyError:
            raise CommandFailed(
                f"there is no user {runs_as!r} here"
                if runs_as
                else "say who the service runs as, with --as USER"
            ) from None
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", runs_as):
            raise CommandFailed(f"a unit can't name the user {runs_as!r}")
        default = Path(entry.pw_dir) / ".agentsup"
        root = root if is_home_given else default
    service = Service(program(), root, runs_as)
    name = name_of(root, default)
    if is_macos():
        folder, label = Path.home() / "Library" / "LaunchAgents", f"local.{name}"
        return ServiceFile(
            service, label, folder / f"{label}.plist", plist_of(service, label), False
        )
    folder = _SYSTEM_UNITS if is_system else user_units()
    return ServiceFile(
        service, name, folder / f"{name}.service", unit_of(service, template()), is_system
    )


def installed_unit(home: Home) -> Path | None:
    """The unit of a person's own service of ``home``, if there is one."""
    path = user_units() / f"{name_of(home.root, Home.resolve(None, {}).root)}.service"
    return path if path.is_file() else None


def user_units() -> Path:
    """The folder of a person's own units."""
    given = os.environ.get("XDG_CONFIG_HOME", "")
    config = Path(given) if given.startswith("/") else Path.home() / ".config"
    return config / "systemd" / "user"


def template() -> str:
    """The unit that the package ships."""
    return files("agentsup.cli.service").joinpath("agentsup.service").read_text(encoding="utf-8")


def program() -> tuple[str, ...]:
    """The command of this installation: the script beside our interpreter, which an upgrade keeps."""
    script = Path(sys.executable).with_name("agentsup")
    if os.access(script, os.X_OK):
        return (str(script),)
    return (sys.executable, "-P", "-m", "agentsup")
