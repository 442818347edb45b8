"""The homes of programs: one for each kind of program of an agent and each person it works for, and
what lies in them.

No two kinds share one: what a program reads in its home it takes orders from, and what a coding agent
keeps there is nobody else's. Nor do two persons: its sessions hold what a person has said.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from agentsup.engines.agent_settings import KINDS, UNKNOWN, AgentSettings, filled
from agentsup.engines.child.removed import Removed
from agentsup.kit.planted import Folder, names_of
from agentsup.model.engine import EngineSpec
from agentsup.model.principal import is_one_persons

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
class ProgramHome:
    """Where a program's own files are. ``path`` is made where it is missing; ``opened`` are further
    places of its own, ``shown`` those it may read."""

    path: Path
    opened: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()


def homes_folder(workspace: Path, person: str) -> Path:
    """The folder of the homes that an agent's programs have in the work of ``person``: beside the
    workspace, so that no file tool reaches it. The operators' work and nobody's is done in the same."""
    beside = workspace.parent
    if not is_one_persons(person):
        return beside
    # No part of a path: whoever names people may use any characters.
    return beside / _PERSONS / hashlib.sha256(person.encode("utf-8", "replace")).hexdigest()[:32]


def exec_home(workspace: Path, person: str) -> Path:
    """The home of what ``exec`` starts in the work of ``person``."""
    return homes_folder(workspace, person) / _EXEC_HOME


@dataclass(frozen=True, slots=True)
class EngineHome:
    """The home that one agent's engine has in the work of ``person``. ``kind`` is that of the
    program; ``user`` is the home of the daemon's user, which the program has instead of its own
    unless ``is_private``."""

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
        """The home for ``spec``; ``kind`` where ``settings`` name none."""
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
        """Where the program's own files are."""
        return homes_folder(self.workspace, self.person) / _HOMES / self.kind

    @property
    def turn_files(self) -> Path:
        """For what a single turn's program may read, file by file; no program reaches the folder."""
        return self.workspace.parent / _TURN_FILES

    @property
    def removed(self) -> Removed:
        """Where that goes which is taken out of homes."""
        return Removed(self.workspace.parent / _REMOVED)

    @property
    def shown(self) -> Path:
        """What we write for the program to read."""
        return homes_folder(self.workspace, self.person) / _SETTINGS / self.kind

    @property
    def place(self) -> ProgramHome:
        """What the program reaches."""
        known = [self.settings] if self.settings.kind else list(KINDS.values())
        keeps = [name for each in known for name in each.keeps] if not self.is_private else []
        installed = [name for each in known for name in each.installed]
        return ProgramHome(
            self.path,
            opened=tuple(str(Path(self.user, name)) for name in keeps),
            shown=(str(self.shown), *(str(Path(self.user, name)) for name in installed)),
        )

    def variables(self, env: Mapping[str, str], extra: Mapping[str, str]) -> dict[str, str]:
        """The environment of the program: ``env``, its home, our switches, ``extra`` over all."""
        found = dict(env)
        settings = self.settings
        found |= {name: self._filled(value) for name, value in settings.env.items()}
        if self.is_private:
            found |= home_variables(self.path)
            found |= {name: self._filled(value) for name, value in settings.private_env.items()}
        return found | dict(extra)

    def arguments(self) -> tuple[str, ...]:
        """What is added to its command line."""
        return tuple(map(self._filled, self.settings.args))

    def lay(self) -> list[str]:
        """Make the home, put our settings there and take away what is not ours; blocks.

        Returns what was removed or set aside because it could steer permissions or hooks, each as a
        sentence's end. Raises ``OSError`` where that can't be done: the program must not run then.
        """
        adopt(self.path, self.settings)
        _make(self.path)
        if self.settings.shown:
            _make(self.shown)
            shown = Folder(self.shown)
            for name, text in self.settings.shown.items():
                shown.renew(name, self._filled(text).encode(), mode=0o600)
        return [*self._cleaned(), *self.set_aside()]

    def clear_turn_files(self) -> None:
        """Take away the files of all turns of this agent; blocks, raises ``OSError``."""
        beside = Folder(self.turn_files.parent)
        if beside.has(self.turn_files.name):
            self.removed.take(beside, self.turn_files.name)

    def set_aside(self) -> list[str]:
        """Give what a program or a repository put into the workspace another name, where it would
        steer the agent; blocks."""
        folder = Folder(self.workspace)
        return [
            f"{taken} of the workspace is now {folder.set_aside(taken)}"
            for name in self.settings.project
            if (taken := _taken(folder, name))
        ]

    def _cleaned(self) -> list[str]:
        """Our settings in its own home, and nothing else of the kind."""
        if not self.is_private:
            return []
        home, told = Folder(self.path), []
        for name in self.settings.unwanted:
            if taken := _taken(home, name):
                aside = self.removed.take(home, taken)
                told.append(
                    f"{taken} of its home is now {aside}"
                    if aside
                    else f"{taken} was removed from its home"
                )
        for name, text in self.settings.written.items():
            if (taken := _taken(home, name)) and taken != name:
                self.removed.take(home, taken)
            home.renew(name, text.encode(), mode=0o600)
        return told

    def _filled(self, text: str) -> str:
        return filled(text, settings=str(self.shown), workspace=str(self.workspace))


def agents_places(user: str) -> tuple[str, ...]:
    """What coding agents keep in the home ``user``: their sign-ins, sessions and settings, for no
    program but an agent that has that home."""
    keeps = (name for each in KINDS.values() for name in each.keeps)
    return tuple(str(Path(user, name)) for name in keeps) if user.startswith("/") else ()


def home_variables(home: Path) -> dict[str, str]:
    """The variables that give a program its own home."""
    return {"HOME": str(home), **{name: str(home / below) for name, below in _XDG.items()}}


def adopt(home: Path, settings: AgentSettings) -> None:
    """Move what an earlier version left in the one home of all engines to that of this kind, its
    sessions above all; blocks. Once: where the home is there, nothing is done.

    A kind that we know gets its own; one that we don't, what none of those that we know has.
    Programs could write there, so a link or a file in a home's place is set aside.
    """
    shared = home.parent
    if not shared.is_dir() or _is_folder(shared, home.name):
        return
    # A home that is there is whole: an end in the middle is gone on with.
    unfinished = shared / f"{home.name}{_UNFINISHED}"
    _is_folder(shared, unfinished.name)
    _make(unfinished)
    source, target = Folder(shared), Folder(unfinished)
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
    """Whether there is a directory of that name; what else is there is set aside."""
    folder = Folder(shared)
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


def _taken(folder: Folder, name: str) -> str:
    """What stands under ``name``, or on the way to it where that is no directory; or empty."""
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
    Folder(path).make(mode=0o700)
