"""Brings an exported agent into a home, beside a running daemon."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

from agentsup.cli.archives.agent import (
    ENTRY,
    MEMORIES,
    NOTES,
    ROLES,
    SKILLS,
    WORKSPACE,
    portable,
)
from agentsup.cli.commands.agents_edit import change_file
from agentsup.cli.commands.background import looks
from agentsup.cli.connect.client import DaemonClient, DaemonRefused, segment
from agentsup.cli.connect.failure import CommandFailed
from agentsup.config import Home, environment_of, load, with_entry
from agentsup.kit.archive.contents import FILE, ArchiveRefused, Contents
from agentsup.kit.archive.unpacking import content_of, unpack
from agentsup.kit.safe_files import GuardedFolder
from agentsup.model.agent import MAIN
from agentsup.model.name import name_problem
from agentsup.model.principal import PERSON_MARK

UNPACKED: Final = ".importing"
_MAX_ENTRY: Final = 1024**2
_MAX_MEMORIES: Final = 512 * 1024**2
_AT_ONCE: Final = 50
_KNOWN_S: Final = 60.0
_ROLE: Final = re.compile(rf"{ROLES}/([^/]+)")


@dataclass(frozen=True, slots=True)
class AgentImport:
    """The content of an archive, with what must be put right by hand."""

    name: str
    entry: dict[str, Any]
    memories: tuple[dict[str, Any], ...]
    strangers: int
    """Memories of people who are not in ``[people]`` here; they stay out."""
    files: int
    role: str
    """A role that comes along; empty if there is none, or one of that name here."""
    skills: tuple[str, ...]
    """Files of skills that are not here yet."""
    missing: tuple[str, ...]
    """References that lead to nothing here."""
    shown: str
    """The entry as a person may see it: it decides which programs run, who may talk to the agent, and
    where its keys go. Whoever made the archive wrote it."""


def read_import(home: Home, file: Path, contents: Contents, name: str | None) -> AgentImport:
    """Plan the import of ``contents``, which was checked. Raises ``CommandFailed``,
    ``ArchiveRefused``, ``OSError``."""
    entry = _json(content_of(file, contents, ENTRY, most=_MAX_ENTRY), dict)
    memories = _json(content_of(file, contents, MEMORIES, most=_MAX_MEMORIES), list)
    entry["name"] = name = name or str(entry.get("name"))
    if problem := name_problem(name):
        raise CommandFailed(f"{name!r} can't be an agent's name: {problem}; give another with --as")
    if name.casefold() == MAIN:
        raise CommandFailed("main is here already; give it another name with --as")
    shown = portable(entry)  # not what the manifest says of it
    known = {PERSON_MARK + each for each in load(home).settings.people}
    wanted = tuple(each for each in memories if _is_known(each, known))
    roles = {found[1] for each in contents.entries if (found := _ROLE.fullmatch(each.path))}
    here = {each.casefold() for each in _names(home.roles)}
    role = next((each for each in roles if each.casefold() not in here), "")
    return AgentImport(
        name,
        entry,
        wanted,
        len(memories) - len(wanted),
        sum(each.kind == FILE and each.path.startswith(WORKSPACE) for each in contents.entries),
        role,
        tuple(
            each.path
            for each in contents.entries
            if each.kind == FILE
            and each.path.startswith(f"{SKILLS}/")
            and not (home.root / each.path).exists()
        ),
        tuple(_missing(home, shown.references)),
        json.dumps(shown.values, ensure_ascii=False, indent=2),
    )


def _json(data: bytes, kind: type) -> Any:
    try:
        found = json.loads(data or b"null")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, kind):
        raise ArchiveRefused("it has no entry of an agent")
    return found


def _is_known(memory: object, people: set[str]) -> bool:
    if not isinstance(memory, Mapping):
        raise ArchiveRefused("its memories can't be read")
    person = memory.get("person")
    return isinstance(person, str) and (not person.startswith(PERSON_MARK) or person in people)


def _names(folder: Path) -> list[str]:
    try:
        return [name for name, _ in GuardedFolder(folder).list("", 1000)[0]]
    except FileNotFoundError:
        return []


def _missing(home: Home, references: Iterable[str]) -> Iterator[str]:
    environ = environment_of(home)
    for each in references:
        kind, _, target = each[:500].partition(":")
        if kind == "env" and not environ.get(target):
            yield f"{target} in {home.environment} (a line {target}=…)"
        elif kind == "file" and not (home.root / Path(target).expanduser()).is_file():
            yield str(home.root / Path(target).expanduser())


def bring(
    home: Home, file: Path, contents: Contents, plan: AgentImport, client: DaemonClient
) -> int:
    """Add the agent of ``plan``; returns how many memories came along.

    Raises ``CommandFailed``, ``ArchiveRefused`` and ``OSError``; then nothing is changed.
    """
    folder = home.agent_dir(plan.name)
    if folder.exists():
        raise CommandFailed(
            f"{folder} is there already, of this agent or one of before; give another name with --as, "
            "or move it away. Nothing was changed"
        )
    fresh = home.root / UNPACKED
    with contextlib.ExitStack() as undo:
        shutil.rmtree(fresh, ignore_errors=True)
        undo.callback(shutil.rmtree, fresh, ignore_errors=True)
        unpack(file, contents, fresh)
        with contextlib.ExitStack() as placed:
            folder.mkdir(mode=0o700, parents=True)
            placed.callback(shutil.rmtree, folder, ignore_errors=True)
            for name in (WORKSPACE, NOTES):
                if (fresh / name).exists():
                    (fresh / name).rename(folder / name)
            for name in (f"{ROLES}/{plan.role}" if plan.role else "", *plan.skills):
                if name:
                    _move_in(fresh / name, home.root / name, placed)
            change_file(home, lambda text: with_entry(text, plan.entry))
            placed.pop_all()
    return _remember(plan, client)


def _move_in(path: Path, to: Path, placed: contextlib.ExitStack) -> None:
    to.parent.mkdir(mode=0o700, exist_ok=True)
    path.rename(to)
    placed.callback(shutil.rmtree if to.is_dir() else Path.unlink, to)


def _remember(plan: AgentImport, client: DaemonClient) -> int:
    """Hand the memories to the daemon, once it knows the agent. Raises ``CommandFailed``."""
    if not plan.memories:
        return 0
    path = f"/agents/{segment(plan.name)}"
    for _ in looks(_KNOWN_S):
        with contextlib.suppress(DaemonRefused):
            client.get(path)
            break
    added, left = 0, iter(plan.memories)
    try:
        while some := list(islice(left, _AT_ONCE)):
            added += client.post(f"{path}/memory/import", {"memories": some})["count"]
    except CommandFailed as failure:
        raise CommandFailed(
            f"the agent {plan.name} is here, but only {added} of its {len(plan.memories)} memories: "
            f"{failure}"
        ) from None
    return added
