"""The file of a service: its path and its content."""

from __future__ import annotations

import os
import pwd
import re
import sys
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from agentsup.cli.connect.failure import CommandFailed
from agentsup.cli.connect.locate import DaemonLocation
from agentsup.cli.service.systemd import is_macos
from agentsup.cli.service.unit import Service, UnitState, judged, name_of, plist_of, unit_of
from agentsup.config import Home

_SYSTEM_UNITS = Path("/etc/systemd/system")


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
        try:
            return self.path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CommandFailed(f"{self.path} can't be read: {error.strerror}") from None

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
