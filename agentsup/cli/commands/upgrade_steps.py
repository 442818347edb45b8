"""This installation, and the steps of its upgrade. All that is needed once files were exchanged is
imported here at once.

The environment is copied by hard links, which an installer never writes into: to go back is to
rename two folders. Programs are started in sessions of their own, since a daemon outlives us.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Final

from agentsup import __version__
from agentsup.cli.archives.home import HOME, replace_home, room_for
from agentsup.cli.commands.background import STOP_S, answering, looks, stop_daemon
from agentsup.cli.commands.backups import back_up_home
from agentsup.cli.connect.failure import CommandFailed, DaemonUnreachable
from agentsup.cli.connect.keeping import port_for_restart
from agentsup.cli.connect.locate import DaemonLocation
from agentsup.cli.output.options import go_on
from agentsup.cli.output.show import CommandOutput
from agentsup.config import Home
from agentsup.kit.archive.contents import ArchiveRefused
from agentsup.kit.archive.unpacking import check
from agentsup.kit.clock import SystemClock
from agentsup.kit.detached import exit_code_of, start_detached
from agentsup.kit.files import HomeLock, HomeLocked
from agentsup.model.errors import AgentsupError, SchemaTooNew
from agentsup.store import restoring, stamp

NAME: Final = "agentsup"
_DISTRIBUTION: Final = re.compile(r"[\w.-]+")
"""The name at the beginning of a requirement."""
_OF_IMAGE: Final = "bin/entrypoint.sh"
"""A file that only the container image has beside the interpreter."""
INSTALL_S: Final = 900.0
COMMAND_S: Final = 240.0
_WHEEL: Final = re.compile(rf"{NAME}-([0-9][0-9A-Za-z.]*)-py3-none-any\.whl")
_CHANGES: Final = f"{NAME}/CHANGELOG.md"
_MAX_CHANGES: Final = 4 * 1024**2
_SECTION: Final = re.compile(r"^## \[([^\]]+)\]", re.MULTILINE)
_TAIL: Final = 2000


@dataclass(frozen=True, slots=True)
class Installation:
    """One way of installing."""

    way: str
    """In words."""
    upgrade: tuple[str, ...]
    """The command that brings the newest version; empty if only a person can do it."""
    advice: str
    """The way to upgrade by hand, if ``upgrade`` is empty."""
    removal: str
    """The way to remove the program."""
    takes_wheel: tuple[str, ...] = ()
    """The command that installs the wheel that is put after it, in place of this version."""


def installation() -> Installation:
    """The installation that runs this code. Reads files, starts nothing."""
    prefix = Path(sys.prefix)
    extras = _extras()
    wanted = f"{NAME}[{','.join(extras)}]" if extras else NAME
    if (source := _source()) is not None:
        return Installation(
            f"a checkout ({source})",
            (),
            f"git -C {source} pull && make -C {source} setup",
            "remove the checkout",
        )
    if (prefix / _OF_IMAGE).exists():
        return Installation(
            "a container",
            (),
            "docker compose pull && docker compose up -d (or build the image anew); the home is a volume",
            "docker compose down",
        )
    if (prefix / "pipx_metadata.json").is_file() and (pipx := shutil.which("pipx")):
        return Installation(
            "pipx", (pipx, "upgrade", NAME), "", f"pipx uninstall {NAME}", _pip() or ()
        )
    if (prefix / "uv-receipt.toml").is_file() and (uv := shutil.which("uv")):
        return Installation(
            "uv tool", (uv, "tool", "upgrade", NAME), "", f"uv tool uninstall {NAME}", _pip() or ()
        )
    if sys.prefix != sys.base_prefix and (pip := _pip()) is not None:
        return Installation(
            f"pip in {prefix}",
            (*pip, wanted),
            "",
            f"{sys.executable} -m pip uninstall {NAME}",
            pip,
        )
    return Installation(
        f"Python at {prefix}",
        (),
        f"upgrade {wanted} with what installed it",
        f"remove {NAME} with what installed it",
    )


def _pip() -> tuple[str, ...] | None:
    """The command that installs into this environment, without what is installed."""
    if _found("pip") is not None:
        return (sys.executable, "-m", "pip", "install", "--upgrade", "--no-input")
    if (uv := shutil.which("uv")) is not None:
        return (uv, "pip", "install", "--python", sys.executable, "--upgrade")
    return None


def _found(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def _source() -> str | None:
    """The folder of a checkout that is used as it is."""
    ours = _found(NAME)
    if ours is None:
        return str(Path(__file__).parents[3])
    try:
        recorded = json.loads(ours.read_text("direct_url.json") or "{}")
    except ValueError:
        return None
    is_editable = isinstance(recorded, dict) and recorded.get("dir_info", {}).get("editable")
    return str(recorded.get("url", "")).removeprefix("file://") if is_editable else None


def _extras() -> list[str]:
    """The optional parts that are installed, so that an upgrade has them too."""
    ours = _found(NAME)
    if ours is None:
        return []
    found = []
    for extra in ours.metadata.get_all("Provides-Extra") or ():
        needs = [
            _DISTRIBUTION.findall(line)[0]
            for line in ours.requires or ()
            if f"extra == '{extra}'" in line.replace('"', "'")
        ]
        if extra != "all" and needs and all(map(_found, needs)):
            found.append(extra)
    return found


class StepFailed(Exception):
    """A program ended with an error; the text is the end of what it said."""


def ran(argv: tuple[str, ...], log: Path, limit_s: float) -> None:
    """Run a program with this environment to its end. Raises ``StepFailed``."""
    begin = log.stat().st_size if log.exists() else 0
    env = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    try:
        pid = start_detached(argv, env=env, log=log)
    except OSError as error:
        raise StepFailed(f"{argv[0]} can't be started: {error.strerror}") from None
    for _ in looks(limit_s):
        if (code := exit_code_of(pid)) is not None:
            if code:
                raise StepFailed(f"`{' '.join(argv)}` ended with {code}: {_said(log, begin)}")
            return
    raise StepFailed(f"`{' '.join(argv)}` did not end within {limit_s:g} s")


def _said(log: Path, begin: int) -> str:
    with log.open("rb") as file:
        file.seek(max(begin, file.seek(0, 2) - _TAIL))
        return file.read(_TAIL).decode("utf-8", "replace").strip() or "it said nothing"


# -- what is new -----------------------------------------------------------------------------------


def fetched(way: Installation, into: Path, log: Path) -> Path | None:
    """The newest wheel from the index; None where the installer can't fetch one by itself. Raises
    ``StepFailed``."""
    if not way.takes_wheel or "pip" not in way.takes_wheel or "-m" not in way.takes_wheel:
        return None
    ran(
        (sys.executable, "-m", "pip", "download", "--no-deps", "-d", str(into), NAME),
        log,
        COMMAND_S,
    )
    return next(iter(into.glob("*.whl")), None)


def version_of(wheel: Path) -> str:
    """The version that a wheel's name tells. Raises ``CommandFailed``."""
    found = _WHEEL.fullmatch(wheel.name)
    if found is None or not wheel.is_file():
        raise CommandFailed(f"{wheel} is no wheel of {NAME}")
    return found[1]


def news(wheel: Path, since: str) -> Iterator[str]:
    """The sections of the changelog in a wheel that are newer than the version ``since``."""
    try:
        with zipfile.ZipFile(wheel) as files, files.open(_CHANGES) as file:
            text = file.read(_MAX_CHANGES).decode("utf-8", "replace")
    except (KeyError, OSError, zipfile.BadZipFile):
        return
    starts = list(_SECTION.finditer(text))
    for found, after in zip(starts, [*starts[1:], None], strict=True):
        if found[1] == since:
            return
        section = text[found.start() : after.start() if after else len(text)].strip()
        if "\n" in section:
            yield section


# -- the environment -------------------------------------------------------------------------------


class Environment:
    """The folder of the installation, with a copy of it while an upgrade may fail."""

    def __init__(self) -> None:
        self.prefix = Path(sys.prefix)
        self.python = str(self.prefix / "bin" / Path(sys.executable).name)
        self._copy = self.prefix.with_name(f".{self.prefix.name}.before-upgrade")
        self._failed = self.prefix.with_name(f".{self.prefix.name}.failed-upgrade")

    def interrupted(self) -> str:
        """A text about an upgrade that was killed, and what to do; empty if there was none."""
        if not self._copy.exists():
            return ""
        return (
            f"an upgrade was interrupted; the version of before lies in {self._copy}. If agentsup works, "
            f"remove that folder; else put it in place of {self.prefix}"
        )

    def copy(self) -> None:
        """Copy it by links. Raises ``OSError``."""
        shutil.rmtree(self._copy, ignore_errors=True)
        shutil.copytree(self.prefix, self._copy, symlinks=True, copy_function=os.link)

    def go_back(self) -> None:
        """Put the copy in its place. Raises ``OSError``."""
        shutil.rmtree(self._failed, ignore_errors=True)
        if self.prefix.exists():
            self.prefix.rename(self._failed)
        self._copy.rename(self.prefix)
        shutil.rmtree(self._failed, ignore_errors=True)

    def forget(self) -> None:
        """Remove the copy."""
        shutil.rmtree(self._copy, ignore_errors=True)

    def command(self, home: Home, *words: str) -> tuple[str, ...]:
        """A command line of the version that is installed now."""
        return (self.python, "-m", NAME, "--home", str(home.root), *words)


def started(environment: Environment, home: Home, log: Path, port: int | None) -> None:
    """Start the daemon of the version that is installed now. Raises ``StepFailed``."""
    words = ("up", "--no-chat", *(() if port is None else ("--port", str(port))))
    ran(environment.command(home, *words), log, COMMAND_S)


def healthy(
    environment: Environment, home: Home, log: Path, agents: int, version: str, port: int | None
) -> None:
    """Start the daemon of the new version and see that it is ready, with as many agents as before.
    Raises ``StepFailed``."""
    started(environment, home, log, port)
    with tempfile.TemporaryDirectory(prefix="agentsup-") as folder:
        output = Path(folder) / "status"
        ran(environment.command(home, "status", "--json"), output, COMMAND_S)
        try:
            status: dict[str, Any] = json.loads(output.read_bytes())
        except ValueError:
            raise StepFailed("the new daemon's status can't be read") from None
    if version and status.get("version") != version:
        raise StepFailed(f"the daemon that runs is of {status.get('version')}, not {version}")
    if not status.get("ready") or int(status.get("agents_up") or 0) < agents:
        raise StepFailed(
            f"only {status.get('agents_up')} of {agents} agents are up, or it is not ready"
        )


def recover_store(home: Home, backup: Path) -> Path | None:
    """Put the backup in place if the new version has changed the store, which the old one can't read
    then; returns where the changed one lies. Raises ``OSError``, ``ArchiveRefused``, ``HomeLocked``."""
    if not home.state_db.exists() or not backup.exists():
        return None
    with HomeLock(home.lock):
        try:
            restoring.schema_of(home.state_db)
        except SchemaTooNew:
            contents = check(backup, limit=room_for(home))
            assert contents.facts.get("kind") == HOME
            return replace_home(home, backup, contents, at_ms=SystemClock().now_ms())
    return None


# -- all of it -------------------------------------------------------------------------------------


def install(
    location: DaemonLocation,
    screen: CommandOutput,
    argv: tuple[str, ...],
    version: str,
    *,
    yes: bool,
) -> None:
    """Install the new version with ``argv``; back to this one if it does not work. Raises
    ``CommandFailed``."""
    home, environment = location.home, Environment()
    if problem := environment.interrupted():
        raise CommandFailed(f"{problem}. Nothing was changed")
    running = answering(location)
    agents = int(running.get("/status")["agents_up"]) if running else 0
    port = port_for_restart(location, None) if running else None
    backup = home.backups / f"before-upgrade-{stamp(SystemClock().now_ms())}.tar.gz"
    screen.prose(
        f"The home goes into {backup}"
        + (", the daemon ends and starts again" if running else "")
        + f", and this runs: {' '.join(argv)}"
    )
    go_on(yes=yes)
    if home.root.is_dir():
        home.backups.mkdir(mode=0o700, exist_ok=True)
        back_up_home(location, backup, screen)
    log = (home.logs if home.logs.is_dir() else environment.prefix) / "upgrade.out"
    try:
        environment.copy()
    except OSError as error:
        environment.forget()
        raise CommandFailed(f"{environment.prefix} can't be copied: {error}") from None
    if running:
        stop_daemon(location, STOP_S)
        screen.say("ended the daemon")
    try:
        ran(argv, log, INSTALL_S)
        ran(environment.command(home, "version"), log, INSTALL_S)
        if running:
            healthy(environment, home, log, agents, version, port)
    except StepFailed as failure:
        _go_back(location, screen, environment, backup, port, was_running=running is not None)
        raise CommandFailed(
            f"the new version does not work, and {__version__} is back: {failure} (all of it in {log})"
        ) from None
    environment.forget()
    screen.say(f"agentsup {version or 'in its newest version'} is installed.")
    if running:
        screen.say("The daemon is up, with all its agents.")


def _go_back(
    location: DaemonLocation,
    screen: CommandOutput,
    environment: Environment,
    backup: Path,
    port: int | None,
    *,
    was_running: bool,
) -> None:
    with contextlib.suppress(DaemonUnreachable):
        stop_daemon(location, STOP_S)
    try:
        environment.go_back()
        aside = recover_store(location.home, backup)
    except (OSError, ArchiveRefused, HomeLocked, AgentsupError) as error:
        raise CommandFailed(
            f"the new version does not work, and going back failed: {error}. "
            f"{environment.interrupted() or 'The program of before is back'}; "
            f"`{location.command(f'restore {backup}')}` puts the home back"
        ) from None
    if aside is not None:
        screen.prose(
            f"The new version had changed the store, which is put back from {backup}. The changed one, "
            f"with what came since, lies in {aside}."
        )
    if was_running:
        started(environment, location.home, location.home.logs / "upgrade.out", port)
        screen.say(f"agentsup {__version__} runs again.")
