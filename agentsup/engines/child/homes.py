"""The homes of programs: one for each kind of program of an agent, and what lies in them.

No two kinds share one: what a program reads in its home it takes orders from, and what a coding agent
keeps there (its turn's token, its sessions) is nobody else's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from agentsup.engines.agent_settings import KINDS, UNKNOWN, AgentSettings, filled
from agentsup.engines.failures import EnginesBusy
from agentsup.kit.planted import Folder, names_of
from agentsup.model.engine import EngineSpec, Notice

_log = logging.getLogger(__name__)

_HOMES = "engine-home"
_SETTINGS = "engine-settings"
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


@dataclass(frozen=True, slots=True)
class EngineHome:
    """The home of one agent's engine. ``kind`` is that of the program; ``user`` is the home of the
    daemon's user, which the program has instead of its own unless ``is_private``."""

    workspace: Path
    kind: str
    settings: AgentSettings = UNKNOWN
    user: str = ""
    is_private: bool = True

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
        user = spec.env.get("HOME", "")
        return cls(Path(spec.workspace), settings.kind or kind, settings, user, is_private)

    @property
    def path(self) -> Path:
        """Beside the workspace, so that no file tool reaches it."""
        return self.workspace.parent / _HOMES / self.kind

    @property
    def shown(self) -> Path:
        """What we write for the program to read."""
        return self.workspace.parent / _SETTINGS / self.kind

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
                home.remove_tree(taken, lambda: True)
                told.append(f"{taken} was removed from its home")
        for name, text in self.settings.written.items():
            if (taken := _taken(home, name)) and taken != name:
                home.remove_tree(taken, lambda: True)
            home.renew(name, text.encode(), mode=0o600)
        return told

    def _filled(self, text: str) -> str:
        return filled(text, settings=str(self.shown), workspace=str(self.workspace))


async def prepared(home: EngineHome, title: str) -> list[Notice]:
    """Lay the home for a turn; what was taken away, for people. Raises ``EnginesBusy`` where
    settings that are not ours can't be taken away: the program must not run then."""
    try:
        told = await asyncio.to_thread(home.lay)
    except OSError as error:
        raise EnginesBusy(
            f"{title} is not started, as its settings can't be put in order: "
            f"{error.strerror or error} ({error.filename or home.path})"
        ) from error
    return notices_of(told, title)


def notices_of(told: Iterable[str], title: str) -> list[Notice]:
    """What was taken away, as the log and people read it."""
    found = [f"{title} takes no settings from there: {each}." for each in told]
    for text in found:
        _log.warning("%s", text)
    return list(map(Notice, found))


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
