"""The homes of programs: one per agent, kind of program and person it works for.

Kinds of programs do not share a home: a program obeys the settings in its home, and a coding
agent's data there belongs to it alone. Persons do not share one either: the sessions in it hold
what a person has said. Files are taken out of a home by one rename and deleted in steps afterwards,
since a program may have put any number of them there.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from agentsup.engines.programs.cli_agent_policies import (
    KINDS,
    MOVED_BY,
    UNKNOWN,
    AgentSettings,
    filled,
)
from agentsup.kit.safe_files import GuardedFolder, names_of
from agentsup.model.engine import EngineSpec
from agentsup.model.principal import is_one_persons

_LISTED = 1000
_HOMES = "engine-home"
_EXEC_HOME = "exec-home"
_SETTINGS = "engine-settings"
_TURN_FILES = "engine-turns"
_REMOVED = "removed"
_PERSONS = "persons"
_UNFINISHED = ".part"
COMMAND = "command"
ACP = "acp"
_HOMES_OF = {*KINDS, COMMAND, ACP}
_XDG = {
    "XDG_CONFIG_HOME": ".config",
    "XDG_DATA_HOME": ".local/share",
    "XDG_STATE_HOME": ".local/state",
    "XDG_CACHE_HOME": ".cache",
}


@dataclass(frozen=True, slots=True)
class Removed:
    """A folder that no program reaches, on the disk of the agent's folder. All methods block and
    raise ``OSError``."""

    path: Path

    def take(self, folder: GuardedFolder, name: str) -> str:
        """Move the entry ``name`` of ``folder`` here and return "".

        If ``folder`` is on another disk, the entry is renamed there and its new name returned.
        """
        trash = GuardedFolder(self.path)
        trash.make(mode=0o700)
        here = next(str(number) for number in count(1) if not trash.has(str(number)))
        try:
            folder.move_out(name, trash, here)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            return folder.set_aside(name)
        return ""

    def is_empty(self) -> bool:
        """Whether nothing is left to remove."""
        try:
            return not GuardedFolder(self.path).list("", 1)[0]
        except FileNotFoundError:
            return True

    def purge(self, steps: int) -> bool:
        """Delete at most ``steps`` files and directories; True if there are more."""
        left = iter(range(steps))
        try:
            entries, has_more = GuardedFolder(self.path).list("", _LISTED)
        except FileNotFoundError:
            return False
        for name, _ in entries:
            if not GuardedFolder(self.path).remove_tree(name, lambda: next(left, None) is not None):
                return True
        return has_more


@dataclass(frozen=True, slots=True)
class ProgramHome:
    """The paths of a program. ``path``: its home, made if missing; ``opened``: further paths that
    it may use; ``shown``: paths that it may read."""

    path: Path
    opened: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()


def homes_folder(workspace: Path, person: str) -> Path:
    """Return the folder of the homes that an agent's programs have in work for ``person``.

    It is beside the workspace, so that no file tool reaches it. Work for operators and work for
    no person share one folder.
    """
    beside = workspace.parent
    if not is_one_persons(person):
        return beside
    # Not a part of the path itself: the name of a person may have any characters.
    return beside / _PERSONS / hashlib.sha256(person.encode("utf-8", "replace")).hexdigest()[:32]


def exec_home(workspace: Path, person: str) -> Path:
    """Return the home of programs that ``exec`` starts in work for ``person``."""
    return homes_folder(workspace, person) / _EXEC_HOME


@dataclass(frozen=True, slots=True)
class EngineHome:
    """The home of one agent's engine in work for ``person``. ``kind``: the kind of program;
    ``user``: the home of the daemon's user, which the program has if not ``is_private``."""

    workspace: Path
    kind: str
    settings: AgentSettings = UNKNOWN
    user: str = ""
    is_private: bool = True
    person: str = ""
    agent: str = ""

    @classmethod
    def of(
        cls,
        spec: EngineSpec,
        kind: str,
        settings: AgentSettings = UNKNOWN,
        *,
        is_private: bool = True,
    ) -> EngineHome:
        """Return the home for ``spec``; ``kind`` counts if ``settings`` name none."""
        return cls(
            Path(spec.workspace),
            settings.kind or kind,
            settings,
            spec.env.get("HOME", ""),
            is_private,
            spec.person,
            spec.agent,
        )

    @property
    def path(self) -> Path:
        """The folder with the program's own files."""
        return homes_folder(self.workspace, self.person) / _HOMES / self.kind

    @property
    def turn_files(self) -> Path:
        """The folder of files for programs of single turns. They can read only files, not it."""
        return self.workspace.parent / _TURN_FILES

    @property
    def removed(self) -> Removed:
        """The folder for files that are taken out of homes."""
        return Removed(self.workspace.parent / _REMOVED)

    @property
    def shown(self) -> Path:
        """The directory of settings that we write and the program reads."""
        return homes_folder(self.workspace, self.person) / _SETTINGS / self.kind

    @property
    def paths(self) -> ProgramHome:
        """The paths that the program may use."""
        known = [self.settings] if self.settings.kind else list(KINDS.values())
        keeps = [name for each in known for name in each.keeps] if not self.is_private else []
        installed = [name for each in known for name in each.installed]
        return ProgramHome(
            self.path,
            opened=tuple(str(Path(self.user, name)) for name in keeps),
            shown=(str(self.shown), *(str(Path(self.user, name)) for name in installed)),
        )

    def variables(self, env: Mapping[str, str], extra: Mapping[str, str]) -> dict[str, str]:
        """Return the program's environment: ``env``, our settings and its home, then ``extra``."""
        found = dict(env)
        settings = self.settings
        found |= {name: self._filled(value) for name, value in settings.env.items()}
        if self.is_private:
            found |= home_variables(self.path)
            found |= {name: self._filled(value) for name, value in settings.private_env.items()}
        else:
            # Of the user's home it can write its own files alone. Caches of what it starts go here.
            caches = {"XDG_CACHE_HOME": ".cache", "npm_config_cache": ".npm"}
            found |= {name: str(self.path / below) for name, below in caches.items()}
        return found | dict(extra)

    def arguments(self) -> tuple[str, ...]:
        """Return the arguments that are added to its command line."""
        return tuple(map(self._filled, self.settings.args))

    def lay(self) -> list[str]:
        """Make the home, write our settings there and remove others; blocks.

        Returns what was removed or renamed because it could change permissions or hooks, each as
        the end of a sentence. Raises ``OSError`` if that fails: the program must not run then.
        """
        adopt(self.path, self.settings)
        _make(self.path)
        if not self.is_private:
            self._begin_user_folders()
        if self.settings.shown:
            _make(self.shown)
            shown = GuardedFolder(self.shown)
            for name, text in self.settings.shown.items():
                shown.renew(name, self._filled(text).encode(), mode=0o600)
        return [*self._cleaned(), *self.set_aside()]

    def _begin_user_folders(self) -> None:
        """Make the program's own folders in the user's home: the fence opens only what exists."""
        for name in self.settings.keeps:
            if not Path(name).suffix and Path(self.user).is_dir():
                # A home that can't be written is the program's to report.
                with contextlib.suppress(OSError):
                    _make(Path(self.user, name))

    def clear_turn_files(self) -> None:
        """Remove the files of all turns of this agent; blocks, raises ``OSError``."""
        beside = GuardedFolder(self.turn_files.parent)
        if beside.has(self.turn_files.name):
            self.removed.take(beside, self.turn_files.name)

    def set_aside(self) -> list[str]:
        """Rename files of the workspace that the coding agent would read as settings; blocks.

        A program or a repository may have put them there. Returns as ``lay`` does.
        """
        folder = GuardedFolder(self.workspace)
        return [
            f"{taken} of the workspace is now {folder.set_aside(taken)}"
            for name in self.settings.project
            if (taken := _taken(folder, name))
        ]

    def _cleaned(self) -> list[str]:
        """Write our settings into a private home and remove others; returns as ``lay`` does."""
        if not self.is_private:
            return []
        home, notices = GuardedFolder(self.path), []
        for name in self.settings.unwanted:
            if taken := _taken(home, name):
                aside = self.removed.take(home, taken)
                notices.append(
                    f"{taken} of its home is now {aside}"
                    if aside
                    else f"{taken} was removed from its home"
                )
        for name, text in self.settings.written.items():
            if (taken := _taken(home, name)) and taken != name:
                self.removed.take(home, taken)
            home.renew(name, text.encode(), mode=0o600)
        return notices

    def _filled(self, text: str) -> str:
        return filled(text, settings=str(self.shown), workspace=str(self.workspace))


def coding_agent_folders(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return where coding agents keep the sign-ins, sessions and settings of the daemon's user.

    These are paths in the user's home, or elsewhere if ``environ`` says so. They are for no program
    but an agent that has that home.
    """
    user = environ.get("HOME", "")
    keeps = [name for each in KINDS.values() for name in each.keeps]
    folders = [str(Path(user, name)) for name in keeps] if user.startswith("/") else []
    for variable, below in _XDG.items():
        base, own = environ.get(variable, ""), f"{below}/"
        if base.startswith("/"):
            folders += [
                f"{base}/{name.removeprefix(own)}" for name in keeps if name.startswith(own)
            ]
    folders += [path for each in MOVED_BY if (path := environ.get(each, "")).startswith("/")]
    return tuple(dict.fromkeys(folders))


def home_variables(home: Path) -> dict[str, str]:
    """Return the variables that give a program its own home."""
    return {"HOME": str(home), **{name: str(home / below) for name, below in _XDG.items()}}


def adopt(home: Path, settings: AgentSettings) -> None:
    """Move files, such as sessions, from an earlier version's one home of all engines to ``home``.

    Blocks. Does nothing if ``home`` is there. A known kind gets its own files; an unknown one gets
    those that belong to no known kind. Programs could write there, so a link or a file where a home
    belongs is renamed.
    """
    shared = home.parent
    if not shared.is_dir() or _is_folder(shared, home.name):
        return
    # A home gets its name only when it is complete: after a crash the move is continued.
    unfinished = shared / f"{home.name}{_UNFINISHED}"
    _is_folder(shared, unfinished.name)
    _make(unfinished)
    source, target = GuardedFolder(shared), GuardedFolder(unfinished)
    for name in settings.keeps if settings.kind else _others(shared):
        *way, last = names_of(name)
        with (
            contextlib.suppress(FileNotFoundError, NotADirectoryError),
            source.directory(way) as old,
            target.directory(way, make=True, mode=0o700) as new,
        ):
            os.rename(last, last, src_dir_fd=old, dst_dir_fd=new)
    unfinished.rename(home)


def _is_folder(shared: Path, name: str) -> bool:
    """Whether there is a directory of that name; anything else of that name is renamed."""
    folder = GuardedFolder(shared)
    try:
        mode = folder.stat(name).st_mode
    except FileNotFoundError:
        return False
    if not stat.S_ISDIR(mode):
        folder.set_aside(name)
        return False
    return True


def _others(shared: Path) -> Iterable[str]:
    own = {name.partition("/")[0] for each in KINDS.values() for name in each.keeps}
    entries = [entry.name for entry in shared.iterdir()]
    used = {name for name in own if name in entries and _is_agents(shared, name)}
    return [
        each for each in entries if each not in used | _HOMES_OF and not each.endswith(_UNFINISHED)
    ]


def _is_agents(shared: Path, top: str) -> bool:
    keeps = (name for each in KINDS.values() for name in each.keeps)
    return any(name.partition("/")[0] == top and os.path.lexists(shared / name) for name in keeps)


def _taken(folder: GuardedFolder, name: str) -> str:
    """Return ``name`` if it exists, or the part of its path that is no directory; else ""."""
    parts = names_of(name)
    for depth in range(1, len(parts) + 1):
        path = "/".join(parts[:depth])
        try:
            mode = folder.stat(path).st_mode
        except FileNotFoundError:
            return ""
        if depth < len(parts) and not stat.S_ISDIR(mode):
            return path
    return name


def _make(path: Path) -> None:
    GuardedFolder(path).make(mode=0o700)
