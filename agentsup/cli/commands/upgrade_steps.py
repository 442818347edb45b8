"""The steps of an upgrade. All that is needed once files were exchanged is imported here at once.

The environment is copied by hard links, which an installer never writes into: to go back is to
rename two folders. Programs are started in sessions of their own, since a daemon outlives us.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from agentsup.cli.archives.home import HOME, replace_home, room_for
from agentsup.cli.commands.background import looks
from agentsup.cli.commands.installed import NAME, Installation
from agentsup.cli.connect.failure import CommandFailed
from agentsup.config import Home
from agentsup.kit.archive.unpacking import check
from agentsup.kit.clock import SystemClock
from agentsup.kit.detached import exit_code_of, start_detached
from agentsup.kit.files import HomeLock
from agentsup.model.errors import SchemaTooNew
from agentsup.store import restoring

INSTALL_S: Final = 900.0
COMMAND_S: Final = 240.0
_WHEEL: Final = re.compile(rf"{NAME}-([0-9][0-9A-Za-z.]*)-py3-none-any\.whl")
_CHANGES: Final = f"{NAME}/CHANGELOG.md"
_MAX_CHANGES: Final = 4 * 1024**2
_SECTION: Final = re.compile(r"^## \[([^\]]+)\]", re.MULTILINE)
_TAIL: Final = 2000


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
